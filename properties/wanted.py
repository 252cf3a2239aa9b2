"""A rule's witness in the place of its failure: what finds failures then finds witnesses.

The engines look for a step that breaks a rule, and shrink the run that leads there. Where the rule
is said to break as soon as it is at stake, they come to the smallest run in which it is.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from ..model.observation import Step
from .ledger import Ledger
from .rules import PREDICATES

AT_STAKE = "at stake"


@contextmanager
def witness_wanted(system: str, rule: str) -> Iterator[None]:
    """Within, the rule of this system, which has a predicate, breaks where it is at stake."""
    own = PREDICATES[system][rule]

    def at_stake(ledger: Ledger, step: Step) -> str | None:
        return AT_STAKE if own.at_stake(ledger, step) else None

    with mock.patch.dict(PREDICATES[system], {rule: own._replace(broken=at_stake)}):
        yield
