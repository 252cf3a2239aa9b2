"""Which rules have a predicate, by system, and which of them a target lets us check."""

from collections.abc import Iterable

from ..spec.catalogue import Rule
from . import common, spyre
from .predicate import Predicate

NEVER_CRASHES = "ALL-R01"
NEVER_HANGS = "ALL-R02"
LOCKSTEP = "ALL-R07"

PREDICATES: dict[str, dict[str, Predicate]] = {"spyre": {**common.PREDICATES, **spyre.PREDICATES}}


def observable(rules: Iterable[Rule], revision: str, observes: frozenset[str]) -> list[Rule]:
    """The rules of `revision` whose fields the target shows, in catalogue order."""
    return [
        rule
        for rule in rules
        if not rule.planned and applies(rule, revision) and observes.issuperset(rule.needs)
    ]


def applies(rule: Rule, revision: str) -> bool:
    """The rule belongs to this revision."""
    return "*" in rule.revisions or revision in rule.revisions
