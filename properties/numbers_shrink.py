"""Hypothesis's own shrinker on the numbers of a scenario that is already there.

The search is over exactly what the scenario holds: each request is kept or not, each of its
numbers lies between its least and its present value. Hypothesis is handed the present scenario as
the one failure that its database knows, and shrinks that: several numbers at a time, where our
own pass (`shrink`) changes one.
"""

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, given, reject, settings
from hypothesis import strategies as st
from hypothesis.database import ExampleDatabase, choices_to_bytes
from hypothesis.errors import Flaky, Unsatisfiable
from msgspec.structs import replace

from ..model.scenario import Request, Scenario
from .machine import Enough

# Draws a number from the first to the second.
Draw = Callable[[int, int], int]
Choices = tuple[bool | int, ...]


@dataclass
class Shrunk:
    """What came out: the smallest scenario that fails; `reproduced`: Hypothesis saw the first one
    fail; without that it has shrunk nothing."""

    scenario: Scenario
    reproduced: bool = False
    attempts: int = 0


class _StillFails(Exception):  # noqa: N818 (a finding, not an error)
    """What Hypothesis shrinks."""


def shrink_numbers(
    scenario: Scenario, still_fails: Callable[[Scenario], bool], attempts: int
) -> Shrunk:
    """The smallest scenario that Hypothesis's shrinker comes to, in at most so many trials."""
    result = Shrunk(scenario)

    # Without a seed: Hypothesis has no database beside one.
    @settings(
        phases=[Phase.reuse, Phase.shrink],
        database=_OneExample(choices_of(scenario)),
        deadline=None,
        max_examples=10,
        verbosity=Verbosity.quiet,
        report_multiple_bugs=False,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(candidates(scenario))
    def fails(candidate: Scenario | None) -> None:
        if candidate is None:
            reject()
        if result.attempts >= attempts:
            raise Enough
        result.attempts += 1
        if still_fails(candidate):
            result.reproduced |= candidate == scenario
            # What Hypothesis tries is smaller in its own order, which need not be ours.
            if size(candidate) <= size(result.scenario):
                result.scenario = candidate
            raise _StillFails

    with contextlib.suppress(_StillFails, Enough, Flaky, Unsatisfiable):
        fails()
    return result


def size(scenario: Scenario) -> tuple[int, int]:
    """Requests, then tokens and steps: which of two scenarios is the smaller one."""
    requests = scenario.requests
    tokens = sum(one.prompt_len + one.max_tokens + one.arrival for one in requests)
    return len(requests), tokens + sum(one.tokens_to_emit + (one.abort_at or 0) for one in requests)


@st.composite
def candidates(draw: Any, scenario: Scenario) -> Scenario | None:
    """Parts of a scenario, with numbers that are no greater; None where nobody is left."""

    def number(least: int, most: int) -> int:
        return int(draw(st.integers(least, most))) if least < most else most

    kept = [_smaller(one, number) for one in scenario.requests if draw(st.booleans())]
    return replace(scenario, requests=tuple(kept)) if kept else None


def choices_of(scenario: Scenario) -> Choices:
    """What has to be drawn of `candidates` for the scenario itself."""
    choices: list[bool | int] = []

    def number(least: int, most: int) -> int:
        choices.extend([most] * (least < most))
        return most

    for one in scenario.requests:
        choices.append(True)
        _smaller(one, number)
    return tuple(choices)


def _smaller(request: Request, number: Draw) -> Request:
    """The request with every number drawn."""
    emitted = request.output_len and number(1, request.output_len)
    max_tokens = number(1, request.max_tokens)
    return replace(
        request,
        arrival=number(0, request.arrival),
        prompt=tuple((stream, number(1, length)) for stream, length in request.prompt),
        max_tokens=max_tokens,
        output_len=emitted and min(emitted, max_tokens),
        abort_at=None if request.abort_at is None else number(0, request.abort_at),
        priority=number(min(0, request.priority), request.priority),
    )


@dataclass
class _OneExample(ExampleDatabase):
    """A database that knows one failure, whatever it is asked about.

    One choice more than is drawn: what comes back as it was, Hypothesis takes for shrunk already.
    """

    choices: Choices
    asked: set[bytes] = field(default_factory=set)

    def fetch(self, key: bytes) -> Iterable[bytes]:
        """The failure, for the first key that is asked for."""
        self.asked.add(key)
        return iter([choices_to_bytes((*self.choices, 0))] if len(self.asked) == 1 else [])

    def save(self, key: bytes, value: bytes) -> None:
        """Nothing is kept."""

    def delete(self, key: bytes, value: bytes) -> None:
        """Nothing is kept."""
