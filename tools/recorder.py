"""What does the recorder cost a vLLM scheduler, and can its record be judged?

Sends the same requests alternately to the release's own class and to the recorder that wraps it.
Prints the wall-clock milliseconds per step (including the protocol), the bytes that a step adds to
the record, and the verdict of `check-trace`:

    make tool NAME=recorder OPTIONS="--release vllm==0.33.0 --steps 100000 --keep run.jsonl"
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from statistics import median

from schedproof.gate.targets.factory import opened
from schedproof.gate.targets.target_spec import parse_target
from schedproof.gate.targets.vllm import recorder
from schedproof.model.systems import full_config
from schedproof.model.target import Target

from .long_trace import requests

CHUNK = 100  # steps that one class takes before it is the other's turn
EVERY = 2  # steps between two arrivals; about thirty requests then run at a time
SYSTEM, REVISION = "vllm", "documented"
CONFIG = {"num_blocks": 4096, "max_num_seqs": 32, "async_scheduling": True}


class Served:
    """A target that receives requests, and the milliseconds that each of its steps took."""

    def __init__(self, target: Target) -> None:
        started = target.start(SYSTEM, REVISION, full_config(SYSTEM, REVISION, CONFIG))
        assert started["ok"], started
        self._target, self._requests = target, requests()
        self._step = self._running = 0
        self.milliseconds: list[float] = []
        self.running: list[int] = []

    def serve(self, steps: int) -> None:
        """Run this many steps, and send the requests that arrive meanwhile."""
        began = time.perf_counter()
        for _ in range(steps):
            if self._step % EVERY == 0:
                self._add()
            self._step += 1
            reply = self._target.step()
            assert reply["ok"], reply
            self.running.append(len(reply["step"]["running"]))
        self.milliseconds.append(1000 * (time.perf_counter() - began) / steps)

    def _add(self) -> None:
        [request] = islice(self._requests, 1)
        reply = self._target.add(request.for_target())
        assert reply["ok"], reply


@contextmanager
def served(release: str, cls: str) -> Iterator[Served]:
    """Open a class of the recorder. With an empty name, open the release's own class."""
    gate = Path(recorder.__file__).parents[2]
    spec = f"{release}:{gate}:targets.vllm.recorder.{cls}" if cls else release
    with opened(parse_target(spec), step_limit=60) as target:
        yield Served(target.target)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--release", default="vllm==0.33.0")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--keep", type=Path, help="the record, a new file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.keep or Path(folder) / "run.jsonl"
        os.environ[recorder.TRACE] = str(path.resolve())
        own, recorded = measure(options.release, options.steps)
        size = path.stat().st_size
        print(
            f"{options.release}, {median(recorded.running):.0f} requests running: a step takes "
            f"{median(own.milliseconds):.2f} ms, recorded {median(recorded.milliseconds):.2f} ms, "
            f"and fills {size / options.steps / 1024:.1f} KiB",
            flush=True,
        )
        began = time.monotonic()
        code = subprocess.run([sys.executable, "-m", "schedproof", "check-trace", path]).returncode
        seconds = time.monotonic() - began
        print(f"judged in {seconds:.0f} s, {options.steps / seconds:,.0f} steps per second")
    return code


def measure(release: str, steps: int) -> tuple[Served, Served]:
    """Measure the release's own class and the recorder that wraps it, alternately."""
    with served(release, "") as own, served(release, "AsyncRecorder") as recorded:
        for _ in range(steps // CHUNK):
            own.serve(CHUNK)
            recorded.serve(CHUNK)
    return own, recorded


if __name__ == "__main__":
    sys.exit(main())
