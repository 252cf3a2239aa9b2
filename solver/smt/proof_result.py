"""How lemmas decide a rule: what they prove for all numbers, and counterexamples to the rest."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ...model.scenario import Scenario
from .obligation import Obligation


class ScenarioPair(NamedTuple):
    """The same requests in two configurations; in the second, more of them are preempted."""

    few: Scenario
    more: Scenario


class RuleProof(NamedTuple):
    """A question about a rule.

    Attributes:
        question: one sentence, with its answer.
        obligations: returns the lemmas, for blocks of so many tokens (None: of any size).
        counterexamples: by what a replay shows, a function that makes the scenario; at production
            scale, or as small as possible.
        block: the only block size that the lemmas are about; None for any.
    """

    question: str
    obligations: Callable[[int | None], list[Obligation]]
    counterexamples: Mapping[str, Callable[[], Scenario | ScenarioPair | None]] = {}
    block: int | None = None
