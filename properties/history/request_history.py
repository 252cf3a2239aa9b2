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
        output_len: how many tokens it generates; None if this is not known before its end.
        content: the segments of its prompt.
        computed: the tokens computed so far, including `prefix_hit`, the cached tokens at
            admission. A preemption resets both to 0.
        emitted: the tokens emitted so far.
        prefill_steps: the number of steps in which it was scheduled before its prompt was computed.
        ended: the reason why it ended.
        preemptions: how often it was preempted. `regenerated` is the number of tokens that it had
            generated at the last preemption, and `recompute_from` the number that it had computed.
        arrival: its number in order of arrival.
        priority: lower is more important.
        never_runnable: whether the request exceeds a limit on its own; a target may then end it at
            any time.
        began: the step in which it last started.
        ended_at: the number of the step at which it ended.
        partition: its adapter and salt; in the cache, it must not find blocks of another partition.
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
    partition: tuple[str | None, str | None] = (None, None)

    @classmethod
    def of(cls, request: Request, arrival: int, open_ended: bool) -> Self:
        return cls(
            request.id,
            request.prompt_len,
            request.max_tokens,
            None if open_ended else request.tokens_to_emit,
            request.prompt,
            arrival=arrival,
            priority=request.priority,
            partition=(request.lora, request.cache_salt),
            **cls.own_fields(request),
        )

    @staticmethod
    def own_fields(request: Request) -> dict[str, Any]:
        """Return the system's own fields that the request sets."""
        return {}

    @property
    def started(self) -> bool:
        return self.computed > 0

    @property
    def prefilled(self) -> bool:
        """Return whether the whole prompt is computed. After a preemption, the output so far must
        be computed as well."""
        return self.computed >= self.prompt + self.regenerated

    @property
    def max_computed(self) -> int:
        return max(self.computed, self.recompute_from)

    @property
    def tokens_in_flight(self) -> int:
        """Return the number of tokens that are computed but not emitted yet."""
        return 0

    @property
    def settled(self) -> int:
        """Return how many of the request's tokens were computed by decisions that have
        completed."""
        return self.computed

    @property
    def tokens_loading(self) -> int:
        """Return the number of tokens that a connector is loading and that do not count as computed
        yet."""
        return 0

    @property
    def between_turns(self) -> bool:
        """Return whether a turn of the request's session has ended and the next one has not
        begun."""
        return False

    @property
    def kept_tokens(self) -> int:
        """Return the number of computed tokens whose blocks the request holds, even while it
        waits."""
        return self.computed

    @property
    def held_tokens(self) -> int:
        return self.computed

    @property
    def tokens_left(self) -> int:
        """Return how many tokens the request still has to generate, or 0 if that is unknown."""
        return 0 if self.output_len is None else self.output_len - self.emitted

    @property
    def num_tokens(self) -> int:
        """Return the number of tokens known so far: prompt, output, and tokens in flight."""
        return self.prompt + self.emitted + self.tokens_in_flight

    @property
    def may_change_after_end(self) -> bool:
        """Return whether the request's blocks may still be written or sent after its end."""
        return False

    def rewind(self) -> None:
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
