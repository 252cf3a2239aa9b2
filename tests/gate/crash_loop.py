"""Starts a piece of work again and again, and kills it at random instants.

    python crash_loop.py gate|corpus FOLDER KILLS

A process of its own, with one thread: it imports once, and forks for each run. Prints a line of
JSON: how many runs were killed, and how many ended by themselves before that.
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from schedproof.gate.corpus import folder as corpus_folder
from schedproof.gate.judging.context import GateContext, GateOptions
from schedproof.gate.judging.judge import judge
from schedproof.gate.judging.profiles import PROFILES, Profile, set_hypothesis_home
from schedproof.gate.reports.options import Ndjson
from schedproof.gate.targets import probe as probing
from schedproof.gate.targets.target_spec import TargetSpec
from schedproof.model.scenario import Request, Scenario
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget
from schedproof.spec.catalogue import load, select

IDS = "ALL-R03 SPY-R22"
RULES = select(load("spyre"), IDS.split())
Work = Callable[[Path, int], None]
SMALL = {"block_size": 4, "chunk_size": 8, "max_model_len": 32, "max_batch_tkv": 64}


class Faulty(ModelTarget):
    """Loses who waits, and with three requests shows no tokens."""

    def step(self) -> dict[str, Any]:
        """A step of the model, bent."""
        reply = super().step()
        step = reply["step"]
        if len(step["running"]) > 2:
            step["emitted"] = {}
        elif len(step["running"]) > 1:
            step["waiting"] = step["waiting"][:0]
        return reply


def gate(folder: Path, run: int) -> None:
    """A gate that finds, shrinks and reports two rules; each run has a seed of its own."""
    events = Ndjson(folder / f"events-{run}.ndjson")
    options = GateOptions(
        spec=TargetSpec("faulty", "factory", module="faulty", factory="make"),
        system="spyre",
        revision="sound",
        rules=RULES,
        chosen=True,
        profile_name="quick",
        seed=run,
        max_failures=2,
        out=folder / "out",
    )
    judge(GateContext(options, Faulty(), events))


def corpus(folder: Path, run: int) -> None:
    """Entries are added, and each is written again and again."""
    for number in range(10**6):
        add(folder / "out", number % 20 + 1)


def add(folder: Path, length: int) -> None:
    """Add an entry with a prompt of this length."""
    config = full_config("spyre", "sound", SMALL)
    request = Request(id="r0", arrival=0, prompt=(("r0", length),), max_tokens=3)
    scenario = Scenario(system="spyre", revision="sound", config=config, requests=(request,))
    corpus_folder.add(folder, scenario, corpus_folder.Origin("ALL-R03"))


def started(work: Work, folder: Path, run: int) -> int:
    """The id of a process that does the work."""
    child = os.fork()
    if child == 0:
        try:
            work(folder, run)
        finally:
            os._exit(0)
    return child


def killed(work: Work, folder: Path, run: int, after: float) -> bool:
    """Whether the work was still on when it was killed."""
    child = started(work, folder, run)
    time.sleep(after)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def undisturbed(work: Work, folder: Path, run: int) -> float:
    """Seconds that the work takes here and now, once all that it needs is imported."""
    work(folder, run)
    began = time.monotonic()
    os.waitpid(started(work, folder, run), 0)
    return time.monotonic() - began


def main() -> None:
    """Kill so many runs."""
    name, folder, kills = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    PROFILES["quick"] = Profile(examples=12, shrink_runs=8, shrink_attempts=12, corpus_steps=0)
    probing.SCALES = ("small",)
    set_hypothesis_home()
    dice = random.Random(name)
    if name == "gate":
        work, longest = gate, undisturbed(gate, folder, kills)
    else:
        add(folder / "before", 1)  # imports what each run needs
        work, longest = corpus, 0.05
    done = [killed(work, folder, run, dice.uniform(0.001, longest)) for run in range(kills)]
    print(json.dumps({"killed": sum(done), "ended": len(done) - sum(done)}))


if __name__ == "__main__":
    main()
