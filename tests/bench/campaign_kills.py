"""Campaigns that are killed at random instants, again and again: is the ledger the same?

`make campaign-test` runs this, some minutes. With processes: SIGKILL of the campaign, or of one of
its workers. With Dask (`--dask`): SIGKILL of a worker, or of the scheduler, and then a new cluster.
Each campaign is resumed until it is over; its ledger is compared with that of an uninterrupted one.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from schedproof.tests.gate.campaign import local_cluster
from schedproof.tests.gate.campaign.work import begun, content, kill, ran, workers

WHAT = ("--system", "nano_vllm", "--revision", "0.2.0")


def killed(folder: Path, options: list[str], chance: random.Random, longest: float) -> int:
    """One campaign on processes, until it is over; how often something was killed."""
    kills = 0
    while True:
        process = begun(folder / "ledger", *options, "--workers", "2")
        time.sleep(chance.uniform(0.0, longest))
        victims = workers(process.pid) if chance.random() < 0.5 else [process.pid]
        if process.poll() is None and victims:
            kill(chance.choice(victims))
            kills += 1
        process.communicate()
        if process.returncode == 1:  # this revision breaks a rule
            return kills


def killed_on_dask(folder: Path, options: list[str], chance: random.Random, longest: float) -> int:
    """One campaign on clusters, until it is over; how often something was killed."""
    kills = 0
    while True:
        scheduler, address = local_cluster.started(2)
        process = begun(folder / "ledger", *options, "--cluster", address)
        time.sleep(chance.uniform(0.0, longest))
        victims = workers(scheduler.pid) if chance.random() < 0.5 else [scheduler.pid]
        if process.poll() is None and victims:
            kill(chance.choice(victims))
            kills += 1
        process.communicate()
        scheduler.communicate("")
        if process.returncode == 1:
            return kills


def main() -> int:
    """Kill and compare; 1 where a ledger is another."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=30)
    parser.add_argument("--campaigns", type=int, default=5)
    parser.add_argument("--longest", type=float, default=15.0, help="seconds until a kill")
    parser.add_argument("--dask", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    asked = [*WHAT, "--items", str(options.items)]
    kills = differ = 0
    with tempfile.TemporaryDirectory() as place:
        undisturbed = Path(place) / "undisturbed"
        undisturbed.mkdir()
        whole = ran(undisturbed / "ledger", *asked, "--workers", "2")
        print(f"undisturbed: {whole.stdout.splitlines()[-1]}", flush=True)
        for number in range(options.campaigns):
            folder = Path(place) / str(number)
            folder.mkdir()
            run = killed_on_dask if options.dask else killed
            times = run(folder, asked, chance, options.longest)
            same = content(folder / "ledger") == content(undisturbed / "ledger")
            kills, differ = kills + times, differ + (not same)
            print(f"killed {times} times: {'the same' if same else 'ANOTHER LEDGER'}", flush=True)
    print(f"{kills} kills, {differ} of {options.campaigns} ledgers differ")
    return 1 if differ or not kills else 0


if __name__ == "__main__":
    sys.exit(main())
