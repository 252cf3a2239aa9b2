"""How far the runs of a gate went: their sizes, and how many of them had each feature.

A rule that held says so of these runs. A scheduler that serves longer prompts or more requests than
any of them has not been tried there.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from ...model.scenario import Scenario


class Reach(msgspec.Struct, frozen=True):
    """The sizes and features of a gate's runs. Runs that only shrink a finding are not counted.

    Attributes:
        runs: how many.
        requests, prompt_tokens, output_tokens: of the run that has most; the longest.
        last_arrival: the latest step before which a request arrived.
        features: in how many runs each feature occurred; one that never did has 0.
    """

    runs: int
    requests: int
    prompt_tokens: int
    output_tokens: int
    last_arrival: int
    features: dict[str, int]


@dataclass
class ReachSoFar:
    """The number of runs so far, the largest sizes among them, and how often each feature
    occurred."""

    runs: int = 0
    largest: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            ("requests", "prompt_tokens", "output_tokens", "last_arrival"), 0
        )
    )
    features: Counter[str] = field(default_factory=Counter)

    def count(self, scenario: Scenario) -> None:
        """Add a run."""
        requests = scenario.requests
        self.runs += 1
        self._enlarge(
            {
                "requests": len(requests),
                "prompt_tokens": max(request.prompt_len for request in requests),
                "output_tokens": max(request.tokens_to_emit for request in requests),
                "last_arrival": max(request.arrival for request in requests),
            }
        )
        self.features.update(dict(_features(scenario)))

    def add(self, other: "ReachSoFar") -> None:
        """Add the runs of a later part of the same gate."""
        self.runs += other.runs
        self._enlarge(other.largest)
        self.features.update(other.features)

    def _enlarge(self, sizes: dict[str, int]) -> None:
        self.largest = {key: max(size, sizes[key]) for key, size in self.largest.items()}

    @property
    def result(self) -> Reach | None:
        """Return the reach of all runs; None if there were none."""
        return Reach(self.runs, **self.largest, features={**self.features}) if self.runs else None


def _features(scenario: Scenario) -> Iterator[tuple[str, int]]:
    requests = scenario.requests
    yield "aborts", any(request.abort_at is not None for request in requests)
    yield "aborts inside a step", any(request.abort_inside for request in requests)
    yield "early ends", any(request.tokens_to_emit < request.max_tokens for request in requests)
    own = all(stream == request.id for request in requests for stream, _ in request.prompt)
    yield "shared prompts", not own
    yield "priorities", any(request.priority for request in requests)
    yield "bounded pools", scenario.config.get("num_blocks") is not None


def in_words(reach: Reach) -> str:
    """Describe in one line how large the runs were and which features they had."""
    features = [f"{name} in {runs}" for name, runs in reach.features.items() if runs]
    missing = [name for name, runs in reach.features.items() if not runs]
    never = f"; never: {', '.join(missing)}" if missing else ""
    sizes = (
        f"{reach.runs} runs of up to {reach.requests} requests, prompts up to "
        f"{reach.prompt_tokens} tokens, answers up to {reach.output_tokens}"
    )
    return f"{sizes}{'; ' if features else ''}{', '.join(features)}{never}"
