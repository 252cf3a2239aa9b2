"""Fork runs of pytest from a process that has imported what all of them need, but no engine.

Standard library only, apart from pytest: this file runs inside the environment of a release. It
reads one JSON object per line, and answers each with one line once the run has ended: the CPU
seconds that it took, and whether it was killed.
"""

import gc
import importlib
import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

CPU_CLOCK = 2  # as the system numbers the clocks of another process
PATIENCE = 30  # a run may take this many times its CPU time; others may use the machine as well


class Watch:
    """A pytest plugin. It leaves out the tests that fail without a change, and writes the names of
    failing tests to a file immediately, because a run that takes too long is killed."""

    def __init__(self, out: Path, left_out: list[str]) -> None:
        self._out, self._left_out, self._ran = out, {*left_out}, 0
        self._failed: list[str] = []

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        name = collection_path.as_posix()
        return any(name.endswith(left_out) for left_out in self._left_out) or None

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if item.nodeid not in self._left_out]

    def pytest_collectreport(self, report: Any) -> None:
        self._note(report)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._ran += report.when == "call"
        self._note(report)

    def _note(self, report: Any) -> None:
        if report.failed:
            self._failed.append(report.nodeid)
        self._out.write_text(json.dumps({"failed": self._failed, "tests": self._ran}))


def run(job: dict[str, Any]) -> None:
    """Run the tests in this process, as the job says, and end it."""
    with Path(job["log"]).open("wb") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
    os.chdir(job["folder"])
    sys.path[:0] = job["path"]
    # vLLM inspects the class of a model in a process of its own.
    os.environ["PYTHONPATH"] = os.pathsep.join([*job["path"], sys.path[-1]])
    words = [*job["options"], "-q", "-p", "no:cacheprovider", "--noconftest", job["tests"]]
    importlib.import_module("pytest").main(
        words, plugins=[Watch(Path(job["out"]), job["left_out"])]
    )


def main() -> None:
    """Import the modules that the arguments name, and serve the jobs on stdin. The first argument
    is the folder in which pytest is installed."""
    sys.path.append(sys.argv[1])
    gc.disable()
    for name in ("pytest", *sys.argv[2:]):
        with suppress(Exception):  # a test that needs the module will say so
            importlib.import_module(name)
    gc.freeze()
    gc.enable()
    for line in sys.stdin:
        job = json.loads(line)
        process = os.fork()
        if not process:
            try:
                run(job)
            finally:
                os._exit(0)
        print(json.dumps(wait(process, job["seconds"])), flush=True)


def wait(process: int, seconds: float) -> tuple[float, bool]:
    """Wait until a child ends, and kill it once it has used more than `seconds` of CPU time, or far
    more wall-clock time, as a child that waits forever does. Return the CPU seconds and whether the
    child was killed."""
    began = time.monotonic()
    while True:
        ended, _, used = os.wait4(process, os.WNOHANG)
        if ended:
            break
        # A limit of the system (RLIMIT_CPU) is too coarse on a busy machine.
        cpu = time.clock_gettime((~process << 3) | CPU_CLOCK)
        if cpu > seconds or time.monotonic() - began > PATIENCE * seconds:
            os.kill(process, signal.SIGKILL)
            _, _, used = os.wait4(process, 0)
            break
        time.sleep(0.1)
    return used.ru_utime + used.ru_stime, not ended


if __name__ == "__main__":
    main()
