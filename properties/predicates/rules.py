"""Which rules have a predicate, by system, and which of them a target lets us check."""

from collections.abc import Iterable, Mapping
from typing import Any

from ...spec.catalogue import Rule
from ...spec.systems import part
from ..history.run_history import caches
from . import common
from .predicate import Broken, Predicate

NEVER_CRASHES = "ALL-R01"
NEVER_HANGS = "ALL-R02"
LOCKSTEP = "ALL-R07"
EVERY_SYSTEM = "ALL-"


def predicates_of(system: str) -> Mapping[str, Predicate]:
    """By rule id, the predicates of a registered system, those of every system first."""
    return {**common.PREDICATES, **part(system, "predicates")}


def ends_run(broken: Iterable[Broken]) -> bool:
    """Nothing can be judged after this: the target is gone, or model and target have parted."""
    return any(one.rule in (NEVER_CRASHES, NEVER_HANGS, LOCKSTEP) for one in broken)


def observable(
    rules: Iterable[Rule],
    revision: str,
    observes: frozenset[str],
    config: Mapping[str, Any] | None = None,
) -> list[Rule]:
    """The rules of `revision` whose fields the target shows, in catalogue order.

    With prefix caching on, an observer that does not see the hits cannot follow what is computed:
    then only the rules of every system are left.
    """
    blind = config is not None and caches(config) and "prefix_hit" not in observes
    return [
        rule
        for rule in rules
        if rule.checked
        and applies(rule, revision)
        and observes.issuperset(rule.needs)
        and not (blind and not rule.id.startswith(EVERY_SYSTEM))
    ]


def keeps_step(system: str, revision: str, name: str) -> bool:
    """Whether a target of this name is held to every decision of the model.

    A revision that is a specification leaves choices to its implementations: there only the
    scheduler that the model reproduces is compared.
    """
    return revision != "documented" or name == system


def applies(rule: Rule, revision: str) -> bool:
    """The rule belongs to this revision."""
    return "*" in rule.revisions or revision in rule.revisions
