"""Time to find: which share of the changed decisions does a gate find by itself, and how soon?

    make tool NAME=mutation.time_to_find OPTIONS="vllm --sample 40"

This tries 40 changes from each list of `rule_coverage` (0: all), drawn by `--seed`. Only changes
that show in a run and that the document does not leave open are measured. Each change is judged
without the comparison with the model, in its own process:

- by a whole gate of the profile `quick`, with each of `--seeds` seeds;
- by a gate of the profile `ci`;
- by plain Hypothesis with the same rules. It draws lists of requests uniformly, in configurations
  as small as those of the gate.

The time is the CPU time until the first finding, including the rest of the stage that found it. If
nothing is found, the time is a lower bound. Changes that some seed of `quick` misses are named on
stderr. `--json FILE` writes each change with its times.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from schedproof.tools.mutation.operators import Mutant
from schedproof.tools.mutation.rule_coverage import (
    JUDGED,
    LATE,
    Judging,
    ask_all,
    lists_of,
    rules_of,
    sampled,
    shown,
)
from schedproof.tools.mutation.times import Took, rows

CI, PLAIN = "gate, ci, seed 0", "plain Hypothesis"
PLAIN_SECONDS = 10.0  # CPU seconds for one change
SECONDS = 1_500  # CPU seconds for one change and all engines together


def quick(seed: int) -> str:
    """Return the column name of a gate of the profile quick with this seed."""
    return f"gate, quick, seed {seed}"


def time_engines(seeds: int, judging: Judging, known: dict[str, Any]) -> dict[str, Took] | None:
    """Run every engine on the changed model that is loaded in this process, and return the times.

    Return None if the change shows in no step. `seeds` is the number of quick gates.
    """
    if not any(True for _ in shown(judging, known)):
        return None
    from schedproof.model.faults import TargetBroken
    from schedproof.model.target import ModelTarget
    from schedproof.tools.benchmarks import plain
    from schedproof.tools.benchmarks.finding import Sought, by_plain, warm_up

    sought = Sought(ModelTarget(), judging.system, judging.revision, rules_of(judging))
    with suppress(TargetBroken):
        warm_up([(judging.system, judging.revision)])
    engines: dict[str, Callable[[], Any]] = {
        quick(seed): partial(by_whole_gate, judging, "quick", seed) for seed in range(seeds)
    }
    engines[CI] = partial(by_whole_gate, judging, "ci", 0)
    engines[PLAIN] = lambda: by_plain(sought, plain.by_hypothesis, PLAIN_SECONDS)
    return {engine: Took(*_trial(look)) for engine, look in engines.items()}


def by_whole_gate(judging: Judging, profile: str, seed: int) -> Any:
    """Run a gate as a user would, but without shrinking, until a stage has a finding."""
    from schedproof.gate.judging.context import GateContext, GateOptions
    from schedproof.gate.judging.judge import judge
    from schedproof.gate.targets.target_spec import model_spec
    from schedproof.model.target import ModelTarget
    from schedproof.properties.explanations.evidence import Evidence
    from schedproof.tools.benchmarks.finding import Trial

    # Explanations run the models; in this process, those are changed.
    Evidence.cause = lambda *_: None  # type: ignore[method-assign]
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        options = GateOptions(
            model_spec(None),
            judging.system,
            judging.revision,
            rules_of(judging),
            profile_name=profile,
            seed=seed,
            max_failures=0,
            out=Path(folder),
            first_only=True,
            compare_with="none",
        )
        verdict = judge(GateContext(options, ModelTarget(), lambda _: None))
    steps = sum(run.steps for run in verdict.engines)
    found = bool(verdict.findings or verdict.fault)
    return Trial(found, time.process_time() - began, 0, steps)


def _trial(look: Any) -> tuple[bool, float, int]:
    """Return whether the fault was found, and the seconds and steps that it took. An invalid
    reply counts as found."""
    from schedproof.model.faults import TargetBroken

    began = time.process_time()
    try:
        trial = look()
    except TargetBroken:
        return True, time.process_time() - began, 0
    return trial.found, trial.seconds, trial.steps


def _name_missed(judging: Judging, mutant: Mutant, trial: dict[str, Took]) -> None:
    """Name the change on stderr if a gate of the profile quick missed it."""
    if any(name.startswith("gate, quick") and not took.found for name, took in trial.items()):
        by = ", ".join(name for name, took in trial.items() if took.found) or "nothing"
        where = f"{judging.revision}, line {mutant.line} {mutant.change}"
        print(f"{where}: found by {by}", file=sys.stderr, flush=True)


def main() -> int:
    """Measure the times and print the table."""
    systems = list(dict.fromkeys(judging.system for judging in JUDGED))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("systems", nargs="*", default=systems, help=f"of {', '.join(systems)}")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--sample", type=int, default=40, help="changes of each list; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=3, help="gates of the profile quick")
    parser.add_argument(
        "--json", type=Path, help="write a line for each measured change to this file"
    )
    given = parser.parse_args()
    heads = "system", "engine", "changes", "found", "median", "95th percentile", "median of steps"
    print(f"| {' | '.join(heads)} |")
    print("|---" * len(heads) + "|", flush=True)
    every: list[dict[str, Took]] = []
    hung = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        (given.json or Path(os.devnull)).open("w", buffering=1, encoding="utf-8") as kept,
    ):
        for system in given.systems:
            trials: list[dict[str, Took]] = []
            for judging in (entry for entry in JUDGED if entry.system == system):
                for mutants in lists_of(judging).values():
                    closed = [candidate for candidate in mutants if not candidate.is_open]
                    drawn = sampled(closed, given.sample, given.seed)
                    answers = ask_all(
                        Path(folder),
                        judging,
                        drawn,
                        given.jobs,
                        partial(time_engines, given.seeds),
                        SECONDS,
                    )
                    for mutant, answer in answers:
                        if answer == LATE:
                            hung += 1
                        elif answer is not None:
                            trials.append(
                                {name: Took(*answered) for name, answered in answer.items()}
                            )
                            change = {"revision": judging.revision, "change": mutant.change}
                            kept.write(json.dumps({**change, "took": answer}) + "\n")
                            _name_missed(judging, mutant, trials[-1])
            print(*rows(system, trials), sep="\n", flush=True)
            every += trials
    print(*rows("all", every), sep="\n")
    print(f"Left out: {hung} changes that make a model hang or take all memory.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
