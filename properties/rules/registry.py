"""The predicates of each system's rules, and the rules that can be checked on a target."""

from collections.abc import Iterable, Mapping
from typing import Any

from ...model.replies import DEFAULTS
from ...spec.catalogue import Rule
from ...spec.systems import OWN_RULES, SYSTEMS, part
from ..history.features import features_of
from ..history.prefix_hits import caches
from . import common
from .predicate import Broken, Predicate

NEVER_CRASHES = "ALL-R01"
NEVER_HANGS = "ALL-R02"
NONE_LOST = "ALL-R03"
LOCKSTEP = "ALL-R07"
HITS = "ALL-R08"
NO_BLOCK_LOST = "ALL-R09"
OWN_TOKENS = "ALL-R11"
COMPLETION = "ALL-R06"
PROGRESS = frozenset({COMPLETION, "ALL-R10"})  # steps during a load do not count
AT_THE_DOOR = "ALL-R12"
SHOWN = "ALL-R13"
# Rules that no state of a model can break; like the rules in `runs_only`, they are judged only in
# runs.
NOT_EXPLORED = frozenset({LOCKSTEP, OWN_TOKENS, AT_THE_DOOR, SHOWN})
# These rules read only a step and the one before it, so they can be judged even if it is unknown
# which tokens are computed.
FOLLOW_NOTHING = ("ALL-", "GEN-")


def predicates_of(system: str) -> Mapping[str, Predicate]:
    """Return the predicates of a registered system by rule id: shared ones first, the user's
    own last."""
    own = {name: rule.predicate for name, rule in OWN_RULES.items()}
    return {**common.PREDICATES, **part(system, "predicates"), **own}


def can_be_explored(rule: Rule) -> bool:
    """Return whether the explorer can check the rule, that is, whether a single state of a model
    can break it."""
    runs_only = NOT_EXPLORED.union(*(system.runs_only for system in SYSTEMS.values()))
    judged = rule.id not in runs_only and rule.id not in OWN_RULES
    return rule.checked and judged and DEFAULTS not in rule.needs


def ends_run(broken: Iterable[Broken]) -> bool:
    """Return whether the target is gone. Nothing can be judged after such a failure."""
    return any(finding.rule in (NEVER_CRASHES, NEVER_HANGS) for finding in broken)


def observable(
    rules: Iterable[Rule],
    revision: str,
    observes: frozenset[str],
    config: Mapping[str, Any] | None = None,
    system: str = "",
) -> list[Rule]:
    """Return the rules of `revision` whose fields the target shows, in catalogue order.

    Without some fields, a client cannot tell which tokens are computed. If the target hides one of
    them, only the rules that do not depend on computed tokens are left. If the target also hides
    which requests finish, only two rules are left: the target must not crash, and must not hang.
    """
    hidden = followed_by(system, revision, config) - observes
    exempt = FOLLOW_NOTHING if "finished" in observes else (NEVER_CRASHES, NEVER_HANGS)
    return [
        rule
        for rule in rules
        if rule.checked
        and applies(rule, revision)
        and observes.issuperset(rule.needs)
        and not (hidden and not rule.id.startswith(exempt))
        and not (rule.id == NONE_LOST and "paused" in hidden)
        and not (
            (rule.id in (*PROGRESS, HITS) or rule.id.startswith("GEN-")) and "parked" in hidden
        )
        and not (rule.id in (OWN_TOKENS, SHOWN) and hidden)
    ]


def followed_by(
    system: str, revision: str, config: Mapping[str, Any] | None = None
) -> frozenset[str]:
    """Return the fields that a client needs to follow what is computed.

    With a cache, these include prefix hits. They always include the field that shows which requests
    leave the batch. With a connector, they include the parked and the ended requests, since loaded
    tokens are not shown.
    """
    fields = SYSTEMS[system].followed_by.get(revision, ()) if system else ()
    hits = ("prefix_hit",) if config is not None and caches(config) else ()
    more = features_of(system).follows(config) if system and config is not None else ()
    return frozenset((*fields, *hits, *more))


def keeps_step(system: str, revision: str, name: str, version: str) -> bool:
    """Return whether a target with this name and version must decide exactly as the model does.

    Some revisions are specifications, which leave choices to their implementations. For these, only
    the scheduler that the model reproduces is compared. A class that replaces a release's scheduler
    reports the release as its version, but may decide differently.
    """
    if version.partition(" ")[0] in SYSTEMS[system].schedulers:
        return False
    return revision != "documented" or name == system


def applies(rule: Rule, revision: str) -> bool:
    return "*" in rule.revisions or revision in rule.revisions
