"""What a second worker gains in a campaign: items per second with one and with two.

`make campaign-bench` runs this. The same items on a pool and on a Dask cluster of this machine, one
process a worker; the clock runs from the first result, when all processes have started, to the last
moment at which all have work. Other work on the machine shows in it: its load is told, too.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from schedproof.gate.campaign.campaign import Campaign
from schedproof.gate.campaign.executors import Cluster, Finished, Pool, Ran, code, running, work
from schedproof.gate.campaign.items import Item
from schedproof.gate.campaign.ledger import opened
from schedproof.gate.campaign.results import Result
from schedproof.gate.campaign.settings import Settings, pairs_of
from schedproof.tests.gate.campaign import local_cluster

Run = Callable[[Item, str | None], Ran]
SLEEP = 0.5  # seconds
GOAL = 0.85  # of twice what one worker does


class Measured(NamedTuple):
    """One run: `items` finished in `seconds` after the first result, what they took of the
    workers' CPU, and the `rate`, items a second."""

    executor: str
    workers: int
    items: int
    seconds: float
    cpu_seconds: float
    rate: float


class Timed:
    """An executor that notes when results come."""

    def __init__(self, executor: Pool | Cluster) -> None:
        self._executor = executor
        self.came: list[tuple[float, float]] = []

    @property
    def width(self) -> int:
        return self._executor.width

    def submit(self, item: Item) -> None:
        self._executor.submit(item)

    def finished(self, seconds: float) -> list[Finished]:
        found = self._executor.finished(seconds)
        now = time.monotonic()
        self.came += [(now, one.ran.seconds) for one in found if one.ran]
        return found


def sleeping(_: Item, __: str | None) -> Ran:
    """An item that waits: what it gains by a second worker, other work on the machine spares."""
    time.sleep(SLEEP)
    return Ran(Result(scenarios=1), 0.0, "", code())


def measured(name: str, workers: int, items: int, run: Run) -> Measured:
    """One campaign of so many items, the same each time."""
    settings = Settings(
        pairs=pairs_of(["llmservingsim", "nano_vllm"], []),
        engines=("hypothesis",),
        scales={"small": {}},
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        opened(Path(folder) / "ledger", write=True) as ledger,
        executor_of(name, workers, run) as executor,
    ):
        timed = Timed(executor)
        Campaign(settings, ledger, timed, items, float("inf"), lambda _: None, lambda _: None).run()
    # Until the first result processes start; at the end there is not enough left for all.
    came = timed.came[: items - 2 * workers]
    seconds = came[-1][0] - came[0][0]
    cpu = sum(spent for _, spent in came[1:])
    return Measured(name, workers, len(came) - 1, seconds, cpu, (len(came) - 1) / seconds)


@contextmanager
def executor_of(name: str, workers: int, run: Run) -> Iterator[Pool | Cluster]:
    """An executor of this name."""
    if name == "pool":
        with running(lambda: Pool(workers, None, run)) as pool:
            yield pool
        return
    process, address = local_cluster.started(workers)
    try:
        with running(lambda: Cluster(address, None, run)) as cluster:
            yield cluster
    finally:
        process.communicate("")


def main() -> int:
    """Measure; 1 where a second worker gains too little."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=40)
    parser.add_argument("--sleep", action="store_true", help="items that wait, on a busy machine")
    parser.add_argument("--json", type=Path, help="write the results to this file, too")
    options = parser.parse_args()
    runs, shares = [], {}
    for name in ("pool", "dask"):
        for workers in (1, 2):
            one = measured(name, workers, options.items, sleeping if options.sleep else work)
            runs.append(one)
            print(
                f"{name}, {workers} workers: {one.items} items in {one.seconds:.1f} s, "
                f"{one.rate:.2f} items/s ({one.cpu_seconds:.1f} s of CPU)",
                flush=True,
            )
        shares[name] = runs[-1].rate / (2 * runs[-2].rate)
        print(f"{name}: {shares[name]:.0%} of twice one worker", flush=True)
    load = os.getloadavg()[0]
    print(f"load of the machine: {load:.1f} on {os.cpu_count()} cores")
    if options.json:
        reported = {"runs": [one._asdict() for one in runs], "shares": shares, "load": load}
        options.json.write_text(json.dumps(reported, indent=2) + "\n", encoding="utf-8")
    return 0 if min(shares.values()) >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
