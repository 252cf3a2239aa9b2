"""Search for settings that have the opposite of their intended effect (V1CP-R32).

The chapter on chunked prefill recommends three remedies for preemption: raise the watermark, lower
max_num_seqs, or lower max_num_batched_tokens. Each remedy makes some requests wait. So it may bring
together requests that did not run at the same time before. `anomaly` searches for the smallest case
in which a remedy backfires.
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
MAX_TOKENS, MAX_REQUESTS = 10, 3  # the total number of tokens in all prompts and answers


class Lengths(NamedTuple):
    """The lengths of a request, in tokens."""

    prompt: int
    max_tokens: int


def anomaly(knob: Knob) -> ScenarioPair | None:
    """Return the smallest case in which turning `knob` leads to more preemptions instead of fewer.

    Cases are ordered by the total number of tokens, then by the number of requests, then by the
    number of blocks. Return None if there is no case with up to MAX_REQUESTS requests and
    MAX_TOKENS tokens. All requests arrive at once, a block holds one token, and nothing is cached.
    """
    for tokens in range(2, MAX_TOKENS + 1):
        for count in range(1, MAX_REQUESTS + 1):
            for requests in shares(tokens, count):
                for blocks in scarce(requests):
                    pair = backfires(knob, requests, blocks)
                    if pair is not None:
                        return pair
    return None


def shares(tokens: int, requests: int) -> Iterator[tuple[Lengths, ...]]:
    """Yield every way to divide `tokens` into prompts and answers of the requests."""
    if requests == 0:
        if tokens == 0:
            yield ()
        return
    for own in range(2, tokens - 2 * (requests - 1) + 1):
        for prompt in range(1, own):
            for rest in shares(tokens - own, requests - 1):
                yield (Lengths(prompt, own - prompt), *rest)


def scarce(lengths: Sequence[Lengths]) -> range:
    """Return the pool sizes that suffice for each request alone, but not for all of them
    together."""
    needs = [request.prompt + request.max_tokens - 1 for request in lengths]
    return range(max(needs), sum(needs))


def backfires(knob: Knob, lengths: Sequence[Lengths], blocks: int) -> ScenarioPair | None:
    """Return two runs at neighbouring values of the knob, if the second run has more preemptions
    although it should have fewer. Return None if there are no such runs."""
    settings = [with_knob(knob, value, lengths, blocks) for value in values(knob, lengths, blocks)]
    counts = [preemptions(config, lengths) for config in settings]
    for place, (before, after) in enumerate(pairwise(counts)):
        if after > before:
            few, more = (scenario(settings[number], lengths) for number in (place, place + 1))
            return ScenarioPair(few, more)
    return None


def values(knob: Knob, lengths: Sequence[Lengths], blocks: int) -> Sequence[int]:
    """Return the values of the knob, in slots, tokens or blocks. The first value has no effect."""
    if knob == "max_num_seqs":
        return range(len(lengths), 0, -1)
    if knob == "max_num_batched_tokens":
        return range(total(lengths), len(lengths) - 1, -1)
    return range(blocks)


def with_knob(knob: Knob, value: int, lengths: Sequence[Lengths], blocks: int) -> VllmConfig:
    """Return a configuration in which only the pool and this knob have an effect."""
    config: dict[str, Any] = {
        "block_size": 1,
        "num_blocks": blocks,
        "max_num_seqs": len(lengths),
        "max_num_batched_tokens": total(lengths),
        "max_model_len": total(lengths),
        "enable_prefix_caching": False,
        knob: share(value, blocks) if knob == "watermark" else value,
    }
    return read_config(config, REVISION)


def share(reserve: int, blocks: int) -> float:
    """Return a watermark, as a fraction of the pool, that keeps `reserve` blocks free. The fraction
    is half a block larger than necessary. It therefore does not matter whether the null block,
    which is never handed out, counts."""
    return round((reserve + 0.5) / (blocks + 1), 4) if reserve else 0.0


def total(lengths: Sequence[Lengths]) -> int:
    return sum(request.prompt + request.max_tokens for request in lengths)


def preemptions(config: VllmConfig, lengths: Sequence[Lengths]) -> int:
    model, count = VllmModel(config), 0
    state = model.initial()
    for request in requests(lengths):
        state = model.arrive(state, request)
    while state.waiting or state.running:
        state, seen = model.step(state)
        count += len(seen["preempted"])
    return count


def requests(lengths: Sequence[Lengths]) -> tuple[Request, ...]:
    return tuple(
        Request(id=name, arrival=0, prompt=((name, request.prompt),), max_tokens=request.max_tokens)
        for name, request in ((f"r{number}", request) for number, request in enumerate(lengths))
    )


def scenario(config: VllmConfig, lengths: Sequence[Lengths]) -> Scenario:
    given = {name: getattr(config, name) for name in config.__struct_fields__}
    return Scenario(
        system="vllm",
        revision=REVISION,
        config=full_config("vllm", REVISION, given),
        requests=requests(lengths),
        origin={"engine": "search", "note": "a knob against preemption backfires", "seed": None},
    )
