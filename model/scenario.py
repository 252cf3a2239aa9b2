"""Scenarios, the form in which all parts of schedproof exchange test cases. A scenario consists of
a configuration and a sequence of requests.

The fields are those of the scenario format `schedproof/scenario@1`, whose files are read and
written by `gate`.
"""

from itertools import accumulate
from typing import Annotated, Any, Literal, get_args

import msgspec

from .config import Count, Positive
from .errors import InputError

FORMAT: Literal["schedproof/scenario@1"] = "schedproof/scenario@1"

# No run needs a number this large, so a file that contains one is a mistake.
StepNumber = Annotated[int, msgspec.Meta(ge=0, le=10**7)]
Name = Annotated[str, msgspec.Meta(min_length=1)]
MOST_ACCEPTED = 1000
Segment = tuple[Name, Positive]
# The fields of a request that are meant for a connector, with their defaults.
TO_CONNECTOR = {
    "external_tokens": 0,
    "load_steps": 0,
    "load_fails_at": None,
    "load_deferrals": 0,
    "send_steps": None,
    "send_aborted": False,
}
# Fields of optional features, with their defaults; a target without the feature never sees them.
OF_FEATURES = {
    **TO_CONNECTOR,
    **{"cache_salt": None, "lora": None},
    **{"grammar_steps": 0, "grammar_fails": False, "grammar_begins": 0, "grammar_ends": None},
    "grammar_drafts": (),
    **{"turns": (), "tool_steps": 0},
}
# An operator's actions on the whole scheduler, under the names that vLLM's engine uses.
Control = Literal[
    "reset_prefix_cache",
    "reset_running_requests",
    "pause_new",
    "pause_all",
    "resume",
    "sleep",
    "wake_up",
]
CONTROLS: tuple[str, ...] = get_args(Control)


class Turn(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """A further input of a session. The reference page on formats describes each field."""

    prompt: Annotated[tuple[Segment, ...], msgspec.Meta(min_length=1)]
    max_tokens: Positive
    output_len: Positive | None = None
    delay: StepNumber | None = 0
    grammar_ends: Positive | None = None

    @property
    def prompt_len(self) -> int:
        return sum(length for _, length in self.prompt)

    @property
    def tokens_to_emit(self) -> int:
        return self.max_tokens if self.output_len is None else self.output_len


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A client's request. The reference page on formats describes each field. Lengths are in
    tokens; `arrival` and `abort_at` are steps, from 0.
    """

    id: Name
    arrival: StepNumber
    prompt: Annotated[tuple[Segment, ...], msgspec.Meta(min_length=1)]
    max_tokens: Positive
    output_len: Positive | None = None
    abort_at: StepNumber | None = None
    abort_inside: bool = False
    priority: int = 0
    accepted: Annotated[tuple[Count, ...], msgspec.Meta(max_length=MOST_ACCEPTED)] = ()
    external_tokens: Count = 0
    load_steps: StepNumber = 0
    load_fails_at: Count | None = None
    load_deferrals: StepNumber = 0
    send_steps: StepNumber | None = None
    send_aborted: bool = False
    encoder_inputs: tuple[Count, ...] = ()
    cache_salt: Name | None = None
    lora: Name | None = None
    grammar_steps: StepNumber = 0
    grammar_fails: bool = False
    grammar_begins: Count = 0
    grammar_ends: Positive | None = None
    grammar_drafts: Annotated[tuple[Count, ...], msgspec.Meta(max_length=MOST_ACCEPTED)] = ()
    turns: tuple[Turn, ...] = ()
    tool_steps: StepNumber = 0
    sent_as: Name | None = None

    @property
    def prompt_len(self) -> int:
        return sum(length for _, length in self.prompt)

    @property
    def has_grammar(self) -> bool:
        limited = self.grammar_ends is not None or bool(self.grammar_drafts or self.grammar_begins)
        return limited or self.grammar_fails or self.grammar_steps > 0

    @property
    def segment_starts(self) -> list[int]:
        """Return the position at which each segment of the prompt starts, and the prompt's end."""
        return [*accumulate([length for _, length in self.prompt], initial=0)]

    @property
    def tokens_to_emit(self) -> int:
        """Return the number of tokens that the request generates unless it is aborted."""
        return self.max_tokens if self.output_len is None else self.output_len

    @property
    def whole(self) -> tuple[int, int]:
        """Return the number of tokens before the last turn's output, and the last turn's
        max_tokens. For a request with a single turn, these are the length of its prompt and its own
        max_tokens."""
        if not self.turns:
            return self.prompt_len, self.max_tokens
        inputs = sum(turn.prompt_len for turn in self.turns)
        outputs = sum(turn.max_tokens for turn in self.turns[:-1])
        return self.prompt_len + self.max_tokens + inputs + outputs, self.turns[-1].max_tokens

    def for_target(self) -> dict[str, Any]:
        options: dict[str, Any] = {
            "id": self.id,
            "prompt": [list(segment) for segment in self.prompt],
            "max_tokens": self.max_tokens,
            "output_len": self.tokens_to_emit,
            "priority": self.priority,
        }
        if self.accepted:  # a target without speculation never sees the field
            options["accepted"] = list(self.accepted)
        if self.external_tokens:  # a target without a connector never sees the field
            options |= {"external_tokens": self.external_tokens, "load_steps": self.load_steps}
        if self.encoder_inputs:
            options["encoder_inputs"] = list(self.encoder_inputs)
        for key, nothing in OF_FEATURES.items():
            if getattr(self, key) != nothing:
                options[key] = msgspec.to_builtins(getattr(self, key))
        return options

    def without_connector(self) -> "Request":
        return msgspec.structs.replace(self, **TO_CONNECTOR)


class Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A control event: an operator's action before a step's decision, after the step's arrivals and
    aborts."""

    step: StepNumber
    kind: Control


class Expectation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The expected outcome of a replay.

    Attributes:
        holds: whether every observable rule must hold.
        violates: the rules that the first step that breaks any rule must break.
        steps: fields of steps that must occur.
    """

    holds: bool | None = None
    violates: tuple[Name, ...] | None = None
    steps: tuple[dict[str, Any], ...] | None = None


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A configuration with every key of its system, and a sequence of requests."""

    format: Literal["schedproof/scenario@1"] = FORMAT
    name: str = ""
    system: Name
    revision: Name | None = None
    config: dict[str, Any] = {}
    requests: Annotated[tuple[Request, ...], msgspec.Meta(min_length=1)]
    events: tuple[Event, ...] = ()
    expect: Expectation | None = None
    origin: dict[str, Any] | None = None

    @property
    def request_ids(self) -> list[str]:
        return [request.id for request in self.requests]


def check_requests(requests: tuple[Request, ...]) -> None:
    """Check the constraints that the types cannot express.

    Raise InputError if an id is given twice, `output_len` exceeds `max_tokens`, `abort_inside` is
    set without a step to abort in, or encoder inputs contradict the prompts.
    """
    seen: dict[str, int] = {}
    _check_encoder_inputs(requests)
    for index, request in enumerate(requests):
        path = f"$.requests[{index}]"
        if request.id in seen:
            first = seen[request.id]
            raise InputError(f"{path}.id", f"{request.id!r} is already the id of requests[{first}]")
        seen[request.id] = index
        if request.tokens_to_emit > request.max_tokens:
            raise InputError(
                f"{path}.output_len",
                f"{request.output_len} is more than max_tokens ({request.max_tokens}); "
                f"valid: 1 to {request.max_tokens}",
            )
        for number, turn in enumerate(request.turns):
            if turn.tokens_to_emit > turn.max_tokens:
                raise InputError(
                    f"{path}.turns[{number}].output_len",
                    f"{turn.output_len} is more than max_tokens ({turn.max_tokens}); "
                    f"valid: 1 to {turn.max_tokens}",
                )
        if request.abort_inside and request.abort_at is None:
            raise InputError(
                f"{path}.abort_inside",
                "true without abort_at; valid: add abort_at, the step in which to abort",
            )


def _check_encoder_inputs(requests: tuple[Request, ...]) -> None:
    """Raise InputError unless, for every encoder input, all segments with its name are encoder
    inputs of the same length. This is necessary because outputs are cached by name."""
    lengths: dict[str, tuple[int, str]] = {}
    for index, request in enumerate(requests):
        path = f"$.requests[{index}].encoder_inputs"
        for place, number in enumerate(request.encoder_inputs):
            if number >= len(request.prompt) or number in request.encoder_inputs[:place]:
                last = len(request.prompt) - 1
                raise InputError(
                    f"{path}[{place}]",
                    f"{number} is not a segment of the prompt, or is given twice; "
                    f"valid: 0 to {last}, each at most once",
                )
            name, length = request.prompt[number]
            lengths.setdefault(name, (length, request.id))
    if not lengths:
        return
    for index, request in enumerate(requests):
        for number, (name, length) in enumerate(request.prompt):
            if name not in lengths:
                continue
            known, first = lengths[name]
            if number not in request.encoder_inputs or length != known:
                raise InputError(
                    f"$.requests[{index}].prompt[{number}]",
                    f"{name!r} is an encoder input of {known} tokens in request {first!r}, but not "
                    "here; use the same kind and length everywhere, or another name",
                )
