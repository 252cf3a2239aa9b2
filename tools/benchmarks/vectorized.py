"""Compare the vectorized model with the reference model: steps per second over all lanes, on the
same loads.

The model is Spyre 2.1.2 without a prefix cache. Every load runs to its end, so that prefills, joins
and departures are included. The reference model produces observations; the lanes do not.
"""

import time
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from schedproof.model.scenario import Request
from schedproof.model.spyre.model import make_model

from .figure import FigurePlan, NotMeasured, Row, in_turns

EXTRA = "fast"
REVISION = "2.1.2"
MODEL_RUNS = 2  # the reference model runs this many of the loads; the lanes run all of them


def rows(quick: bool) -> Iterator[Row]:
    """Yield rows for each number of requests: first the reference model's, then one for each number
    of lanes.

    Raises:
        NotMeasured: NumPy is not installed.
    """
    if find_spec("numpy") is None:
        raise NotMeasured(f"needs schedproof[{EXTRA}]", excused=True)
    for requests in (8,) if quick else (2, 8, 16, 64):
        yield from rates(requests, 256 if quick else 4_096, 1 if quick else 5)


def rates(requests: int, lanes: int, rounds: int) -> Iterator[Row]:
    """Yield the rows for one number of requests per lane. The measurements take turns. Each
    ratio is relative to the reference model."""
    from schedproof.model.spyre.lanes import read_rules, requests_table, run

    config, loads = config_of(requests), loads_of(requests, min(lanes, 256))
    rules = read_rules(REVISION, config)
    # Drawing distinct loads takes long, so each load runs in several lanes.
    table = requests_table(rules, loads * (lanes // len(loads)))

    named: dict[str, Any] = {
        "reference model": lambda: model_steps(config, loads[:MODEL_RUNS]),
        "lanes": lambda: float(run(rules, table).steps.sum()),
    }
    found = in_turns(list(named.values()), rounds, time.process_time)
    for name, rate in zip(named, found, strict=True):
        yield Row(
            what=f"{name}: {requests} requests",
            value=rate,
            unit="steps/s",
            ratio=rate / found[0],
            to="reference model",
            note="" if name == "reference model" else f"{table.shape[2]:,} lanes",
        )


def config_of(requests: int) -> dict[str, Any]:
    """Return a configuration with a slot for every request, and with a limit that makes some
    requests wait."""
    return {"max_num_seqs": requests, "max_model_len": 2_048, "max_batch_tkv": 1_024 * requests}


def loads_of(requests: int, count: int) -> list[list[Request]]:
    """Draw loads of requests that arrive within a few hundred steps, with prompts of a few blocks
    and outputs of a few hundred tokens."""
    import numpy as np

    draw = np.random.default_rng(0)

    def request(number: int) -> Request:
        name = f"r{number}"
        return Request(
            id=name,
            arrival=int(draw.integers(0, 200)),
            prompt=((name, int(draw.integers(1, 512))),),
            max_tokens=int(draw.integers(200, 800)),
        )

    return [[request(number) for number in range(requests)] for _ in range(count)]


def model_steps(config: dict[str, Any], loads: list[list[Request]]) -> float:
    """Run the loads on the reference model, one after the other; return the number of steps."""
    model, steps = make_model(REVISION, config), 0
    for load in loads:
        state, unfinished, number = model.initial(), len(load), 0
        while unfinished:
            for request in load:
                if request.arrival == number:
                    state = model.arrive(state, request)
            state, seen = model.step(state)
            unfinished -= len(seen["finished"])
            number += 1
        steps += number
    return float(steps)


PLAN = FigurePlan(
    "lanes",
    "Lanes compared with the reference model",
    "Spyre 2.1.2, the same loads on both, every load to its end; steps of all lanes per second of "
    "CPU",
    rows,
)
