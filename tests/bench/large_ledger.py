"""How long a report of a large ledger takes: `make ledger-bench` runs this.

The results are simulated, of the size of real ones; the ledger and the command are the real ones.
A million items need 7 GB of disk, which are free again at the end.
"""

import argparse
import itertools
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from schedproof.gate.campaign.items import Sample
from schedproof.gate.campaign.ledger import Done, opened
from schedproof.gate.campaign.rounds import Rounds
from schedproof.gate.campaign.settings import SCALES, Settings, pairs_of
from schedproof.tests.bench.scale import result_of

AT_ONCE = 5_000  # results in a transaction


def results(settings: Settings, items: int) -> Iterator[Done]:
    """So many results, each of an item of its own, of every system in turn."""
    chance = random.Random(0)
    fresh = [item for _, item in Rounds(settings).fresh() if isinstance(item, Sample)]
    for seed, item in zip(range(items), itertools.cycle(fresh), strict=False):
        own = replace(item, seed=seed)
        yield Done(own, result_of(own, chance), 1.5, "worker")


def written(path: Path, items: int) -> float:
    """Seconds that the ledger took to be written."""
    settings = Settings(pairs=pairs_of([], []), scales={scale: {} for scale in SCALES})
    began = time.perf_counter()
    there = results(settings, items)
    with opened(path, write=True) as ledger:
        ledger.begin(settings)
        while part := list(itertools.islice(there, AT_ONCE)):
            ledger.put(part)
    return time.perf_counter() - began


def reported(path: Path) -> tuple[float, str]:
    """Seconds that `campaign --report` takes, and its last line."""
    command = [sys.executable, "-m", "schedproof", "campaign", "--report", "--ledger", str(path)]
    began = time.perf_counter()
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=path.parent)
    return time.perf_counter() - began, ran.stdout.splitlines()[-1]


def main() -> None:
    """Write, report, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    print("| Results | Written, s | Ledger, MB | Report, s | Its memory, MB |")
    print("|---|---|---|---|---|", flush=True)
    for items in parser.parse_args().items:
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
