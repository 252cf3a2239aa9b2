"""Loads at Spyre's production scale: the lengths and arrivals of their requests.

Lengths are in tokens, arrivals in steps. A seed gives the same requests on every machine, because
all numbers come from `random.Random.random`.
"""

import math
import random
from collections.abc import Callable, Iterable
from typing import NamedTuple

from schedproof.model.scenario import Request
from schedproof.model.spyre import documented
from schedproof.model.spyre.config import SpyreConfig
from schedproof.model.spyre.documented import chunk_count
from schedproof.model.spyre.volumetric import Decoding, Newcomer

# The defaults: block 64, chunk 512, 32 slots, at most 32,768 tokens, batch x tkv 131,072.
PRODUCTION = SpyreConfig()
LIMIT, CHUNK = PRODUCTION.max_batch_tkv, PRODUCTION.chunk_size
# (arrival, prompt, max_tokens)
ShapedRequest = tuple[int, int, int]


class Load(NamedTuple):
    """Requests in order of arrival. With `early_eos`, outputs end before their max_tokens."""

    name: str
    about: str
    requests: tuple[Request, ...]
    early_eos: bool = False


def load(name: str, about: str, requests: Iterable[ShapedRequest]) -> Load:
    """Return a load of these requests, numbered from 1. No two of them share a prompt."""
    return Load(
        name,
        about,
        tuple(
            Request(
                id=f"r{number}",
                arrival=arrival,
                prompt=((f"r{number}", prompt),),
                max_tokens=max_tokens,
            )
            for number, (arrival, prompt, max_tokens) in enumerate(requests, 1)
        ),
    )


def ending_early(load: Load, seed: int) -> Load:
    """Return the same load with each output cut short, at a point drawn uniformly from 1 to
    max_tokens.

    The scheduler does not know this in advance. It plans for max_tokens, as for a real model, which
    may emit its end-of-sequence token at any time.
    """
    chance = random.Random(f"{seed} early EOS {load.name}")
    cut = tuple(
        Request(
            id=request.id,
            arrival=request.arrival,
            prompt=request.prompt,
            max_tokens=request.max_tokens,
            output_len=evenly(chance, 1, request.max_tokens),
        )
        for request in load.requests
    )
    return load._replace(requests=cut, early_eos=True)


def evenly(chance: random.Random, low: int, high: int) -> int:
    """Draw a number from `low` to `high`, inclusive. All are equally likely."""
    return low + int(chance.random() * (high - low + 1))


def log_evenly(chance: random.Random, low: int, high: int) -> int:
    """Draw a number from `low` to `high` so that each power of two is equally likely. Many
    numbers are small and a few are large."""
    return int(low * (high / low) ** chance.random())


def poisson(chance: random.Random, count: int, gap: float) -> list[int]:
    """Return the arrival steps of independent clients, on average `gap` steps apart."""
    arrivals, now = [], 0.0
    for _ in range(count):
        arrivals.append(int(now))
        now -= gap * math.log(1 - chance.random())
    return arrivals


def chat(chance: random.Random, count: int) -> list[ShapedRequest]:
    return [
        (arrival, log_evenly(chance, 50, 4000), log_evenly(chance, 20, 1500))
        for arrival in poisson(chance, count, 10)
    ]


def long_prompts(chance: random.Random, count: int) -> list[ShapedRequest]:
    return [
        (arrival, evenly(chance, 8000, 30000), evenly(chance, 50, 500))
        for arrival in poisson(chance, count, 50)
    ]


def long_outputs(chance: random.Random, count: int) -> list[ShapedRequest]:
    return [(arrival, 100, evenly(chance, 2000, 8000)) for arrival in poisson(chance, count, 100)]


def mixed(chance: random.Random, count: int) -> list[ShapedRequest]:
    """Return requests of which one in ten is very long."""
    return [
        (arrival, evenly(chance, 16000, 28000), evenly(chance, 500, 2000))
        if number % 10 == 5
        else (arrival, log_evenly(chance, 50, 500), log_evenly(chance, 20, 300))
        for number, arrival in enumerate(poisson(chance, count, 12))
    ]


def shares(batches: Iterable[int], life: int = 300) -> list[ShapedRequest]:
    """For each n in `batches`, return n requests that end in the same step, each with 1/n of the
    limit.

    For n = 5, 7, 11 and 31, this share is not a whole number of blocks, so only a check that does
    not round accepts n requests. Prefill and decode steps alternate, so by the time a
    request joins, the batch has grown by one token for each chunk of its prompt. Its prompt is
    longer by this number of tokens, so that all requests have the same length.
    """
    requests = []
    for batch in batches:
        share = LIMIT // batch
        prompt = share - life
        for _ in range(batch):
            requests.append((0, prompt, share - prompt + 1))
            prompt += chunk_count(prompt + chunk_count(prompt, CHUNK), CHUNK)
    return requests


# Sequences of admissions that exceed the limit under some formula.
AIMED: dict[str, list[ShapedRequest]] = {
    "2.0.1 and two readings": [
        (0, 26031, 210),
        (53, 26083, 158),
        (155, 26135, 106),
        (259, 26187, 54),
        (363, 26177, 2),
    ],
    "2.1.0": [
        (0, 25967, 249),
        (53, 26019, 197),
        (156, 26071, 145),
        (258, 26123, 93),
        (362, 26113, 41),
    ],
    "own tkv": [*[(0, 100, 2000)] * 31, (0, 32000, 500)],
    "1.10.0": [*[(0, 100, 26000)] * 4, (0, 26000, 3000)],
}


def aimed(names: Iterable[str]) -> list[ShapedRequest]:
    """Return the counterexamples to these formulas as one load. Each begins after the previous
    one has ended."""
    requests, start = [], 0
    for name in names:
        requests += [(start + arrival, prompt, output) for arrival, prompt, output in AIMED[name]]
        # an upper bound on the duration of one counterexample
        start += sum(2 * chunk_count(prompt, CHUNK) for _, prompt, _ in AIMED[name])
        start += 2 * max(output for *_, output in AIMED[name])
    return requests


def all_loads(seed: int, quick: bool) -> list[Load]:
    """Return all loads. Except for the counterexamples, each load also comes in a variant with
    early EOS.

    With `quick`, drawn loads are cut to a sixth of their requests, and slow loads are left out.
    """

    def drawn(
        name: str,
        generate: Callable[[random.Random, int], list[ShapedRequest]],
        count: int,
        about: str,
    ) -> Load:
        count = count // 6 if quick else count
        requests = generate(random.Random(f"{seed} {name}"), count)
        return load(name, f"{count} requests, {about}", requests)

    odd = (5, 7, 11, 31)
    found = [
        drawn("chat", chat, 300, "prompts 50-4,000, outputs 20-1,500, one every 10 steps"),
        drawn("long prompts", long_prompts, 100, "8,000-30,000 + 50-500, one every 50 steps"),
        drawn("mixed", mixed, 150, "nine short, then one of 16,000-28,000 + 500-2,000"),
        load("shares", "n requests with 1/n of the limit each, n = 5, 7, 11, 31", shares(odd)),
    ]
    if not quick:
        found += [
            drawn("long outputs", long_outputs, 36, "100 + 2,000-8,000, one every 100 steps"),
            load("fit 16", "48 x (1,024 + 7,168): 16 x 8,192 = limit", [(0, 1024, 7168)] * 48),
            load("fit 32", "64 x (2,048 + 2,048): 32 x 4,096 = limit", [(0, 2048, 2048)] * 64),
        ]
    names = [*AIMED][:2] if quick else [*AIMED]
    aims = load("aimed", "counterexamples to " + "; ".join(names), aimed(names))
    return [*found, *(ending_early(drawn_load, seed) for drawn_load in found), aims]


def random_batch(chance: random.Random) -> tuple[list[Decoding], Newcomer]:
    """Draw a decode batch of 1 to 31 requests and a newcomer, with any lengths that the model
    allows.

    In half of the batches, all lengths and ends are nearly equal, so that the answer depends on
    rounding.
    """
    longest = PRODUCTION.max_model_len
    near = evenly(chance, 300, longest - 1100) if chance.random() < 0.5 else None
    lengths, remaining = [], []
    for _ in range(evenly(chance, 2, 32)):
        if near is None:
            lengths.append(evenly(chance, 1, longest - 1))
            remaining.append(evenly(chance, 0, longest - lengths[-1]))
        else:
            lengths.append(near + evenly(chance, -200, 200))
            remaining.append(near % 700 + evenly(chance, 0, 128))
    tkvs = documented.request_tkvs(lengths[1:], PRODUCTION.block_size)
    members = [
        Decoding(*lengths_of_one)
        for lengths_of_one in zip(lengths[1:], remaining[1:], tkvs, strict=True)
    ]
    return members, Newcomer(lengths[0], remaining[0] + 1)
