"""A campaign on hosts of its own: network namespaces with a Dask worker each, some of which die.

`make campaign-hosts` runs this, as root, with iproute2. Each host has its network, its name and its
folders; it shares nothing with the others but the code. While the campaign runs, a worker is killed
and comes back, or the cable of a host is pulled for longer than the scheduler waits. The ledger
must hold what the same campaign leaves that runs on processes, undisturbed.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from schedproof.gate.campaign.ledger import opened
from schedproof.tests.gate.campaign.work import Content, begun, content, ran

BRIDGE, NETWORK, PORT = "sp-bridge", "10.213.7", 8786
PATIENCE = 15  # seconds without a word from a worker, after which the scheduler gives it up
PULLED, AWAY = 25.0, 3.0  # seconds that a cable is out, and that a killed worker is away
DASK = [str(Path(sys.executable).with_name("dask"))]


def ip(*words: str) -> None:
    """Change the network of this machine."""
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Host(NamedTuple):
    """A namespace, and the folder that its worker may write to."""

    number: int
    folder: Path

    @property
    def name(self) -> str:
        """What its namespace and the host itself are called."""
        return f"sp-{self.number}"

    @property
    def cable(self) -> str:
        """Its end of the cable at the bridge."""
        return f"sp-cable-{self.number}"

    def connect(self) -> None:
        """Make the namespace, with a cable to the bridge."""
        inside = ("netns", "exec", self.name, "ip")
        ip("netns", "add", self.name)
        ip("link", "add", self.cable, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        ip("link", "set", self.cable, "master", BRIDGE, "up")
        address = f"{NETWORK}.{10 + self.number}/24"
        for words in (("addr", "add", address, "dev", "eth0"), ("link", "set", "eth0", "up")):
            ip(*inside, *words)
        ip(*inside, "link", "set", "lo", "up")

    def worker(self) -> "subprocess.Popen[bytes]":
        """A worker on this host."""
        self.folder.mkdir(exist_ok=True)
        name = ["unshare", "--uts", "sh", "-c", f'hostname {self.name}; exec "$@"', "worker"]
        asked = [*DASK, "worker", f"tcp://{NETWORK}.1:{PORT}", "--nthreads", "1", "--no-dashboard"]
        places = dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME"), str(self.folder))
        return subprocess.Popen(
            ["ip", "netns", "exec", self.name, *name, *asked],
            env={**os.environ, **places},
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def end(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process and those that it has started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def connected(count: int, folder: Path) -> Iterator[list[Host]]:
    """So many hosts at one bridge; none is left behind."""
    hosts = [Host(number, folder / str(number)) for number in range(count)]
    try:
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("addr", "add", f"{NETWORK}.1/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for host in hosts:
            host.connect()
        yield hosts
    finally:
        # The kernel removes a deleted namespace later, and a cable that is in it only then.
        cables = (("link", "del", host.cable) for host in hosts)
        spaces = (("netns", "del", host.name) for host in hosts)
        for words in (*cables, *spaces, ("link", "del", BRIDGE)):
            subprocess.run(["ip", *words], check=False, capture_output=True)


def disturbed(
    hosts: list[Host], ledger: Path, options: list[str], every: float, chance: random.Random
) -> tuple[int, int, int]:
    """One campaign on the hosts, until it is over: its exit code, how often a worker was killed,
    and a cable pulled."""
    patience = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": f"{PATIENCE}s"}
    scheduler = subprocess.Popen(
        [*DASK, "scheduler", "--host", f"{NETWORK}.1", "--port", str(PORT), "--no-dashboard"],
        env={**os.environ, **patience},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    running = {host: host.worker() for host in hosts}
    kills = pulls = 0
    try:
        _wait_for(len(hosts))
        campaign = begun(ledger, *options, "--cluster", f"tcp://{NETWORK}.1:{PORT}")
        while not _over(campaign, every):
            host = chance.choice(hosts)
            if chance.random() < 0.5:
                kills += 1
                end(running[host])
                time.sleep(AWAY)
                running[host] = host.worker()
            else:
                pulls += 1
                ip("link", "set", host.cable, "down")
                time.sleep(PULLED)
                ip("link", "set", host.cable, "up")
        said, why = campaign.communicate()
        print(said.strip().splitlines()[-1] if said.strip() else why.strip(), flush=True)
        return campaign.returncode, kills, pulls
    finally:
        for process in (*running.values(), scheduler):
            end(process)


def _wait_for(workers: int) -> None:
    """Wait until so many workers have come.

    Raises:
        TimeoutError: they have not, in a minute.
    """
    from distributed import Client

    with Client(f"tcp://{NETWORK}.1:{PORT}", timeout=30, set_as_default=False) as client:
        client.wait_for_workers(workers, timeout=60)


def _over(campaign: "subprocess.Popen[str]", seconds: float) -> bool:
    try:
        campaign.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def told(name: str, ledger: Path, seconds: float) -> Content:
    """Print what a campaign took, and give what it left."""
    with opened(ledger, write=False) as there:
        [[items, spent, workers]] = there.rows(
            "SELECT count(*), sum(seconds), count(DISTINCT substr(worker, 1, instr(worker, '/')))"
            " FROM results"
        )
    share = spent / (seconds * (os.cpu_count() or 1))
    print(
        f"{name}: {items} items of {spent:.0f} s of CPU on {workers} hosts in {seconds:.0f} s, "
        f"{share:.0%} of the cores",
        flush=True,
    )
    return content(ledger)


def main() -> int:
    """Run both campaigns; 1 where their ledgers differ, or nothing was disturbed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--items", type=int, default=400)
    parser.add_argument("--every", type=float, default=20.0, help="seconds between disturbances")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if os.geteuid() or not shutil.which("ip"):
        parser.exit(2, "hosts.py: needs root and iproute2\n")
    asked = ["--items", str(given.items), "--seed", str(given.seed)]
    with tempfile.TemporaryDirectory() as place:
        left = []
        for name in ("processes", "hosts"):
            ledger = Path(place) / name / "ledger"
            ledger.parent.mkdir()
            began = time.monotonic()
            if name == "processes":
                code = ran(ledger, *asked, "--workers", str(os.cpu_count())).returncode
                disturbances = ""
            else:
                with connected(given.hosts, Path(place)) as hosts:
                    chance = random.Random(given.seed)
                    code, kills, pulls = disturbed(hosts, ledger, asked, given.every, chance)
                disturbances = f", {kills} workers killed, {pulls} cables pulled"
            left.append((code, told(name + disturbances, ledger, time.monotonic() - began)))
    same = left[0] == left[1]
    print("the same ledger" if same else "ANOTHER LEDGER")
    return 0 if same and kills + pulls else 1


if __name__ == "__main__":
    sys.exit(main())
