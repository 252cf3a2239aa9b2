"""Keep decisions in flight around vLLM's scheduler.

Decisions wait in a queue, as in the engine core. A worker samples a token once all preceding tokens
are computed.

Source: EngineCore.step_with_batch_queue. In release 0.19.1, this method checks whether the worker
has completed the oldest decision. In later releases, such as 0.28.0, it makes decisions until the
queue is full.
"""

from collections import deque
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ..protocol_checks import refuse

RUNNER = "use_v2_model_runner"
KEYS = (
    "async_scheduling",
    "pipeline_parallel_size",
    "early_completions",
    RUNNER,
)  # absent if every step completes at once


def check(config: Mapping[str, Any]) -> None:
    """Refuse `early_completions` if no decision is ever in flight. Raise RefusedError."""
    early = config.get("early_completions", 0)
    if early and depth(config) == 1:
        valid = "0, or any with async_scheduling or a pipeline_parallel_size of at least 2"
        raise refuse("early_completions", early, valid)


def depth(config: Mapping[str, Any]) -> int:
    stages = int(config.get("pipeline_parallel_size", 1))
    if config.get("async_scheduling") and config.get(RUNNER):
        return stages + 1
    return max(stages, 2) if config.get("async_scheduling") else stages


class Flight(NamedTuple):
    """A decision that is being computed.

    `first` and `drafts` have an entry for each request that gets tokens: the position of the first
    new token in the output, and the number of drafts that are computed before this token.
    """

    decision: Any
    output: Any
    first: dict[str, int]
    drafts: Mapping[str, int] = MappingProxyType({})


class Flights:
    """The decisions in flight, oldest first, and the number of tokens that the worker has sampled.

    At most `most` decisions are in flight. If the worker is fast, the oldest decision completes
    before `most` are in flight. This happens in at most `early` steps in a row; after that, the
    number of decisions in flight grows by one.
    """

    def __init__(self, most: int, early: int = 0) -> None:
        self.most = most
        self._early, self._in_a_row = early, 0
        self._queue: deque[Flight] = deque()
        self._known: dict[str, int] = {}  # how many tokens of each request the worker knows

    @property
    def is_empty(self) -> bool:
        return not self._queue

    def known(self, name: str, request: Any, joins: bool) -> int:
        """Return how many tokens of a request the worker knows. A request that joins the batch
        is sent with all of its tokens."""
        if joins or self.most == 1:
            self._known[name] = request.num_tokens
        return self._known[name]

    def sampled(self, name: str, tokens: int) -> None:
        self._known[name] += tokens

    def forget(self, name: str) -> None:
        self._known.pop(name, None)

    def tokens_in_flight(self, name: str) -> int:
        """Return how many tokens of a request are in flight. Like the scheduler, assume that all
        drafts are correct."""
        coming = 0
        for flight in self._queue:
            if name in flight.first:
                coming += 1 + len(flight.decision.scheduled_spec_decode_tokens.get(name, ()))
        return coming

    def drop(self, names: set[str]) -> list[str]:
        """Drop the tokens that these requests would get from decisions in flight. For each dropped
        result that verifies drafts, return its request."""
        verified = []
        for flight in self._queue:
            for name in names & flight.first.keys():
                del flight.first[name]
                verified += [name] * bool(flight.drafts.get(name))
        return verified

    def take(self, flight: Flight, waits: bool = False) -> bool:
        """Put a decision in flight, and return whether the oldest one must complete now.

        It must complete in three cases: no more decisions fit; the new decision is empty, and waits
        for those in flight; or the new decision `waits` for a token in flight.
        """
        while self._queue and not self._queue[0].decision.num_scheduled_tokens:
            self._queue.popleft()  # a server does not wait for an empty decision
        empty = not flight.decision.num_scheduled_tokens
        if not empty or not self._queue:
            self._queue.append(flight)
        return empty or waits or len(self._queue) == self.most

    def completed(self, decision: Any) -> Flight | None:
        """Remove a decision from the queue and return it, or None if it is not the oldest one."""
        if self._queue and self._queue[0].decision is decision:
            return self._queue.popleft()
        return None

    def set_off(self, flight: Flight, waits: bool = False) -> Flight | None:
        """Put a decision in flight. Return the decision that completes now, or None."""
        if self.take(flight, waits):
            self._in_a_row = 0
            return self._queue.popleft()
        if self._in_a_row < self._early:
            self._in_a_row += 1
            return self._queue.popleft()
        self._in_a_row = 0
        return None
