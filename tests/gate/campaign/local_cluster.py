"""A Dask cluster of this machine in a process of its own, which can be killed."""

import subprocess
import sys
from typing import Any


def started(workers: int) -> "tuple[subprocess.Popen[str], str]":
    """The process of the scheduler, with its workers below it, and its address."""
    process = subprocess.Popen(
        [sys.executable, __file__, str(workers)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def main(workers: int) -> None:
    import distributed

    cluster: Any = distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        host="127.0.0.1",
    )
    print(cluster.scheduler_address, flush=True)
    sys.stdin.read()
    cluster.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
