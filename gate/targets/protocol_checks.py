"""Check the arguments of `start` and `add` for a real release, and compute a scenario's tokens.

Standard library only: this file runs inside the environment of a release under test.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple
from zlib import crc32

from .jsonl import ProtocolError

# A scenario does not store its tokens. It only matters which of them are equal, so they are
# computed. A token has 31 bits, more than the vocabulary of a model needs. With fewer bits, two of
# a thousand streams could begin with the same token by chance, and correct hits in the prefix cache
# would be reported as wrong.
VOCABULARY = 2**31 - 1
EOS = 1
FIRST_TOKEN = 2  # 0 is padding, 1 is EOS


def stream_tokens(stream: str, count: int, start: int = 0) -> list[int]:
    base = crc32(stream.encode())
    span = VOCABULARY - FIRST_TOKEN
    return [FIRST_TOKEN + (base + 2654435761 * i) % span for i in range(start, start + count)]


@dataclass(frozen=True)
class Output:
    """The output of a request.

    `accepted` prescribes which drafts are correct: the first `accepted[n]` drafts of the n-th
    verification. After the last entry, the list starts over. `stream` names the stream of tokens
    and defaults to the request's id.
    """

    id: str
    length: int
    ends_with_eos: bool
    accepted: tuple[int, ...] = ()
    stream: str = ""

    def token(self, index: int) -> int:
        if self.ends_with_eos and index == self.length - 1:
            return EOS
        return stream_tokens(f"out:{self.stream or self.id}", 1, index)[0]


class RefusedError(Exception):
    """Raised if this release does not support the configuration or the request."""


def refuse(key: str, value: object, valid: str) -> RefusedError:
    return RefusedError(f"$.config.{key} is {json.dumps(value, default=repr)}; valid: {valid}")


# --- start ----------------------------------------------------------------------------------


class Kind(NamedTuple):
    """The values that a configuration key may have: a test, and a description for messages."""

    accepts: Callable[[Any], bool]
    valid: str


# compare exact types, because bool is a subclass of int
POSITIVE = Kind(lambda value: type(value) is int and value >= 1, "an integer of at least 1")
COUNT = Kind(lambda value: type(value) is int and value >= 0, "an integer of at least 0")
FLAG = Kind(lambda value: type(value) is bool, "true or false")
SHARE = Kind(
    lambda value: type(value) in (int, float) and 0 <= value < 1,
    "a number of at least 0 and less than 1",
)


def or_null(kind: Kind) -> Kind:
    return Kind(lambda value: value is None or kind.accepts(value), f"{kind.valid}, or null")


def one_of(*words: str) -> Kind:
    return Kind(lambda value: value in words, " or ".join(json.dumps(word) for word in words))


def check_system(system: str, supported: str) -> None:
    if system != supported:
        raise RefusedError(f'$.system is {json.dumps(system)}; valid: "{supported}"')


def check_keys(
    config: Mapping[str, Any], kinds: Mapping[str, Kind], may_miss: Collection[str] = ()
) -> None:
    for key in config:
        if key not in kinds:
            raise RefusedError(f"$.config.{key}: unknown key; valid keys are {', '.join(kinds)}")
    for key, kind in kinds.items():
        if key not in config:
            if key in may_miss:
                continue
            raise RefusedError(f"$.config.{key} is missing; valid: {kind.valid}")
        if not kind.accepts(config[key]):
            raise refuse(key, config[key], kind.valid)


# --- add ------------------------------------------------------------------------------------


# The keys of a request that matter only to a connector, with their defaults.
TO_CONNECTOR = {
    "external_tokens": 0,
    "load_steps": 0,
    "load_fails_at": None,
    "load_deferrals": 0,
    "send_steps": None,
    "send_aborted": False,
}


class EncoderInput(NamedTuple):
    """A part of a prompt that an encoder computes. It begins at the prompt's token `start`."""

    number: int
    stream: str
    start: int
    length: int


class Turn(NamedTuple):
    """A further input of a session.

    Attributes:
        prompt: the tokens of the input.
        delay: the number of steps that the session waits for the input; None if it is sent together
            with the previous turn's input.
        grammar_ends: after how many tokens the grammar of the output ends; None if it has none.
    """

    prompt: list[int]
    max_tokens: int
    output: Output
    delay: int | None
    grammar_ends: int | None = None


class CheckedRequest(NamedTuple):
    """A client's request that has passed the checks. `prompt` contains the tokens themselves."""

    prompt: list[int]
    max_tokens: int
    priority: int
    output: Output
    external_tokens: int = 0
    load_steps: int = 0
    load_fails_at: int | None = None
    load_deferrals: int = 0
    send_steps: int | None = None
    send_aborted: bool = False
    inputs: tuple[EncoderInput, ...] = ()
    cache_salt: str | None = None
    lora: str | None = None
    grammar_steps: int = 0
    grammar_fails: bool = False
    grammar_begins: int = 0
    grammar_ends: int | None = None
    grammar_drafts: tuple[int, ...] = ()
    turns: tuple[Turn, ...] = ()
    tool_steps: int = 0

    @property
    def has_grammar(self) -> bool:
        limited = self.grammar_ends is not None or bool(self.grammar_drafts or self.grammar_begins)
        return limited or self.grammar_fails or self.grammar_steps > 0


def read_request(request: Mapping[str, Any]) -> CheckedRequest:
    try:
        name, max_tokens = request["id"], request["max_tokens"]
        segments = [(stream, length) for stream, length in request["prompt"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(
            f"request {request!r} is not valid ({type(error).__name__}: {error}); valid: "
            '{"id": "r0", "prompt": [["r0", 40]], "max_tokens": 3, "output_len": 3, "priority": 0}'
        ) from error
    output_len = request.get("output_len", max_tokens)
    priority = request.get("priority", 0)
    names = [name, request.get("stream", ""), *(stream for stream, _ in segments)]
    if not all(isinstance(word, str) for word in names):
        raise ProtocolError(f"request {name!r}: the id and the names of streams must be strings")
    accepted = request.get("accepted", [])
    fitting, ends = request.get("grammar_drafts", []), request.get("grammar_ends")
    if not isinstance(accepted, list) or not isinstance(fitting, list):
        key = "grammar_drafts" if isinstance(accepted, list) else "accepted"
        raise ProtocolError(f"request {name!r}: {key} must be a list of numbers")
    loads = {key: request.get(key, nothing) for key, nothing in TO_CONNECTOR.items()}
    waits = {key: request.get(key, 0) for key in ("grammar_steps", "grammar_begins", "tool_steps")}
    numbers = [max_tokens, output_len, priority, *waits.values()]
    numbers += [length for _, length in segments]
    numbers += [
        *(*accepted, *fitting, *(() if ends is None else (ends,))),
        *(tokens for tokens in loads.values() if not (tokens is None or isinstance(tokens, bool))),
    ]
    if not all(type(number) is int for number in numbers):
        raise ProtocolError(
            f"request {name!r}: lengths, token counts and priority must be integers"
        )
    if not 1 <= output_len <= max_tokens:
        raise ProtocolError(
            f"request {name!r}: output_len is {output_len}; valid: 1 to max_tokens = {max_tokens}"
        )
    prompt = [token for stream, length in segments for token in stream_tokens(stream, length)]
    stream = request.get("stream", "")
    output = Output(name, output_len, output_len < max_tokens, tuple(accepted), stream)
    inputs = _encoder_inputs(name, segments, request.get("encoder_inputs", []))
    partition: dict[str, Any] = {key: request.get(key) for key in ("cache_salt", "lora")}
    if not all(value is None or isinstance(value, str) for value in partition.values()):
        raise ProtocolError(f"request {name!r}: cache_salt and lora must be strings")
    fails = bool(request.get("grammar_fails"))
    others = {**loads, **partition, **waits, "grammar_fails": fails}
    others |= {"grammar_ends": ends, "grammar_drafts": tuple(fitting)}
    others["turns"] = _turns(name, stream, request.get("turns", []))
    return CheckedRequest(prompt, max_tokens, priority, output, inputs=inputs, **others)


def _turns(name: str, stream: str, turns: Any) -> tuple[Turn, ...]:
    checked = []
    for turn in turns if isinstance(turns, list) else [turns]:
        delay = turn.get("delay", 0) if isinstance(turn, dict) else turn
        if not isinstance(turn, dict) or not (delay is None or COUNT.accepts(delay)):
            raise ProtocolError(
                f"request {name!r}: turns must be a list like "
                '[{"prompt": [["r0.0", 4]], "max_tokens": 3, "delay": 0}]; delay may be null'
            )
        read = read_request({**turn, "id": name, "stream": stream})
        own = (read.prompt, read.max_tokens, read.output, delay, read.grammar_ends)
        checked.append(Turn(*own))
    return tuple(checked)


def _encoder_inputs(
    name: str, segments: list[tuple[str, int]], numbers: Any
) -> tuple[EncoderInput, ...]:
    last = len(segments) - 1
    if not isinstance(numbers, list) or not all(
        type(number) is int and 0 <= number <= last for number in numbers
    ):
        raise ProtocolError(
            f"request {name!r}: encoder_inputs is {numbers!r}; valid: a list of numbers of "
            f"prompt segments, from 0 to {last}"
        )
    starts = [*accumulate([length for _, length in segments], initial=0)]
    return tuple(
        [EncoderInput(n, segments[n][0], starts[n], segments[n][1]) for n in sorted(numbers)]
    )
