"""Rule coverage: of the changed decisions that show in a run, how many does a documented rule find?

`make rule-coverage` runs this (`SYSTEM=vllm`: one system; `SAMPLE=100`: so many changes of each,
drawn by `--seed`). The operators of cosmic-ray change the decisions of a system's model. A change
counts if lockstep tells it apart from the model: in one of the scenarios of this run a step
differs, up to the names of blocks. Then the documented rules are asked, without lockstep: the same
scenarios first, then a search as large as profile ci. A change that no rule finds survives; it is
a hole, or a choice that the document leaves open, which `open_choices.toml` lists with the
sentence.

A change exists only in the memory of the forked process that judges it.
"""

import argparse
import json
import os
import random
import resource
import signal
import sys
import tempfile
import tomllib
import traceback
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from check import MEMORY, Change, InMemory, Mutant, copied, mutants_of

LISTED = Path(__file__).with_name("open_choices.toml")
# Files of decisions: what is read, shown, or refused at the door is left out.
DECISIONS = {
    "spyre": ("admission", "blocks", "forward", "padding", "pausing", "peak", "scheduler", "tkv"),
    "vllm": ("kv_cache", "queue", "scheduler"),
    "nano_vllm": ("block_manager", "scheduler"),
    "llmservingsim": ("batches", "documented", "kv_cache", "scheduler", "completion"),
}
# Runs of each scale that lockstep is asked about, beside the seed corpus of the first.
SCALES = {"small": 150, "tight": 15}
SEARCHED = 400  # runs of each scale, as many as profile ci has
SECONDS = 240  # of processor time for one change


class Judged(NamedTuple):
    """What became of a change: `same` in all scenarios, `found` by a rule, or it `survives`."""

    became: str
    rule: str = ""


def observed(system: str, revision: str, scenarios: list[Any]) -> Iterator[list[Any]]:
    """The steps of each scenario on the model as it is loaded; a crash is a step, too."""
    from schedproof.model.target import ModelTarget
    from schedproof.properties.checking.replay import replay

    class Records(ModelTarget):
        def step(self) -> Any:
            reply = super().step()
            steps.append(reply["step"])
            return reply

    for scenario in scenarios:
        steps: list[Any] = []
        try:
            replay(Records(), scenario, ())
        except Exception as error:  # of the change, or a step that is none
            steps.append(type(error).__name__)
        yield steps


def differ(own: list[Any], steps: list[Any]) -> bool:
    """Some step differs, up to the names of blocks."""
    from schedproof.model.faults import TargetBroken
    from schedproof.model.replies import read_step
    from schedproof.properties.checking.lockstep import differences, equal_at_sight

    if len(own) != len(steps):
        return True
    for one, other in zip(own, steps, strict=True):
        if isinstance(one, str) or isinstance(other, str):
            if one != other:
                return True
        elif not equal_at_sight(one, other):
            try:
                read = [read_step({"ok": True, "step": seen}, frozenset()) for seen in (one, other)]
            except TargetBroken:
                return True
            if differences(*read):
                return True
    return False


def prepared(system: str) -> dict[str, Any]:
    """The scenarios of a system and what its model does in them, as JSON."""
    import msgspec

    from schedproof.gate.corpus.builtin_scenarios import seed_corpus
    from schedproof.model.scenario import Scenario
    from schedproof.model.target import ModelTarget
    from schedproof.properties.search.run import run_search
    from schedproof.properties.search.state import Hooks, Search, SearchOptions
    from schedproof.spec.systems import SYSTEMS

    revision, scenarios = SYSTEMS[system].revisions[0], list[Scenario]()
    corpus = seed_corpus(system, "small").values()
    scenarios += [msgspec.structs.replace(one, revision=revision) for one in corpus]
    for scale, runs in SCALES.items():
        search = SearchOptions(ModelTarget(), system, revision, (), scale)
        run_search(Search(search, Hooks(ended=scenarios.append)), runs, 0, 0)
    steps = list(observed(system, revision, scenarios))
    return {"revision": revision, "scenarios": msgspec.to_builtins(scenarios), "steps": steps}


def judged(system: str, known: dict[str, Any]) -> Judged:
    """Judge the model as it is loaded here, with its change."""
    import msgspec

    from schedproof.model.faults import TargetBroken
    from schedproof.model.scenario import Scenario
    from schedproof.model.target import ModelTarget
    from schedproof.properties.checking.replay import replay
    from schedproof.properties.predicates.rules import LOCKSTEP
    from schedproof.properties.search.run import run_search
    from schedproof.properties.search.state import Search, SearchOptions
    from schedproof.spec.catalogue import load

    revision = known["revision"]
    scenarios = msgspec.convert(known["scenarios"], list[Scenario], strict=False)
    own = observed(system, revision, scenarios)
    shows = [
        scenario
        for scenario, steps, meant in zip(scenarios, own, known["steps"], strict=True)
        if differ(steps, meant)
    ]
    if not shows:
        return Judged("same")
    rules = [rule for rule in load(system) if rule.id != LOCKSTEP]
    try:
        for scenario in shows:
            if broken := replay(ModelTarget(), scenario, rules).broken:
                return Judged("found", broken[0].rule)
        for scale in SCALES:
            search = Search(SearchOptions(ModelTarget(), system, revision, rules, scale))
            if run_search(search, SEARCHED, 0, 0) and search.failure is not None:
                return Judged("found", search.failure[1][0].rule)
    except TargetBroken:
        return Judged("found", "no step observation")
    return Judged("survives")


def start(copy: Path, system: str, mutant: Mutant | None, data: Path, out: Path) -> int:
    """The id of a process that judges a change, or prepares the scenarios where there is none."""
    pid = os.fork()
    if pid:
        return pid
    try:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        if mutant is None:
            data.write_text(json.dumps(prepared(system)), encoding="utf-8")
            os._exit(0)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        path = copy / "model" / mutant.change.file
        module = ".".join(path.relative_to(copy.parent).with_suffix("").parts)
        sys.meta_path.insert(0, InMemory(module, path, mutant.text))
        try:
            import_module(module)
        except Exception:
            out.write_text(json.dumps(Judged("same")), encoding="utf-8")
            os._exit(0)
        known = json.loads(data.read_text(encoding="utf-8"))
        out.write_text(json.dumps(judged(system, known)), encoding="utf-8")
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def judged_all(
    copy: Path, system: str, mutants: list[Mutant], jobs: int
) -> Iterator[tuple[Mutant, Judged]]:
    """Each change with what became of it; one that hangs or needs too much memory is found."""
    data = copy.parent / f"{system}.json"
    if os.waitstatus_to_exitcode(os.waitpid(start(copy, system, None, data, data), 0)[1]):
        sys.exit(f"{system}: the scenarios cannot be made")
    running: dict[int, tuple[Mutant, Path]] = {}
    waiting = iter(enumerate(mutants))
    while True:
        while len(running) < jobs and (following := next(waiting, None)):
            number, mutant = following
            out = copy.parent / f"{system}-{number}.json"
            running[start(copy, system, mutant, data, out)] = mutant, out
        if not running:
            return
        pid, status = os.wait()
        mutant, out = running.pop(pid)
        if os.waitstatus_to_exitcode(status) == -signal.SIGPROF:
            yield mutant, Judged("found", "ALL-R02")
        elif out.exists():
            yield mutant, Judged(*json.loads(out.read_text(encoding="utf-8")))
        else:
            sys.exit(f"could not judge {mutant.change}")


def main() -> int:
    """Judge the changes and print the figures; 1 where one survives that is not listed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("systems", nargs="*", default=[], help=f"of {', '.join(DECISIONS)}")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--sample", type=int, default=0, help="changes of each system; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    reasons = {
        Change(one["file"], one["place"], one["before"], one["after"]): one["reason"]
        for one in tomllib.loads(LISTED.read_text(encoding="utf-8")).get("choice", ())
    }
    rows, holes = [], 0
    with tempfile.TemporaryDirectory() as folder:
        copy = copied(folder)
        for system in given.systems or DECISIONS:
            files = [f"{system}/{name}.py" for name in DECISIONS[system]]
            mutants = [one for file in files for one in mutants_of(copy / "model", file)]
            every = len(mutants)
            if given.sample:
                mutants = random.Random(given.seed).sample(mutants, min(given.sample, every))
            became = Counter[str]()
            for mutant, result in judged_all(copy, system, mutants, given.jobs):
                is_open = result.became == "survives" and mutant.change in reasons
                became["open" if is_open else result.became] += 1
                if result.became == "survives" and not is_open:
                    holes += 1
                    print(f"survives: line {mutant.line} {mutant.change}", flush=True)
            rows.append((system, every, became))
    heads = "system", "changes", "judged", "show in a run", "found", "left open", "survive", "share"
    print(f"| {' | '.join(heads)} |")
    print("|---" * len(heads) + "|")
    for system, every, became in rows:
        show = became["found"] + became["open"] + became["survives"]
        share = became["found"] / max(became["found"] + became["survives"], 1)
        print(
            f"| {system} | {every} | {became.total()} | {show} | {became['found']} | "
            f"{became['open']} | {became['survives']} | {share:.1%} |"
        )
    return 1 if holes else 0


if __name__ == "__main__":
    sys.exit(main())
