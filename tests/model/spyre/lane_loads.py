"""Loads for lanes, and what the reference model does with them."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from schedproof.model.scenario import Request
from schedproof.model.spyre.lanes import END, KIND, REVISIONS, SHOWN, STEP, Array, LaneResult, Lanes
from schedproof.model.spyre.model import admitting_by, make_model
from schedproof.model.spyre.volumetric import FORMULAS

KINDS = ("over", "prefill", "decode", "idle")
LONGEST = 600  # steps: a formula may refuse for ever who is alone


def settings(seed: int) -> tuple[str, str | None, dict[str, Any]]:
    """A revision, a formula or None for its own, and a configuration with small numbers."""
    draw = random.Random(seed)
    block = draw.choice((1, 2, 4, 8, 64))
    length = block * draw.choice((4, 8, 12)) - draw.choice((0, 0, block - 1))
    config = {
        "block_size": block,
        "chunk_size": block * draw.choice((1, 2, 3)),
        "max_num_seqs": draw.randint(1, 5),
        "max_model_len": length,
        "max_batch_tkv": draw.randint(length, 4 * length),
        "interleave": draw.random() < 0.7,
    }
    formula = draw.choice((None, *FORMULAS))
    slack = f"+{draw.randint(1, 9)}" if formula and draw.random() < 0.2 else ""
    return draw.choice(list(REVISIONS)), formula and formula + slack, config


def load(draw: random.Random, config: Mapping[str, Any]) -> list[Request]:
    """One to six requests that the door lets in; some stop early, some come late."""
    requests = []
    for number in range(draw.randint(1, 6)):
        longest = min(config["max_model_len"], config["max_batch_tkv"])
        prompt = draw.randint(1, longest)
        if draw.random() < 0.5:
            prompt = min(prompt, draw.randint(1, 2 * config["chunk_size"]))
        tokens = draw.randint(1, longest - prompt + 1)
        name = f"r{number}"
        requests.append(
            Request(
                id=name,
                arrival=draw.choice((0, 0, 0, draw.randint(0, 40))),
                prompt=((name, prompt),),
                max_tokens=tokens,
                output_len=draw.choice((None, draw.randint(1, tokens))),
            )
        )
    return requests


def reference(
    revision: str, formula: str | None, config: Mapping[str, Any], requests: Sequence[Request]
) -> Iterator[dict[str, Any]]:
    """The model's steps until everything has finished, LONGEST at most."""
    model = make_model(revision, config)
    if formula is not None:
        admits = admitting_by(model.revision, formula)
        assert admits is not None
        model = replace(model, revision=admits)
    state, unfinished = model.initial(), {request.id for request in requests}
    for number in range(LONGEST):
        for request in requests:
            if request.arrival == number:
                state = model.arrive(state, request)
        state, seen = model.step(state)
        unfinished -= set(seen["finished"])
        yield seen
        if not unfinished:
            break


def shown(lanes: Lanes, before: Array, place: int, requests: Sequence[Request]) -> dict[str, Any]:
    """The fields of the step observation that a lane has; requests that run by name, in no
    order."""
    order = sorted(requests, key=lambda sequence: sequence.arrival)
    now = dict(zip(order, lanes.computed[:, place].tolist(), strict=False))
    was = dict(zip(order, before[:, place].tolist(), strict=False))
    end = dict(zip(order, lanes.requested[END, :, place].tolist(), strict=False))
    step = lanes.lane[STEP, place]
    ended = {
        request: now[request] == end[request] and now[request] >= request.prompt_len
        for request in order
    }
    scheduled = {
        sequence.id: now[sequence] - was[sequence]
        for sequence in order
        if now[sequence] > was[sequence]
    }
    running = {
        sequence.id: now[sequence] for sequence in order if now[sequence] and not ended[sequence]
    }
    return {
        "kind": KINDS[lanes.lane[KIND, place]],
        "tkv": int(lanes.lane[SHOWN, place]) or None,
        "scheduled": scheduled,
        "emitted": {
            sequence.id: 1
            for sequence in order
            if sequence.id in scheduled and now[sequence] >= sequence.prompt_len
        },
        "finished": {
            sequence.id: "length" if sequence.tokens_to_emit == sequence.max_tokens else "eos"
            for sequence in order
            if ended[sequence] and sequence.id in scheduled
        },
        "waiting": [
            sequence.id for sequence in order if not now[sequence] and sequence.arrival < step
        ],
        "prefilling": [
            sequence.id for sequence in order if 0 < now[sequence] < sequence.prompt_len
        ],
        "computed": running,
        "running": sorted(running),
    }


def loads_of(seed: int, config: dict[str, Any]) -> list[list[Request]]:
    draw = random.Random(seed)
    return [load(draw, config) for _ in range(4)]


def same(first: LaneResult, other: LaneResult) -> bool:
    return all(np.array_equal(mine, its) for mine, its in zip(first, other, strict=True))
