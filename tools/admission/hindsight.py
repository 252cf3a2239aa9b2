"""The best result that any order of admission can give, in hindsight. The loads are small enough to
try every order.

All requests have arrived before step 0. In each prefill step, one request joins, with its whole
prompt in one chunk. While any request decodes, each prefill step is followed by a decode step. A
schedule assigns to each request the decode step before which it joins; no request is paused. The
search covers every schedule that keeps batch x tkv within the limit. States that it reaches again
are visited only once.
"""

import random
from functools import cache
from typing import Literal, NamedTuple

from schedproof.model.pool import blocks_for
from schedproof.model.scenario import Request
from schedproof.model.spyre.config import SpyreConfig
from schedproof.model.spyre.documented import max_tkv
from schedproof.model.spyre.model import SpyreModel, admitting_by
from schedproof.model.spyre.sound import SOUND

# Every prompt is one chunk, and two of the longest requests fit into a batch.
SMALL = SpyreConfig(block_size=2, chunk_size=4, max_num_seqs=8, max_model_len=12, max_batch_tkv=24)
Counted = Literal["steps", "waits"]
Lengths = tuple[int, int]  # prompt and max_tokens


class Cost(NamedTuple):
    """The number of steps until all requests have finished, and the sum of the steps until each
    of them finishes."""

    steps: int
    waits: int


def drawn(count: int, chance: random.Random) -> list[Lengths]:
    """Draw requests that are accepted on arrival, each with at least one decode step."""
    sizes = [
        (prompt, tokens)
        for prompt in range(1, SMALL.chunk_size + 1)
        for tokens in range(2, SMALL.max_model_len)
        if blocks_for(prompt, SMALL.block_size) * SMALL.block_size + tokens <= SMALL.max_model_len
    ]
    return [chance.choice(sizes) for _ in range(count)]


def admitted(requests: list[Lengths], check: str) -> Cost:
    """Run the model on the requests in this order, with this volumetric check. Return the cost."""
    revision = admitting_by(SOUND, check)
    assert revision is not None, check
    model = SpyreModel(SMALL, revision)
    state = model.initial()
    for number, (prompt, tokens) in enumerate(requests):
        name = f"r{number}"
        request = Request(id=name, arrival=0, prompt=((name, prompt),), max_tokens=tokens)
        state = model.arrive(state, request)
    steps = waits = 0
    while state.waiting or state.running:
        waits += len(state.waiting) + len(state.running)
        steps += 1
        state, step = model.step(state)
        assert step["kind"] != "idle"
    return Cost(steps, waits)


def best(requests: list[Lengths], counted: Counted, *, in_order: bool) -> int:
    """Return the lowest cost of any schedule within the limit. With `in_order`, only schedules
    that admit the requests in the given order count."""
    never = 10**9

    @cache
    def cost(waiting: tuple[Lengths, ...], decoding: tuple[Lengths, ...], may_prefill: bool) -> int:
        """Return the lowest cost from this state on. Each entry of `decoding` is (tokens
        computed, decode steps left)."""
        if not waiting and not decoding:
            return 0
        here = 1 if counted == "steps" else len(waiting) + len(decoding)
        cheapest = never
        if decoding:
            lengths = [tokens + 1 for tokens, _ in decoding]
            if len(lengths) * max_tkv(lengths, SMALL.block_size) > SMALL.max_batch_tkv:
                return never  # the decode step must come, whether or not another request joins
            remaining = tuple((tokens + 1, ends - 1) for tokens, ends in decoding if ends > 1)
            cheapest = here + cost(waiting, remaining, True)
        if may_prefill or not decoding:
            for chosen in waiting[:1] if in_order else sorted(set(waiting)):
                rest = list(waiting)
                rest.remove(chosen)
                prompt, tokens = chosen
                joined = tuple(sorted((*decoding, (prompt, tokens - 1))))
                cheapest = min(cheapest, here + cost(tuple(rest), joined, False))
        return cheapest

    return cost(tuple(requests if in_order else sorted(requests)), (), True)
