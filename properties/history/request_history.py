"""The observations of one request so far."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Self

from ...model.scenario import Request, Segment


@dataclass(slots=True)
class RequestHistory:
    """One accepted request, with lengths in tokens.

    Attributes:
        output_len: what it generates; None where only its end will tell.
        content: the segments of its prompt.
        computed: the sum over the steps seen, including `prefix_hit`, what the prefix cache had at
            admission. Both start again at 0 when the request is preempted.
        emitted: the sum over the steps seen.
        prefill_steps: steps in which it was scheduled before its prompt was computed.
        ended: the reason of its end.
        preemptions: how often it was preempted; at the last time it had generated `regenerated`
            tokens, and had computed `recompute_from` of all its tokens.
        arrival: its number in order of arrival.
        priority: lower is more important.
        never_runnable: it exceeds a limit by itself, so a target may end it at any time.
        began: the step in which it started, after a preemption the step in which it started again.
        ended_at: the step by which it had ended.
    """

    id: str
    prompt: int
    max_tokens: int
    output_len: int | None
    content: tuple[Segment, ...] = ()
    computed: int = 0
    emitted: int = 0
    prefix_hit: int = 0
    prefill_steps: int = 0
    ended: str | None = None
    regenerated: int = 0
    recompute_from: int = 0
    preemptions: int = 0
    arrival: int = 0
    priority: int = 0
    never_runnable: bool = False
    began: int = -1
    ended_at: int | None = None

    @classmethod
    def of(cls, request: Request, arrival: int, open_ended: bool) -> Self:
        """Return the history of a request that has just been accepted.

        `open_ended`: how much it generates is not known yet.
        """
        return cls(
            request.id,
            request.prompt_len,
            request.max_tokens,
            None if open_ended else request.tokens_to_emit,
            request.prompt,
            arrival=arrival,
            priority=request.priority,
            **cls.own_fields(request),
        )

    @staticmethod
    def own_fields(request: Request) -> dict[str, Any]:
        """Return the fields of a system's own that the request sets."""
        return {}

    @property
    def started(self) -> bool:
        return self.computed > 0

    @property
    def prefilled(self) -> bool:
        """Return whether its whole prompt is computed; after a preemption, its output so far as
        well."""
        return self.computed >= self.prompt + self.regenerated

    @property
    def max_computed(self) -> int:
        """Return how many of its tokens were ever computed."""
        return max(self.computed, self.recompute_from)

    @property
    def tokens_in_flight(self) -> int:
        """Return the tokens that are computed and not emitted yet."""
        return 0

    @property
    def tokens_loading(self) -> int:
        """Return the tokens that a connector fills, until they count as computed."""
        return 0

    @property
    def held_tokens(self) -> int:
        """Return the tokens for which it has blocks."""
        return self.computed

    @property
    def tokens_left(self) -> int:
        """Return the tokens that it has still to generate; 0 if unknown."""
        return 0 if self.output_len is None else self.output_len - self.emitted

    @property
    def num_tokens(self) -> int:
        """Return the tokens known so far: prompt, output, and tokens in flight."""
        return self.prompt + self.emitted + self.tokens_in_flight

    @property
    def may_change_after_end(self) -> bool:
        """Return whether its blocks may still be written or sent after its end."""
        return False

    def rewind(self) -> None:
        """Book a preemption: all its tokens must be computed again."""
        self.recompute_from = self.max_computed
        self.regenerated = self.emitted
        self.computed = self.prefix_hit = 0
        self.preemptions += 1

    def __copy__(self) -> "RequestHistory":
        kind = type(self)
        values = _values.get(kind)
        if values is None:
            values = _values[kind] = attrgetter(*(field.name for field in fields(kind)))
        return kind(*values(self))


_values: dict[type, Callable[[Any], Any]] = {}
