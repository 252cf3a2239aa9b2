"""The budgets of a gate, by profile."""

import os
from typing import NamedTuple

from ..targets.releases import cache_folder


def set_hypothesis_home() -> None:
    """Choose the folder in which Hypothesis stores its data, unless the user has chosen one. Call
    this before Hypothesis first runs."""
    from hypothesis.configuration import set_hypothesis_home_dir  # a slow import

    if "HYPOTHESIS_STORAGE_DIRECTORY" not in os.environ:
        set_hypothesis_home_dir(cache_folder() / "hypothesis")


class Profile(NamedTuple):
    """The budgets of one profile.

    Attributes:
        examples: the number of Hypothesis runs per scale, not counting shrinking.
        shrink_runs, shrink_attempts: how many runs Hypothesis, and afterwards schedproof, may use
            to shrink a failure.
        corpus_steps: built-in scenarios of more than this many steps are skipped.
        workloads: number of runs for each shape of workload.
        steps: the search of a scale stops after this many steps, not counting shrinking.
        shrink_steps: Hypothesis stops shrinking a failure after this many steps. Usually, it needs
            far fewer, unless the target leaves requests waiting or the scale is very large.
    """

    examples: int
    shrink_runs: int
    shrink_attempts: int
    corpus_steps: int
    steps: int = 10**9
    workloads: int = 0

    @property
    def shrink_steps(self) -> int:
        return self.steps // 6


PROFILES: dict[str, Profile] = {
    "quick": Profile(60, 60, 60, corpus_steps=2_000, steps=30_000, workloads=1),
    "ci": Profile(400, 250, 250, corpus_steps=60_000, steps=300_000, workloads=8),
    "nightly": Profile(2_000, 1_000, 1_000, corpus_steps=10**9, steps=3_000_000, workloads=60),
}
