"""How long a report of a large ledger takes, and a long campaign: `make ledger-bench` runs this.

The results are simulated, of the size of real ones; the ledger, the loop of the campaign with its
plan, and the command are the real ones. A million items need 7 GB of disk, which are free again at
the end.
"""

import argparse
import itertools
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from schedproof.gate.campaign.campaign import Campaign
from schedproof.gate.campaign.executors import Finished, Ran
from schedproof.gate.campaign.items import Item, Sample
from schedproof.gate.campaign.ledger import Done, opened
from schedproof.gate.campaign.rounds import Rounds
from schedproof.gate.campaign.settings import SCALES, Settings, pairs_of
from schedproof.tests.bench.scale import result_of

AT_ONCE = 5_000  # results in a transaction
SETTINGS = Settings(pairs=pairs_of([], []), scales={scale: {} for scale in SCALES})


def results(items: int) -> Iterator[Done]:
    """So many results, each of an item of its own, of every system in turn."""
    chance = random.Random(0)
    fresh = [item for _, item in Rounds(SETTINGS).fresh() if isinstance(item, Sample)]
    for seed, item in zip(range(items), itertools.cycle(fresh), strict=False):
        own = replace(item, seed=seed)
        yield Done(own, result_of(own, chance), 1.5, "worker")


def written(path: Path, items: int) -> float:
    """Seconds that the ledger took to be written."""
    began = time.perf_counter()
    there = results(items)
    with opened(path, write=True) as ledger:
        ledger.begin(SETTINGS)
        while part := list(itertools.islice(there, AT_ONCE)):
            ledger.put(part)
    return time.perf_counter() - began


def reported(path: Path) -> tuple[float, str]:
    """Seconds that `campaign --report` takes, and its last line."""
    command = [sys.executable, "-m", "schedproof", "campaign", "--report", "--ledger", str(path)]
    began = time.perf_counter()
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=path.parent)
    return time.perf_counter() - began, ran.stdout.splitlines()[-1]


class AtOnce:
    """An executor that has a result of every item at once; `most`: after so many it is killed."""

    width = 64

    def __init__(self, most: int) -> None:
        self._chance = random.Random(0)
        self._out: list[Item] = []
        self._left = most

    def submit(self, item: Item) -> None:
        """An item is handed out."""
        self._out.append(item)

    def finished(self, seconds: float) -> list[Finished]:
        """All that is out."""
        done, self._out = self._out, []
        self._left -= len(done)
        if self._left < 0:
            raise KeyboardInterrupt
        return [
            Finished(item, Ran(result_of(item, self._chance), 1.5, "worker", "")) for item in done
        ]


def campaign(path: Path, items: int) -> tuple[float, float, float]:
    """Seconds of half a campaign, which is killed there; until it is where it was when the same
    command goes on; and of the rest."""
    times = [time.perf_counter()]

    def run(most: int, watch: Callable[[Campaign], None]) -> None:
        with opened(path, write=True) as ledger:
            ends = float("inf")
            Campaign(SETTINGS, ledger, AtOnce(most), items, ends, lambda _: None, watch).run()

    with suppress(KeyboardInterrupt):
        run(items // 2, lambda _: None)
    times.append(time.perf_counter())
    run(items, lambda one: times.append(time.perf_counter()) if len(times) == 2 else None)
    times.append(time.perf_counter())
    with opened(path, write=False) as ledger:
        assert ledger.rows("SELECT count(*) FROM results") == [(items,)]
    half, until, rest = (after - before for before, after in itertools.pairwise(times))
    return half, until, rest


def main() -> None:
    """Write, report, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--campaign", type=int, default=100_000)
    asked = parser.parse_args()
    print("| Items | Half of them, s | Where it was, s | The rest, s | MB | Report, s |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger"
        times = campaign(path, asked.campaign)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
        cells = " | ".join(f"{seconds:,.0f}" for seconds in times)
        reading, _ = reported(path)
        print(f"| {asked.campaign:,} | {cells} | {memory:,.0f} | {reading:.1f} |\n", flush=True)
    print("| Results | Written, s | Ledger, MB | Report, s | Its memory, MB |")
    print("|---|---|---|---|---|", flush=True)
    for items in asked.items:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "ledger"
            writing = written(path, items)
            reading, last = reported(path)
            assert f"{items:,} items" in last, last
            size = path.stat().st_size / 1e6
            memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000
            print(
                f"| {items:,} | {writing:,.0f} | {size:,.0f} | {reading:.1f} | {memory:,.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
