"""Rule coverage: of the changed decisions that show in a run, how many does a documented rule find?

    make tool NAME=mutation.rule_coverage OPTIONS="vllm --sample 100"

This judges 100 changes from each of two lists (0: all), drawn by `--seed`. One list contains
changes that the operators of cosmic-ray make to the decisions of a system's model; the other
contains changes written by hand, in `tests/mutants`.

A change counts only if it shows in a run: in some scenario, the changed model takes a step that
differs from the original model's by more than the names of blocks. Then the documented rules,
without the comparison with the model, judge first the same scenarios and then a search as large as
in the `ci` profile.

A change that no rule finds survives. It is either a hole in the rules, or a choice that the
document leaves open. `rule_survivors.toml` or `tests/mutants` says which, and why. A change exists
only in the memory of the forked process that judges it.
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
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from schedproof.tests.mutants import faults
from schedproof.tests.mutants.planting import imported_anew
from schedproof.tools.mutation.check import MEMORY
from schedproof.tools.mutation.operators import Change, Mutant, mutants_of

LISTED = Path(__file__).with_name("rule_survivors.toml")
REACHED = 0.95


class Judging(NamedTuple):
    """A revision, the documented rules that its model breaks (`breaks`), and the files that
    contain its decisions. Files that only read, print or refuse are left out."""

    system: str
    revision: str
    files: tuple[str, ...]
    breaks: frozenset[str] = frozenset()


SPYRE = ("documented", "blocks", "forward", "peak", "scheduler")
NANO_VLLM = ("block_manager", "documented", "scheduler")
LLMSERVINGSIM = ("kv_cache", "scheduler")
JUDGED = (
    Judging("spyre", "sound", SPYRE),
    Judging("vllm", "documented", ("kv_cache", "queue", "scheduler", "speculation")),
    Judging("nano_vllm", "documented", NANO_VLLM),
    # NAN-R40: the deck limits the running sequences; the release limits the sequences in a step.
    Judging("nano_vllm", "0.2.0", (*NANO_VLLM, "release_0_2_0"), frozenset({"NAN-R40"})),
    Judging("llmservingsim", "documented", (*LLMSERVINGSIM, "documented")),
    # LSS-R32: with a pipeline, a request of the head of the branch may emit before its prompt is
    # computed.
    Judging("llmservingsim", "head", (*LLMSERVINGSIM, "head"), frozenset({"LSS-R32"})),
)
# Runs per scale that look for a visible difference, in addition to the seed corpus of the first
# scale.
SCALES = {"small": 150, "tight": 15}
SEARCHED = 400  # runs per scale, as in the `ci` profile
SECONDS = 150  # CPU seconds for one change
LATE = "late"  # the answer for a change that hangs or needs too much memory


class MutantVerdict(NamedTuple):
    """The result for a change. `became` is "same" if it shows in no step, "found" if a rule
    finds it, "late" if it hangs (which counts as found), and "survives" otherwise."""

    became: str
    rule: str = ""


def observe(system: str, revision: str, scenarios: list[Any]) -> Iterator[list[Any]]:
    """Yield the steps of each scenario on the model that is loaded in this process. A crash
    counts as a step."""
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
        except Exception as error:  # raised by the change, or by an invalid step
            steps.append(type(error).__name__)
        yield steps


def differ(own: list[Any], steps: list[Any]) -> bool:
    """Return whether a step differs in more than the names of blocks."""
    from schedproof.model.faults import TargetBroken
    from schedproof.model.replies import read_step
    from schedproof.properties.checking.lockstep import differences, equal_at_sight

    if len(own) != len(steps):
        return True
    for step, other in zip(own, steps, strict=True):
        if isinstance(step, str) or isinstance(other, str):
            if step != other:
                return True
        elif not equal_at_sight(step, other):
            try:
                read = [
                    read_step({"ok": True, "step": seen}, frozenset()) for seen in (step, other)
                ]
            except TargetBroken:
                return True
            if differences(*read):
                return True
    return False


def prepare(judging: Judging) -> dict[str, Any]:
    """Return, as JSON, the scenarios for a revision, and the steps that its model takes in them."""
    import msgspec

    from schedproof.gate.corpus.folder import seed_corpus
    from schedproof.model.scenario import Scenario
    from schedproof.model.target import ModelTarget
    from schedproof.properties.search.run import run_search
    from schedproof.properties.search.state import Hooks, Search, SearchOptions

    system, revision, scenarios = judging.system, judging.revision, list[Scenario]()
    corpus = seed_corpus(system, "small").values()
    scenarios += [msgspec.structs.replace(scenario, revision=revision) for scenario in corpus]
    for scale, runs in SCALES.items():
        search = SearchOptions(ModelTarget(), system, revision, (), scale)
        run_search(Search(search, Hooks(ended=scenarios.append)), runs, 0, 0)
    steps = list(observe(system, revision, scenarios))
    return {"scenarios": msgspec.to_builtins(scenarios), "steps": steps}


def shown(judging: Judging, known: dict[str, Any]) -> Iterator[Any]:
    """Yield the scenarios that show the change, on the changed model that is loaded in this
    process."""
    import msgspec

    from schedproof.model.scenario import Scenario

    scenarios = msgspec.convert(known["scenarios"], list[Scenario], strict=False)
    own = observe(judging.system, judging.revision, scenarios)
    for scenario, steps, meant in zip(scenarios, own, known["steps"], strict=True):
        if differ(steps, meant):
            yield scenario


def rules_of(judging: Judging) -> list[Any]:
    """Return the documented rules that the model does not break."""
    from schedproof.properties.rules.registry import LOCKSTEP
    from schedproof.spec.catalogue import load

    return [rule for rule in load(judging.system) if rule.id not in {LOCKSTEP, *judging.breaks}]


def judged(judging: Judging, known: dict[str, Any]) -> MutantVerdict | None:
    """Judge the changed model that is loaded in this process. Return None if the change shows in
    no step."""
    from schedproof.model.faults import TargetBroken
    from schedproof.model.target import ModelTarget
    from schedproof.properties.checking.replay import replay
    from schedproof.properties.search.run import run_search
    from schedproof.properties.search.state import Search, SearchOptions

    shows, rules = [*shown(judging, known)], rules_of(judging)
    if not shows:
        return None
    try:
        for scenario in shows:
            if broken := replay(ModelTarget(), scenario, rules).broken:
                return MutantVerdict("found", broken[0].rule)
        for scale in SCALES:
            options = SearchOptions(ModelTarget(), judging.system, judging.revision, rules, scale)
            search = Search(options)
            if run_search(search, SEARCHED, 0, 0) and search.failure is not None:
                return MutantVerdict("found", search.failure[1][0].rule)
    except TargetBroken:
        return MutantVerdict("found", "no step observation")
    return MutantVerdict("survives")


# A question about the model that is loaded in this process. The answer is JSON, or None if the
# change shows in no step.
Question = Callable[[Judging, dict[str, Any]], Any]


def start(
    judging: Judging,
    mutant: Mutant | None,
    data: Path,
    out: Path,
    question: Question,
    seconds: float,
) -> int:
    """Start a process that answers the question for a change, and return its id.

    Without a change, the process prepares the scenarios. A change with which the module cannot be
    imported shows in no run.
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        if mutant is None:
            with imported_anew({}):
                data.write_text(json.dumps(prepare(judging)), encoding="utf-8")
            os._exit(0)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        with imported_anew(mutant.texts):
            try:
                for file in mutant.texts:
                    module = file.removesuffix(".py").replace("/", ".")
                    import_module(f"schedproof.model.{module}")
            except Exception:
                out.write_text("null", encoding="utf-8")
                os._exit(0)
            known = json.loads(data.read_text(encoding="utf-8"))
            out.write_text(json.dumps(question(judging, known)), encoding="utf-8")
            os._exit(0)
    except MemoryError:  # raised outside the target; inside it, it would be a finding
        out.write_text(json.dumps(LATE), encoding="utf-8")
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def ask_all(
    folder: Path,
    judging: Judging,
    mutants: list[Mutant],
    jobs: int,
    question: Question,
    seconds: float = SECONDS,
) -> Iterator[tuple[Mutant, Any]]:
    """Yield each change with the answer, or with `LATE` if it hangs or needs too much memory.

    `seconds` is the CPU time for each change.
    """
    data = folder / f"{judging.system}-{judging.revision}.json"
    prepares = start(judging, None, data, data, question, seconds)
    if os.waitstatus_to_exitcode(os.waitpid(prepares, 0)[1]):
        sys.exit(f"{judging.system} {judging.revision}: the scenarios cannot be made")
    running: dict[int, tuple[Mutant, Path]] = {}
    waiting = iter(enumerate(mutants))
    while True:
        while len(running) < jobs and (following := next(waiting, None)):
            number, mutant = following
            out = folder / f"change-{number}.json"
            running[start(judging, mutant, data, out, question, seconds)] = mutant, out
        if not running:
            return
        pid, status = os.wait()
        mutant, out = running.pop(pid)
        if os.waitstatus_to_exitcode(status) == -signal.SIGPROF:
            yield mutant, LATE
        elif out.exists():
            yield mutant, json.loads(out.read_text(encoding="utf-8"))
            out.unlink()
        else:
            sys.exit(f"could not judge {mutant.change}")


def judged_all(
    folder: Path, judging: Judging, mutants: list[Mutant], jobs: int
) -> Iterator[tuple[Mutant, MutantVerdict]]:
    """Yield each change with its result. A change that hangs or needs too much memory counts as
    found."""
    for mutant, answer in ask_all(folder, judging, mutants, jobs, judged):
        if answer == LATE:
            yield mutant, MutantVerdict("late", "ALL-R02")
        else:
            yield mutant, MutantVerdict("same") if answer is None else MutantVerdict(*answer)


def lists_of(judging: Judging) -> dict[str, list[Mutant]]:
    """Return two lists: the changes made by the operators, and those written by hand."""
    reasons = {
        Change(*[survivor[key] for key in Change._fields]): (
            survivor.get("open", ""),
            survivor.get("hole", ""),
        )
        for survivor in tomllib.loads(LISTED.read_text(encoding="utf-8"))["survivor"]
    }
    files = [f"{judging.system}/{name}.py" for name in judging.files]
    made = [mutant for file in files for mutant in mutants_of(file)]
    return {
        "operators": [Mutant(*mutant[:3], *reasons.get(mutant.change, ())) for mutant in made],
        "by hand": [*by_hand(judging.system)],
    }


def by_hand(system: str) -> Iterator[Mutant]:
    """Yield the changed decisions among a system's planted faults."""
    for fault in faults.by_hand(system):
        edit = fault.edits[0]
        source = (faults.MODEL / edit.file).read_text(encoding="utf-8")
        line = source[: source.index(edit.before)].count("\n") + 1
        change = Change(edit.file, fault.does, edit.before.strip(), edit.after.strip())
        yield Mutant(change, line, fault.sources(), fault.open, fault.hole)


def sampled(mutants: list[Mutant], size: int, seed: int) -> list[Mutant]:
    """Draw `size` changes from a list, as the seed determines. 0 means all."""
    return random.Random(seed).sample(mutants, min(size or len(mutants), len(mutants)))


def main() -> int:
    """Judge the changes and print the figures. Return 1 if an unlisted change survives or too
    few are found."""
    systems = list(dict.fromkeys(judging.system for judging in JUDGED))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("systems", nargs="*", default=systems, help=f"of {', '.join(systems)}")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--sample", type=int, default=0, help="changes of each list; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    failed = False
    heads = "system", "revision", "changes", "", "show in a run", "found", "left open", "survive"
    print(f"| {' | '.join((*heads, 'share'))} |")
    print("|---" * 9 + "|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for judging in JUDGED:
            if judging.system not in given.systems:
                continue
            for name, mutants in lists_of(judging).items():
                became = Counter[str]()
                drawn = sampled(mutants, given.sample, given.seed)
                for mutant, result in judged_all(Path(folder), judging, drawn, given.jobs):
                    survives = result.became == "survives"
                    became["open" if survives and mutant.is_open else result.became] += 1
                    if survives and not (mutant.is_open or mutant.hole):
                        failed = True
                        line = f"line {mutant.line} {mutant.change}"
                        print(
                            f"survives in {judging.revision}: {line}", file=sys.stderr, flush=True
                        )
                failed |= share_found(became) < REACHED
                print(row(judging, name, len(mutants), became), flush=True)
    return int(failed)


def share_found(became: Counter[str]) -> float:
    """Return the share of changes that a rule finds, among visible changes that the document
    does not leave open."""
    found = became["found"] + became["late"]
    return found / max(found + became["survives"], 1)


def row(judging: Judging, name: str, every: int, became: Counter[str]) -> str:
    """Return the row of the table with the figures for a list of changes."""
    late, left_open, survive = became["late"], became["open"], became["survives"]
    found = became["found"] + late
    changes = every if became.total() == every else f"{became.total()} of {every}"
    share = f"{share_found(became):.1%}"
    cells = (judging.system, judging.revision, name, changes)
    show = found + left_open + survive
    cell = f"{found} ({late} by a hang)" if late else found
    return f"| {' | '.join(str(c) for c in (*cells, show, cell, left_open, survive, share))} |"


if __name__ == "__main__":
    sys.exit(main())
