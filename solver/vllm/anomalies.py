"""Knobs that do the contrary of what they are for (V1CP-R32).

The chapter on chunked prefill says what to do about preemption: raise the watermark, lower
max_num_seqs, lower max_num_batched_tokens. Each of them makes some requests wait, and so brings
others together in time that did not meet before. `anomaly` searches for the smallest such case.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple, get_args

from ...model.scenario import Request, Scenario
from ...model.systems import full_config
from ...model.vllm.config import VllmConfig, read_config
from ...model.vllm.model import VllmModel
from ..smt.obligation import ScenarioPair

Knob = Literal["max_num_seqs", "max_num_batched_tokens", "watermark"]
KNOBS: tuple[Knob, ...] = get_args(Knob)
REVISION = "documented"
MAX_TOKENS, MAX_REQUESTS = 10, 3  # of all prompts and answers together


class Lengths(NamedTuple):
    """Lengths of a request, in tokens."""

    prompt: int
    max_tokens: int


def anomaly(knob: Knob) -> ScenarioPair | None:
    """The first case, by the tokens that all requests have together, then by requests and blocks,
    in which turning `knob` the way that should help leads to more preemptions; None if there is
    none of up to MAX_REQUESTS requests and MAX_TOKENS tokens.

    All come at once, blocks have one token, nothing is cached.
    """
    for tokens in range(2, MAX_TOKENS + 1):
        for count in range(1, MAX_REQUESTS + 1):
            for asked in shares(tokens, count):
                for blocks in scarce(asked):
                    found = backfires(knob, asked, blocks)
                    if found is not None:
                        return found
    return None


def shares(tokens: int, requests: int) -> Iterator[tuple[Lengths, ...]]:
    """Every way to give so many tokens to so many requests, each a prompt and an answer."""
    if requests == 0:
        if tokens == 0:
            yield ()
        return
    for own in range(2, tokens - 2 * (requests - 1) + 1):
        for prompt in range(1, own):
            for rest in shares(tokens - own, requests - 1):
                yield (Lengths(prompt, own - prompt), *rest)


def scarce(asked: Sequence[Lengths]) -> range:
    """Pools that hold each of the requests, and not all of them together."""
    needs = [request.prompt + request.max_tokens - 1 for request in asked]
    return range(max(needs), sum(needs))


def backfires(knob: Knob, asked: Sequence[Lengths], blocks: int) -> ScenarioPair | None:
    """Two neighbouring values of the knob, the second of which should lead to fewer preemptions
    and leads to more."""
    settings = [with_knob(knob, value, asked, blocks) for value in values(knob, asked, blocks)]
    counts = [preemptions(config, asked) for config in settings]
    for place, (before, after) in enumerate(pairwise(counts)):
        if after > before:
            few, more = (scenario(settings[number], asked) for number in (place, place + 1))
            return ScenarioPair(few, more)
    return None


def values(knob: Knob, asked: Sequence[Lengths], blocks: int) -> Sequence[int]:
    """What the knob is turned to, from the value that does nothing on: in slots, tokens, blocks."""
    if knob == "max_num_seqs":
        return range(len(asked), 0, -1)
    if knob == "max_num_batched_tokens":
        return range(total(asked), len(asked) - 1, -1)
    return range(blocks)


def with_knob(knob: Knob, value: int, asked: Sequence[Lengths], blocks: int) -> VllmConfig:
    """The configuration in which nothing but the pool, and this knob, binds."""
    config: dict[str, Any] = {
        "block_size": 1,
        "num_blocks": blocks,
        "max_num_seqs": len(asked),
        "max_num_batched_tokens": total(asked),
        "max_model_len": total(asked),
        "enable_prefix_caching": False,
        knob: share(value, blocks) if knob == "watermark" else value,
    }
    return read_config(config, REVISION)


def share(reserve: int, blocks: int) -> float:
    """Return the fraction of the pool that keeps `reserve` blocks free; half a block is added so
    that it does not matter whether the block that is never allocated counts."""
    return round((reserve + 0.5) / (blocks + 1), 4) if reserve else 0.0


def total(asked: Sequence[Lengths]) -> int:
    return sum(request.prompt + request.max_tokens for request in asked)


def preemptions(config: VllmConfig, asked: Sequence[Lengths]) -> int:
    """How often a request is preempted until all have ended."""
    model, count = VllmModel(config), 0
    state = model.initial()
    for request in requests(asked):
        state = model.arrive(state, request)
    while state.waiting or state.running:
        state, seen = model.step(state)
        count += len(seen["preempted"])
    return count


def requests(asked: Sequence[Lengths]) -> tuple[Request, ...]:
    return tuple(
        Request(id=name, arrival=0, prompt=((name, request.prompt),), max_tokens=request.max_tokens)
        for name, request in ((f"r{number}", request) for number, request in enumerate(asked))
    )


def scenario(config: VllmConfig, asked: Sequence[Lengths]) -> Scenario:
    given = {name: getattr(config, name) for name in config.__struct_fields__}
    return Scenario(
        system="vllm",
        revision=REVISION,
        config=full_config("vllm", REVISION, given),
        requests=requests(asked),
        origin={"engine": "search", "note": "a knob against preemption backfires", "seed": None},
    )
