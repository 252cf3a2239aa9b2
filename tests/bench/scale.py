"""What saturates first in a large campaign: the real plan and the real ledger, workers simulated.

`make campaign-scale` runs this. A worker is a number here: a short item takes as long as
`--item-seconds` says on average, a sample of ten times the runs ten times as long, exponentially
distributed. What is real is what the one process of a campaign does for every item: the plan's
choice, and the ledger's transactions. Its CPU time is measured, and the simulated clock goes on by
it, as it does by the milliseconds that Dask's client and scheduler take for an item (`--dask`
measures them first, on processes of this machine).
"""

import argparse
import heapq
import json
import random
import sys
import tempfile
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any, NamedTuple

from schedproof.gate.campaign.arms import Arm, runs_of
from schedproof.gate.campaign.executors import AHEAD
from schedproof.gate.campaign.items import Item, Sample, Shrinking
from schedproof.gate.campaign.ledger import Done, Ledger, opened
from schedproof.gate.campaign.results import NearMiss, Result
from schedproof.gate.campaign.rounds import Rounds
from schedproof.gate.campaign.running import rules_of
from schedproof.gate.campaign.settings import SCALES, Settings, pairs_of

NIGHT = 8 * 3_600  # seconds
RUNS_PER_SECOND = 40  # of a core: measured by a campaign, docs/scale.md
CLIENT_MS, SCHEDULER_MS = 3.0, 5.2  # as --dask measured them once, on a slow machine
CONFIG = {
    **{"block_size": 4, "chunk_size": 8, "max_num_seqs": 4, "max_model_len": 32},
    **{"max_batch_tkv": 96, "num_blocks": 40, "prefix_caching": True, "interleave": True},
}


class Night(NamedTuple):
    """A simulated campaign.

    Attributes:
        busy: share of the workers' time in which they ran an item, from 0 to 1.
        items_per_second: finished, of simulated time.
        core: of the campaign's process, the share of its core that was used.
        scheduler: the same of Dask's scheduler.
        choosing_ms, writing_ms: CPU for an item.
        ledger_bytes: for an item.
        million_scenarios: in a night of eight hours.
    """

    workers: int
    item_seconds: float
    items: int
    busy: float
    items_per_second: float
    core: float
    scheduler: float
    choosing_ms: float
    writing_ms: float
    ledger_bytes: float
    million_scenarios: float


class Costs(NamedTuple):
    """What Dask takes for an item, in seconds of the client's core and of the scheduler's."""

    client: float
    scheduler: float


def simulate(workers: int, item_seconds: float, seconds: float, costs: Costs) -> Night:
    """So many simulated seconds of a campaign, from its first item."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger"
        with opened(path, write=True) as ledger:
            simulation = Simulation(ledger, workers, item_seconds, costs)
            simulation.run(seconds)
        size = path.stat().st_size
    spent, clock, items = simulation.spent, simulation.clock, simulation.items
    return Night(
        workers=workers,
        item_seconds=item_seconds,
        items=items,
        busy=simulation.worked / (workers * clock),
        items_per_second=items / clock,
        core=(spent["choosing"] + spent["writing"] + spent["client"]) / clock,
        scheduler=spent["scheduler"] / clock,
        choosing_ms=1000 * spent["choosing"] / items,
        writing_ms=1000 * spent["writing"] / items,
        ledger_bytes=size / items,
        million_scenarios=RUNS_PER_SECOND * simulation.worked / clock * NIGHT / 1e6,
    )


class Simulation:
    """The loop of a campaign with workers that are numbers."""

    def __init__(self, ledger: Ledger, workers: int, item_seconds: float, costs: Costs) -> None:
        self._ledger = ledger
        self._item_seconds = item_seconds
        self._costs = costs
        self._chance = random.Random(0)
        self._free = [0.0] * workers  # when each worker is free
        self._scheduler_free = 0.0
        self._width = AHEAD * workers
        # Items that are out: when they end, a number to tell them apart, their id and themselves.
        self._out: list[tuple[float, int, str, Item]] = []
        self.clock = self.worked = 0.0
        self.items = 0
        self.spent: Counter[str] = Counter()

    def run(self, seconds: float) -> None:
        """Until the clock says so many seconds."""
        settings = Settings(pairs=pairs_of([], []), scales={scale: {} for scale in SCALES})
        rounds = Rounds(settings)
        waiting = deque(rounds.fresh())
        number = 0
        while self.clock < seconds:
            while waiting and len(self._out) < self._width:
                number += 1
                self._hand_out(number, *waiting.popleft())
            self.clock = max(self.clock, self._out[0][0])
            done = []
            while self._out and self._out[0][0] <= self.clock:
                _, _, name, item = heapq.heappop(self._out)
                done.append((name, Done(item, result_of(item, self._chance), 1.0, "worker")))
            began = time.process_time()
            self._ledger.put([one for _, one in done])
            began = self._passed("writing", began)
            for name, one in done:
                rounds.done(name, one.result)
            waiting += rounds.fresh()
            self._passed("choosing", began)
            self.items += len(done)

    def _hand_out(self, number: int, name: str, item: Item) -> None:
        """The client sends it, the scheduler gives it to the worker that is free first."""
        self.clock += self._costs.client
        self.spent["client"] += self._costs.client
        self._scheduler_free = max(self._scheduler_free, self.clock) + self._costs.scheduler
        self.spent["scheduler"] += self._costs.scheduler
        begins = max(heapq.heappop(self._free), self._scheduler_free)
        # Later samples of a kind are longer: so the plan has it.
        times = (
            item.examples / runs_of(Arm("", "", "", item.scale), 0)
            if isinstance(item, Sample)
            else 1
        )
        length = self._chance.expovariate(1 / (self._item_seconds * times))
        self.worked += length
        heapq.heappush(self._free, begins + length)
        heapq.heappush(self._out, (begins + length, number, name, item))

    def _passed(self, what: str, began: float) -> float:
        """Book the CPU that was spent since, on the clock as well."""
        now = time.process_time()
        self.spent[what] += now - began
        self.clock += now - began
        return now


def result_of(item: Item, chance: random.Random) -> Result:
    """A result of the size of a real one."""
    assert not isinstance(item, Shrinking)
    rules = rules_of(item.system, item.revision)
    near = {}
    if isinstance(item, Sample):
        for key in ("max_batch_tkv", "max_model_len", "max_num_seqs", "num_blocks"):
            near[key] = NearMiss(left=chance.randrange(1, 20), config=CONFIG)
    return Result(
        scenarios=600,
        steps=chance.randrange(1_000, 9_000),
        exercised={rule.id: chance.randrange(1, 4_000) for rule in rules},
        near=near,
    )


def nothing(item: Item, result: Result) -> Result:
    """What a Dask worker does here: it takes an item, and gives a result."""
    return result


def dask_costs(items: int) -> Costs:
    """What Dask's client and scheduler take for an item that takes no time."""
    import distributed
    import psutil

    from schedproof.tests.gate.campaign import local_cluster

    chance = random.Random(0)
    settings = Settings(pairs=pairs_of([], []), scales={"small": {}})
    fresh = [item for _, item in Rounds(settings).fresh()]
    process, address = local_cluster.started(1)
    try:
        client: Any = distributed.Client(address, set_as_default=False)
        scheduler = psutil.Process(process.pid)
        client.submit(nothing, fresh[0], None, pure=False).result()
        began, theirs = time.process_time(), sum(scheduler.cpu_times()[:2])
        out: deque[Any] = deque()
        for number in range(items):
            item = fresh[number % len(fresh)]
            out.append(client.submit(nothing, item, result_of(item, chance), pure=False))
            if len(out) > 50:
                out.popleft().result()
        for future in out:
            future.result()
        ours = time.process_time() - began
        theirs = sum(scheduler.cpu_times()[:2]) - theirs
        client.close()
    finally:
        process.communicate("")
    return Costs(ours / items, theirs / items)


def main() -> int:
    """Read the options, simulate, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[1_000, 4_000])
    parser.add_argument("--item-seconds", type=float, nargs="+", default=[1.5])
    parser.add_argument("--seconds", type=float, default=600.0, help="simulated")
    parser.add_argument("--dask", action="store_true", help="measure Dask first")
    parser.add_argument("--json", type=Path, help="write the results to this file, too")
    options = parser.parse_args()
    costs = dask_costs(1_000) if options.dask else Costs(CLIENT_MS / 1000, SCHEDULER_MS / 1000)
    print(
        f"Dask, an item: {1000 * costs.client:.2f} ms of the client, "
        f"{1000 * costs.scheduler:.2f} ms of the scheduler"
    )
    heads = " | ".join(name.replace("_", " ") for name in Night._fields)
    print(f"| {heads} |\n|{'---|' * len(Night._fields)}", flush=True)
    nights = []
    for workers in options.workers:
        for item_seconds in options.item_seconds:
            night = simulate(workers, item_seconds, options.seconds, costs)
            nights.append({**night._asdict(), **costs._asdict()})
            cells = (
                f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" for value in night
            )
            print(f"| {' | '.join(cells)} |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(nights, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
