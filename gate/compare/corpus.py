"""The scenarios that schedproof brings along, on both targets of a comparison."""

import time
from collections import Counter
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from ...model.errors import InputError
from ...model.faults import ConfigRefused
from ...model.scenario import Scenario
from ...properties.checking.replay import Outcome, replay
from ..corpus.builtin_scenarios import builtin_scenarios, longest, seed_corpus
from ..judging.events import Notice, Progress
from .context import BOTH_FAILED, Diff, book
from .keeping import keep_smallest

# Steps that shrinking a long scenario of the corpus may take on each target.
CORPUS_STEPS = 20_000


def replay_corpus(diff: Diff) -> dict[str, tuple[Scenario, int]]:
    """The built-in scenarios, each to its end or to the first difference.

    They are long, so that the search is asked first for a smaller scenario of the same difference:
    here is the first of each shape, with the steps that it takes.
    """
    long_ones: dict[str, tuple[Scenario, int]] = {}

    def found(scenario: Scenario, outcome: Outcome) -> None:
        long_ones.setdefault(outcome.broken[0].rule, (scenario, outcome.steps))

    _replay(diff, "production", builtin_scenarios(diff.system), found)
    return long_ones


def replay_seeds(diff: Diff, scale: str) -> None:
    """The seed corpus of a scale: short runs in which every rule is exercised."""
    if diff.enough or diff.hangs:
        return

    def found(scenario: Scenario, outcome: Outcome) -> None:
        if outcome.broken[0].rule not in diff.known:
            attempts = diff.profile.shrink_attempts
            keep_smallest(diff, "corpus", scale, scenario, 0.0, attempts)
        diff.pair.tolerated = frozenset(diff.found)

    diff.pair.tolerated = frozenset(diff.found)
    _replay(diff, scale, seed_corpus(diff.system, scale), found)


def _replay(
    diff: Diff,
    scale: str,
    scenarios: Mapping[str, Scenario],
    found: Callable[[Scenario, Outcome], None],
) -> None:
    """Each scenario that is short enough to its end, or to a difference that is `found`."""
    began = time.monotonic()
    totals: Counter[str] = Counter()
    complete = False
    try:
        for name, scenario in scenarios.items():
            if diff.enough or diff.hangs:
                break
            if longest(scenario) > diff.profile.corpus_steps:
                left_out = f"corpus: {name} left out of profile {diff.profile_name}"
                diff.report(Notice(left_out))
                continue
            diff.report(Progress(f"corpus, {scale}", totals["runs"], 0, totals["steps"]))
            meant = replace(
                scenario,
                revision=diff.revision,
                config={**scenario.config, **diff.fixed},
                expect=None,
            )
            try:
                outcome = replay(diff.pair, meant, ())
            except (ConfigRefused, InputError):  # an option that this revision does not have
                totals["refused"] += 1
                continue
            totals.update(outcome.counts)
            if outcome.broken and outcome.broken[0].rule not in BOTH_FAILED:
                found(meant, outcome)
        else:
            complete = True
    finally:
        if scenarios:
            book(diff, "corpus", scale, totals, began, complete)


def keep_long_ones(diff: Diff, long_ones: Mapping[str, tuple[Scenario, int]]) -> None:
    diff.pair.tolerated = frozenset()
    for shape, (scenario, steps) in long_ones.items():
        if not diff.enough and shape not in diff.found:
            attempts = CORPUS_STEPS // (steps + 1)
            keep_smallest(diff, "corpus", "production", scenario, 0.0, attempts)
