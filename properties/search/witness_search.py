"""Find a rule's witness with the engines that find failures.

The engines look for a step that breaks a rule, and shrink the run that leads there. With a
predicate that is broken wherever the rule is exercised, they find the smallest run that exercises
it.
"""

from collections.abc import Mapping

from ...model.observation import Step
from ..history.run_history import RunHistory
from ..rules.predicate import Predicate
from ..rules.registry import predicates_of

EXERCISED = "exercised"


def witness_predicates(system: str, rule: str) -> Mapping[str, Predicate]:
    """The predicates of a system, of which this rule's is broken wherever it is exercised."""
    predicates = predicates_of(system)
    own = predicates[rule]

    def is_exercised(history: RunHistory, step: Step) -> str | None:
        return EXERCISED if own.exercised(history, step) else None

    return {**predicates, rule: own._replace(broken=is_exercised)}
