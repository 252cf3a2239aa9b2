"""The shape of a check: does this step break the rule, and was the rule at stake in it?"""

from collections.abc import Callable
from typing import Literal, NamedTuple

from ..model.observation import Step
from .ledger import Ledger


class Predicate(NamedTuple):
    """`broken` gives the numbers that break the rule, or None; `at_stake` is the rule's witness.

    Both read the ledger as it was before the step. `members` says which steps they speak of:
    those that schedule a request in its prefill, in its decode, or any.
    """

    broken: Callable[[Ledger, Step], str | None]
    at_stake: Callable[[Ledger, Step], bool]
    members: Literal["prefill", "decode", "any"] = "any"


class Broken(NamedTuple):
    """A rule, the step that broke it, and the numbers in one sentence."""

    rule: str
    step: int
    message: str
