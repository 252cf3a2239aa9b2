"""A campaign with one worker and with two: items a second, the same items for both."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from statistics import median

from ..gate.campaign.executors import Pool
from ..gate.campaign.items import Item, Sample
from .figure import NotMeasured, Plan, Row

WORKERS = (1, 2)
PATIENCE = 600.0  # seconds for a round


def items(count: int, examples: int, first: int = 0) -> list[Item]:
    """So many samples of Spyre's model, with seeds of their own."""
    return [
        Sample(system="spyre", revision="sound", scale="small", seed=seed, examples=examples)
        for seed in range(first, first + count)
    ]


def rows(quick: bool) -> Iterator[Row]:
    """A row for each number of workers; rounds of both in turns.

    Raises:
        NotMeasured: an item has no result.
    """
    asked = items(4, 10) if quick else items(16, 60)
    with closing(Pool(1, None)) as one, closing(Pool(2, None)) as two:
        pools = (one, two)
        for pool in pools:
            run(pool, items(4, 2, first=1_000))  # workers import before they work
        rates: list[list[float]] = [[], []]
        for _ in range(1 if quick else 3):
            for number, pool in enumerate(pools):
                rates[number].append(len(asked) / run(pool, asked))
    medians = [median(own) for own in rates]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    for workers, rate in zip(WORKERS, medians, strict=True):
        yield Row(
            what=f"{workers} worker{'s' * (workers > 1)}",
            value=rate,
            unit="items/s",
            ratio=rate / medians[0],
            to="1 worker",
            note=f"{cores} cores, load {os.getloadavg()[0]:.1f}",
        )


def run(pool: Pool, asked: Sequence[Item]) -> float:
    """Seconds by the clock until all items have a result.

    Raises:
        NotMeasured: one has none.
    """
    began = time.monotonic()
    for item in asked:
        pool.submit(item)
    left = len(asked)
    while left:
        for one in pool.finished(1.0):
            if one.ran is None or one.ran.result.failed:
                why = "its worker died" if one.ran is None else one.ran.result.failed
                raise NotMeasured(f"an item of the campaign has no result: {why}")
            left -= 1
        if time.monotonic() - began > PATIENCE:
            raise NotMeasured(f"{left} items of the campaign had no result in {PATIENCE:g} s")
    return time.monotonic() - began


PLAN = Plan(
    "campaign",
    "A campaign by its workers",
    "the same items on one worker process and on two, in turns; by the clock",
    rows,
)
