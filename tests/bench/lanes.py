"""Lanes beside the reference model: steps a second on the same loads, one core.

    python tests/bench/lanes.py                    # 2 to 64 requests, NumPy and Numba
    python tests/bench/lanes.py --requests 8 --no-numba --json FILE

Spyre 2.1.2 without a prefix cache; every load runs to its end, prefills, joins and leavings
included. The model's steps include the observation, which lanes do not make. A rate is in steps a
second of processor time, the best of several samples. With strides, decode steps without an event
are taken together: more steps, the same work. What Numba takes to compile is told apart.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from schedproof.model.lanes.compiled import compiled
from schedproof.model.lanes.lanes import Array, asked_by, read_rules, run
from schedproof.model.scenario import Request
from schedproof.model.spyre.model import make_model

REQUESTS = (2, 4, 8, 16, 32, 64)
LANES = {False: 2048, True: 4096}  # by whether Numba runs them
SAMPLES = 3


def config_of(requests: int) -> dict[str, Any]:
    """Seats for everyone, and a limit that makes some wait."""
    return {"max_num_seqs": requests, "max_model_len": 2048, "max_batch_tkv": 1024 * requests}


def loads(requests: int, lanes: int) -> list[list[Request]]:
    """Prompts of a few blocks, some hundred tokens each, arriving within some hundred steps."""
    draw = np.random.default_rng(0)
    return [
        [
            Request(
                id=f"r{number}",
                arrival=int(draw.integers(0, 200)),
                prompt=((f"r{number}", int(draw.integers(1, 512))),),
                max_tokens=int(draw.integers(200, 800)),
            )
            for number in range(requests)
        ]
        for _ in range(lanes)
    ]


def model_rate(requests: int, runs: int = 2) -> float:
    """Steps a second of the reference model on the first loads."""
    model, steps, spent = make_model("2.1.2", config_of(requests)), 0, 0.0
    for load in loads(requests, runs):
        state, unfinished, number = model.initial(), requests, 0
        began = time.process_time()
        while unfinished:
            for one in load:
                if one.arrival == number:
                    state = model.arrive(state, one)
            state, seen = model.step(state)
            unfinished -= len(seen["finished"])
            number += 1
        spent += time.process_time() - began
        steps += number
    return steps / spent


def lanes_rate(requests: int, asked: Array, strides: bool, numba: bool) -> float:
    """Steps of all lanes a second; every lane to its end."""
    rules = read_rules("2.1.2", config_of(requests))
    began = time.process_time()
    told = run(rules, asked, strides=strides, numba=numba)
    return float(told.steps.sum()) / (time.process_time() - began)


def best(measure: Callable[[], float], samples: int) -> float:
    """The best of several samples: other work on the machine only makes one slower."""
    return max(measure() for _ in range(samples))


def compile_seconds() -> float | None:
    """What Numba takes before the first lane runs; None where it is not installed."""
    if compiled() is None:
        return None
    began = time.process_time()
    rules = read_rules("2.1.2", config_of(2))
    run(rules, asked_by(rules, loads(2, 1)), numba=True)
    return time.process_time() - began


def measure(requests: int, with_numba: bool, samples: int) -> dict[str, Any]:
    """A row of the table: the model's rate, and that of the lanes by engine and stride."""
    rules = read_rules("2.1.2", config_of(requests))
    row: dict[str, Any] = {"requests": requests}
    row["model"] = best(partial(model_rate, requests), samples)
    for numba in (False, True) if with_numba else (False,):
        asked = asked_by(rules, loads(requests, LANES[numba] * 2 // max(requests, 2)))
        asked = np.tile(asked, max(requests, 2) // 2)
        for strides in (False, True):
            name = f"{'numba' if numba else 'numpy'}{', strides' * strides}"
            rate = partial(lanes_rate, requests, asked, strides, numba)
            row[name] = best(rate, samples)
    return row


def line(row: dict[str, Any]) -> str:
    """The row in words: millions of steps a second, and times the model's rate."""
    rates = [
        f"{name} {rate / 1e6:.2f} M ({rate / row['model']:.0f}x)"
        for name, rate in row.items()
        if name not in ("requests", "model")
    ]
    return f"{row['requests']:3} requests: model {row['model']:9,.0f};  {';  '.join(rates)}"


def main() -> None:
    """Measure, and print a line for each number of requests."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--requests", type=int, action="append", metavar="N", help="1 to 1000")
    parser.add_argument("--no-numba", action="store_true", help="NumPy only")
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures, too")
    given = parser.parse_args()
    if given.samples < 1 or any(not 1 <= number <= 1000 for number in given.requests or ()):
        parser.error("--samples is at least 1, --requests 1 to 1000")
    compiling = None if given.no_numba else compile_seconds()
    if compiling is not None:
        print(f"Numba compiled in {compiling:.1f} s")
    elif not given.no_numba:
        print("Numba is not installed: NumPy only")
    rows = []
    for requests in given.requests or REQUESTS:
        rows.append(measure(requests, compiling is not None, given.samples))
        print(line(rows[-1]), flush=True)
    if given.json is not None:
        written = {"unit": "steps/s", "compile_seconds": compiling, "rows": rows}
        given.json.write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
