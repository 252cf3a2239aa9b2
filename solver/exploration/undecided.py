"""Requests whose lengths are chosen when something first reads them.

A scheduler cannot depend on a value that it has not read. So while a request waits and nothing has
read its length, all possible lengths lead to the same behaviour. Exploration therefore lets a
request arrive as a set of candidates. When the model or a rule reads a field in which the
candidates differ, the request raises `ChoiceNeeded`, and the exploration chooses among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, TypeVar

from ...model.members import Record
from ...model.scenario import Request, Segment
from ...properties.history.request_history import RequestHistory

Member = TypeVar("Member", bound=Record)
ENDLESS = 10**9  # tokens
# In a menu, this stream represents tokens that no other request has.
OWN = "own"
AT_ARRIVAL = "at arrival"  # the fields that a scheduler may read as soon as a request has arrived


class ChoiceNeeded(Exception):  # noqa: N818 (a question to the explorer, not an error)
    """Raised when something reads a field in which the candidates of a request differ."""

    def __init__(self, request: str, field: str) -> None:
        super().__init__(request, field)
        self.request = request
        self.field = field


class RequestMenu:
    """The requests that may arrive.

    `accepted[i]` gives the configurations (as bits) whose model accepts `items[i]`.
    """

    def __init__(self, items: Sequence[Request], accepted: Sequence[int]) -> None:
        self.items = tuple(items)
        self.accepted = tuple(accepted)
        self._known: dict[int, Candidates] = {}

    def candidates(self, bits: int) -> Candidates:
        """Return the items that these bits select. Equal bits give the same object."""
        known = self._known.get(bits)
        if known is None:
            known = self._known[bits] = Candidates(self, bits)
        return known

    @property
    def everything(self) -> Candidates:
        return self.candidates((1 << len(self.items)) - 1)


class Candidates:
    """The items of a menu among which the choice for a request is still open.

    `prompt`, `max_tokens`, `content`, `priority`, `external_tokens` and `load_steps` are None if
    the items differ in them. `accepted` gives the configurations (as bits) that accept at least one
    item. `fewest` is the smallest max_tokens.
    """

    def __init__(self, menu: RequestMenu, bits: int) -> None:
        self.menu = menu
        self.bits = bits
        self.accepted = 0
        for place in self.numbers():
            self.accepted |= menu.accepted[place]
        self.prompt: int | None = self._common("prompt")
        self.max_tokens: int | None = self._common("max_tokens")
        self.content: tuple[Segment, ...] | None = self._common("content")
        self.priority: int | None = self._common("priority")
        self.external_tokens: int | None = self._common("external_tokens")
        self.load_steps: int | None = self._common("load_steps")
        self.fewest = min(menu.items[place].max_tokens for place in self.numbers())

    def numbers(self) -> list[int]:
        return [place for place in range(len(self.menu.items)) if self.bits >> place & 1]

    def split(self, field: str) -> list[Candidates]:
        parts: dict[Any, int] = {}
        for place in self.numbers():
            value = value_of(self.menu.items[place], field)
            parts[value] = parts.get(value, 0) | 1 << place
        return [self.menu.candidates(bits) for bits in parts.values()]

    def asking_more_than(self, tokens: int) -> Candidates | None:
        if self.fewest > tokens:
            return self
        return self._asking(n for n in self.numbers() if self._max_tokens(n) > tokens)

    def asking(self, tokens: int) -> Candidates | None:
        if self.max_tokens is not None:
            return self if self.max_tokens == tokens else None
        return self._asking(n for n in self.numbers() if self._max_tokens(n) == tokens)

    def left_after(self, generated: int) -> tuple[int, ...]:
        """Return how many tokens a request with these candidates may still generate after
        `generated` tokens: one number for each possibility."""
        if self.max_tokens is not None:
            return (self.max_tokens - generated,)
        return tuple(sorted({self._max_tokens(n) - generated for n in self.numbers()}))

    def _max_tokens(self, place: int) -> int:
        return self.menu.items[place].max_tokens

    def _asking(self, numbers: Iterable[int]) -> Candidates | None:
        bits = sum(1 << place for place in numbers)
        return self.menu.candidates(bits) if bits else None

    def known_tokens(self, request: str) -> tuple[Segment, ...] | None:
        """Return the request's prompt if all candidates have the same one, and otherwise None."""
        if self.content is None:
            return None
        return tuple((request if name == OWN else name, tokens) for name, tokens in self.content)

    def _common(self, field: str) -> Any:
        values = {value_of(self.menu.items[place], field) for place in self.numbers()}
        return values.pop() if len(values) == 1 else None


def value_of(item: Request, field: str) -> Any:
    if field == "content":
        return item.prompt
    if field == AT_ARRIVAL:
        return item.priority, item.external_tokens, item.load_steps
    return item.prompt_len if field == "prompt" else getattr(item, field)


class OpenFields:
    """The fields of a queued request that is not fully decided.

    Mix this class into a system's `Sequence`. The sequence then stores candidates instead of
    content.

    Attributes:
        kept_output_len, kept_content: the stored values. The properties `output_len` and `content`
            are derived from the candidates.
    """

    __slots__ = ()
    id: str
    kept_output_len: ClassVar[int]
    kept_content: ClassVar[Any]

    @property
    def candidates(self) -> Candidates:
        kept: Candidates = self.kept_content
        return kept

    @property
    def prompt(self) -> int:
        prompt: int = agreed_value(self.id, "prompt", self.candidates.prompt)
        return prompt

    @property
    def max_tokens(self) -> int:
        tokens: int = agreed_value(self.id, "max_tokens", self.candidates.max_tokens)
        return tokens

    @property
    def output_len(self) -> int:
        """Return the output length, or ENDLESS until the request's end is chosen."""
        return self.kept_output_len or ENDLESS

    @property
    def content(self) -> tuple[Segment, ...]:
        content: tuple[Segment, ...] = agreed_value(
            self.id, "content", self.candidates.known_tokens(self.id)
        )
        return content


class OpenRequestHistory:
    """The history of a request that is not fully decided, with the fields of `RequestHistory`."""

    never_runnable = False  # the models reject a request that exceeds a limit on its own
    # No scope has speculative decoding.
    drafted = verified = slots = most_slots = drafts_in_flight = 0
    accepted: tuple[int, ...] = ()
    deferrals = 0  # no connector that defers its answer, fails, or sends blocks
    load_fails_at = send_steps = None
    send_aborted = went_back = False
    falls_to = None
    inputs: ClassVar[tuple[()]] = ()
    partition = (None, None)  # no salts, adapters or resets
    since_reset = 0
    blocked = 0  # no grammars
    arrived_blocked = invalid = False
    grammar_begins = 0
    grammar_ends = None
    grammar_drafts: ClassVar[tuple[()]] = ()
    turns: ClassVar[tuple[()]] = ()  # no sessions
    between_turns = aside = False
    begun: ClassVar[tuple[()]] = ()  # no further KV groups with decisions in flight
    rests = 0  # no second model runner

    def __init__(self, request: str, candidates: Candidates, arrival: int = 0) -> None:
        self.id = request
        self.candidates = candidates
        self.arrival = arrival
        self.computed = 0
        self.emitted = 0
        self.prefix_hit = 0
        self.prefill_steps = 0
        self.paused_steps = 0
        self.regenerated = 0
        self.recompute_from = 0
        self.since_reset = 0
        self.preemptions = 0
        self.tokens_in_flight = 0
        self.load_steps = candidates.load_steps or 0  # known since its arrival
        self.external = candidates.external_tokens or 0
        self.load_left = self.tokens_loading = 0
        self.parked_since: int | None = None
        self.blocks: tuple[int, ...] = ()
        self.began = -1
        self.began_at = 0
        self.ended_at: int | None = None
        self.ended: str | None = None

    prompt = OpenFields.prompt
    max_tokens = OpenFields.max_tokens
    content = OpenFields.content
    started = RequestHistory.started
    prefilled = RequestHistory.prefilled
    held_tokens = RequestHistory.held_tokens
    kept_tokens = RequestHistory.kept_tokens
    settled = RequestHistory.settled
    max_computed = RequestHistory.max_computed
    num_tokens = RequestHistory.num_tokens

    @property
    def priority(self) -> int:
        priority: int = agreed_value(self.id, "priority", self.candidates.priority)
        return priority

    @property
    def output_len(self) -> int:
        return ENDLESS

    @property
    def may_change_after_end(self) -> bool:
        """Whether a load or a step in flight may still write to the request's blocks."""
        return bool(self.load_left or self.blocks)

    def rewind(self) -> None:
        RequestHistory.rewind(self)  # type: ignore[arg-type]
        self.tokens_in_flight = self.tokens_loading = 0


def tokens_left(sequence: Any) -> tuple[int, ...]:
    """Return how many tokens a queued request may still generate: a single number if the request is
    fully decided, and otherwise one number for each possibility."""
    if isinstance(sequence, OpenFields):
        return sequence.candidates.left_after(sequence.generated)  # type: ignore[attr-defined]
    return (sequence.max_tokens - sequence.generated,)


def outlasts_token(sequence: Any) -> bool:
    """Return whether a queued request certainly continues after its next token."""
    return min(tokens_left(sequence)) > 1


def agreed_value(request: str, field: str, value: Any) -> Any:
    """Return the value if the candidates agree on it. Raise ChoiceNeeded if they differ."""
    if value is None:
        raise ChoiceNeeded(request, field)
    return value


def fully_decided(candidates: Candidates) -> bool:
    values = (candidates.prompt, candidates.max_tokens, candidates.content, candidates.priority)
    return None not in values


def as_ordinary(sequence: Any, kind: type[Member]) -> Member:
    """Return a fully decided request as an ordinary request, which generates as many tokens as it
    may."""
    fields = {name: getattr(sequence, name) for name in kind.__struct_fields__}
    return kind(**{**fields, "output_len": sequence.max_tokens})
