"""Measure how much wall-clock time `--jobs 2` saves. Run each command with one process and with
two."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from statistics import median

from .figure import FigurePlan, NotMeasured, Row

ROUNDS = 2
COMMANDS: dict[str, Sequence[str]] = {
    "gate": ("gate", "model", "--system", "vllm", "--profile", "ci"),
    "search": ("search", "V1-R05", "--engine", "hypothesis"),
    "diff": ("diff", "model", "model", "--system", "vllm"),
    "explore": ("explore", "--system", "llmservingsim"),
}
ENDS = {"search": 3}  # a search is inconclusive, because samples that break no rule prove nothing
QUICK = {"gate": ("gate", "model", "--system", "nano_vllm", "--profile", "quick")}


def rows(quick: bool) -> Iterator[Row]:
    """Yield two rows for each command, with one process and with two. The two take turns.

    Raises:
        NotMeasured: a command ended with an unexpected exit code.
    """
    for name, words in (QUICK if quick else COMMANDS).items():
        seconds: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(1 if quick else ROUNDS):
            for jobs, own in seconds.items():
                own.append(run([*words, "--jobs", str(jobs)], ENDS.get(name, 0)))
        whole = median(seconds[1])
        for jobs, own in seconds.items():
            yield Row(
                what=f"{name}, --jobs {jobs}",
                value=median(own),
                unit="s",
                ratio=median(own) / whole,
                to="--jobs 1",
                note=f"{' '.join(words)}: {whole / median(own):.2f} times as fast; "
                f"load {os.getloadavg()[0]:.1f}",
            )


def run(words: Sequence[str], ends: int) -> float:
    """Run a command and return its wall-clock time in seconds. `ends` is the expected exit code.

    Raises:
        NotMeasured: the command ended with another exit code.
    """
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        ended = subprocess.run(
            [sys.executable, "-m", "schedproof", *words],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        spent = time.monotonic() - began
    if ended.returncode != ends:
        errors = ended.stderr.strip().splitlines() or [""]
        raise NotMeasured(f"{' '.join(words)}: exit code {ended.returncode}, {errors[-1]}")
    return spent


PLAN = FigurePlan(
    "jobs",
    "Commands by their processes",
    "each command with --jobs 1 and --jobs 2, alternately; wall-clock seconds",
    rows,
)
