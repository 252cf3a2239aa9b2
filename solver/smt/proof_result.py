"""How a rule is decided by lemmas: what is proven of it for all numbers, and what is refuted."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ...model.scenario import Scenario
from .obligation import Obligation


class ScenarioPair(NamedTuple):
    """The same requests in two configurations, against a rule that compares runs: more of them
    are preempted in the second."""

    few: Scenario
    more: Scenario


class RuleProof(NamedTuple):
    """A question about a rule.

    Attributes:
        question: one sentence, with its answer.
        obligations: what is proven of it, for blocks of so many tokens (None: of any size).
        counterexamples: what is refuted, by what a replay shows; at production scale, or as small
            as it gets.
        block: the only size of a block that the obligations are about, None for any size.
    """

    question: str
    obligations: Callable[[int | None], list[Obligation]]
    counterexamples: Mapping[str, Callable[[], Scenario | ScenarioPair | None]] = {}
    block: int | None = None
