"""How much a gate does."""

from typing import Literal, NamedTuple

ProfileName = Literal["quick", "ci", "nightly"]


class Profile(NamedTuple):
    """Budgets of one gate.

    Attributes:
        examples: Hypothesis runs per scale, without those that shrinking takes.
        shrink_runs: further runs that Hypothesis may take to shrink one failure.
        shrink_attempts: replays that our own shrinking may take after that.
        corpus_steps: a built-in scenario longer than this many steps is left out.
    """

    examples: int
    shrink_runs: int
    shrink_attempts: int
    corpus_steps: int


PROFILES: dict[str, Profile] = {
    "quick": Profile(examples=60, shrink_runs=60, shrink_attempts=60, corpus_steps=2_000),
    "ci": Profile(examples=400, shrink_runs=250, shrink_attempts=250, corpus_steps=60_000),
    "nightly": Profile(
        examples=2_000, shrink_runs=1_000, shrink_attempts=1_000, corpus_steps=10**9
    ),
}
