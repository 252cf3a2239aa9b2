"""Run thousands of random loads near the limit in parallel, for the rules that `model.spyre.lanes`
can judge.

Each lane is one load. A load that breaks a rule is a scenario like any other, and can be replayed.
This module needs NumPy.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ...model.scenario import Request, Scenario
from ...model.spyre.lanes import (
    ARRIVAL,
    END,
    MAX_TOKENS,
    PROMPT,
    REQUEST_ROWS,
    Array,
    LaneResult,
    Rules,
)
from ...model.systems import full_config

SLOTS = (2, 8)
BLOCK_SIZES = (2, 4, 8, 64)
PUBLISHED_BLOCK_SIZES = (64,)
LATE = (0, 8, 60)  # steps


def draw_config(draw: Generator, block_sizes: Sequence[int] = BLOCK_SIZES) -> dict[str, Any]:
    """Draw a configuration with a limit just above a multiple of some length. The limit is reached
    before other constraints."""
    block = int(draw.choice(block_sizes))
    blocks = int(draw.choice((8, 12, 16)))
    slots = int(draw.integers(*SLOTS, endpoint=True))
    batch = int(draw.integers(2, min(4, slots), endpoint=True))
    row = int(draw.integers(-(-blocks // batch), blocks, endpoint=True))
    slack = int(draw.integers(0, batch * block // 16, endpoint=True))
    return {
        "block_size": block,
        "chunk_size": block * int(draw.choice((1, 2, 3, 4))),
        "max_num_seqs": slots,
        "max_model_len": block * blocks - int(draw.choice((0, 0, 0, block - 1))),
        "max_batch_tkv": max(batch * row * block + slack, blocks * block),
        "interleave": bool(draw.random() < 0.75),
    }


def draw_loads(draw: Generator, rules: Rules, requests: int, lanes: int) -> Array:
    """Draw two to `requests` requests for each lane, as an array of shape (4, requests, lanes).

    Kinds of requests: short prompts with long outputs, prompts at block and chunk boundaries, short
    requests, and requests that, together with the first arrivals, reach the limit with their last
    token.
    """
    shape = (requests, lanes)
    block, length, limit = rules.block_size, rules.max_model_len, rules.max_batch_tkv
    late = draw.choice((*LATE, length), lanes)
    arrival = np.sort(draw.integers(0, late, shape, endpoint=True), axis=0)
    old, border, aimed = (draw.integers(0, 4, shape) == kind for kind in range(3))
    unit = draw.choice((block, rules.chunk_size), shape)
    at_border = draw.integers(0, np.maximum(length // unit, 1)) * unit + draw.integers(-1, 3, shape)
    offset = draw.choice((1, 2, max(block // 2, 1), block), shape)
    to_aim = draw.integers(0, np.maximum(length // block - 1, 1), shape) * block + offset
    prompt = draw.integers(1, 2 * block, shape, endpoint=True)
    prompt = np.select((border, aimed), (at_border, to_aim), prompt).clip(1, length - block)
    # A short request, a long one, or one that ends at the length with which this many rows fill the
    # limit.
    row = limit // draw.integers(2, max(min(rules.max_num_seqs, requests), 2), shape, endpoint=True)
    ends = draw.choice((-1, 0, 0, 1), shape) + np.where(
        draw.random(shape) < 0.5, row // block * block, np.minimum(row, length)
    )
    reached = np.maximum(prompt[0] + arrival, prompt)
    until_row = ends - (reached // block * block + prompt % block) + 1
    tokens = draw.integers(1, 2 * block, shape, endpoint=True)
    long = length - draw.integers(0, length // 2, shape, endpoint=True)
    tokens = np.select((old, aimed), (long, until_row), tokens)
    room = np.minimum(length - -(-prompt // block) * block, limit - prompt + 1)
    tokens = tokens.clip(1, np.maximum(room, 1))
    early = draw.random(shape) < 0.2
    output = np.where(early, draw.integers(1, tokens, endpoint=True), tokens)
    requested = np.zeros((REQUEST_ROWS, *shape), np.int64)
    requested[PROMPT], requested[MAX_TOKENS], requested[ARRIVAL] = prompt, tokens, arrival
    requested[END] = prompt + output - 1
    present = np.arange(requests)[:, None] < draw.integers(2, requests, lanes, endpoint=True)
    return requested * present


def caught(rule: str, rules: Rules, result: LaneResult) -> NDArray[np.bool_]:
    broken: NDArray[np.bool_] = (
        result.peak > rules.max_batch_tkv if rule == "SPY-R07" else result.idle > 0
    )
    return broken


def smallest(requested: Array, hits: NDArray[np.bool_]) -> int:
    """Return the lane among `hits` with the fewest requests, and then the fewest tokens."""
    places = np.flatnonzero(hits)
    requests = np.count_nonzero(requested[PROMPT][:, places], axis=0)
    tokens = requested[PROMPT][:, places].sum(axis=0) + requested[MAX_TOKENS][:, places].sum(axis=0)
    return int(places[np.lexsort((tokens, requests))[0]])


def scenario_of(requested: Array, place: int, revision: str, config: dict[str, Any]) -> Scenario:
    numbers = [number for number in range(requested.shape[1]) if requested[PROMPT, number, place]]
    return Scenario(
        system="spyre",
        revision=revision,
        config=full_config("spyre", revision, config),
        requests=tuple(
            _request(requested[:, number, place].tolist(), number) for number in numbers
        ),
    )


def _request(row: list[int], number: int) -> Request:
    name, output = f"r{number}", row[END] - row[PROMPT] + 1
    return Request(
        id=name,
        arrival=row[ARRIVAL],
        prompt=((name, row[PROMPT]),),
        max_tokens=row[MAX_TOKENS],
        output_len=None if output == row[MAX_TOKENS] else output,
    )
