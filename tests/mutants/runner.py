"""Does schedproof find what it should? `make selfcheck` runs this.

A rule is vacuous unless its witness occurs and it names a planted fault. Hypothesis and the
explorer are both given every fault: what one finds and the other does not has a reason in the
fault's entry, or is a failure. Agreement: what one engine proves, no other may refute.
"""

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from importlib import import_module
from itertools import chain
from typing import Any, NamedTuple

from schedproof.gate.judging.profiles import set_hypothesis_home
from schedproof.gate.targets.checkouts import known_checkouts
from schedproof.spec.catalogue import load
from schedproof.spec.systems import SYSTEMS
from schedproof.tests.mutants.faults import (
    RUNS,
    Fault,
    kept_runs,
    mutants_of,
    out_of_scope,
    problems,
    repaired,
)
from schedproof.tests.mutants.planting import imported_anew, planted

PARTS = ("witnesses", "mutants", "known-bugs", "agreement")
SEEDS = range(12)  # some faults show only where several choices meet: one seed in three finds them
# Models that break a rule as their release, or document, does.
BROKEN = {
    ("spyre", "documented"),
    ("spyre", "2.1.2"),
    ("nano_vllm", "0.2.0"),
    ("vllm", "0.31"),
    ("vllm", "0.33"),
}
ALIKE = {("vllm", "0.30")}  # as 0.25, except for padding with drafts
HOLDING = tuple(
    (name, revision)
    for name, system in SYSTEMS.items()
    for revision in system.revisions
    if (name, revision) not in BROKEN | ALIKE
)


def compared() -> tuple[tuple[str, str], ...]:
    """The models that a release or a checkout is compared with, each with its system."""
    newer = {(checkout.system, checkout.revisions[0]) for checkout in known_checkouts().values()}
    alike = {
        (name, revision)
        for name, system in SYSTEMS.items()
        for version, revision in system.decides_as.items()
        if version != revision
    }
    return tuple(sorted(newer | alike))


Task = tuple[Callable[..., Any], tuple[Any, ...]]


class Answer(NamedTuple):
    """The answer of one engine: whether it detects the fault, after how many seconds, and after how
    much of what it counts."""

    engine: str
    detected: bool
    seconds: float
    how: str

    def __str__(self) -> str:
        if self.detected:
            return f"{self.engine} {self.seconds:.1f} s, {self.how}"
        return f"{self.engine} does not find it: {self.how}"


class Result(NamedTuple):
    """A line of the report, and what is wrong with it. `proves`: "witness" or "mutant" of which
    rule of a system it is."""

    line: str
    fault: str | None = None
    proves: tuple[str, str, str] | None = None


def judge(fault: Fault, quick: bool) -> tuple[Answer, ...]:
    """Plant a fault and ask the engines."""
    with planted(fault) as target:
        return ask(import_module("schedproof.tests.mutants.engines"), fault, target, quick)


def ask(engines: Any, fault: Fault, target: Any, quick: bool) -> tuple[Answer, ...]:
    """Ask the engines that can find a fault. `quick`: judge by its rule alone, the seed corpus
    first, until an engine finds it."""
    if fault.workload:
        return (Answer(*engines.by_workloads(fault, target)),)
    explores = engines.explorable(fault)
    if quick:
        short = [partial(engines.by_seeds, fault, target)]
        if "hypothesis" not in fault.excused:
            short.append(partial(engines.by_hypothesis, fault, target, [0], "quick", alone=True))
        if explores and "explorer" not in fault.excused:
            short.append(partial(engines.by_explorer, fault))
        answers = (Answer(*engine()) for engine in short)
        if first := next((answer for answer in answers if answer.detected), None):
            return (first,)
    sampled = partial(engines.by_hypothesis, fault, target, SEEDS, "ci", alone=quick)
    full = {"hypothesis": sampled}
    if explores:
        full["explorer"] = partial(engines.by_explorer, fault)
    return tuple(
        Answer(name, False, 0.0, fault.excused[name])
        if name in fault.excused
        else Answer(*engine())
        for name, engine in full.items()
    )


def verdict(fault: Fault, answers: Sequence[Answer]) -> str | None:
    """Why these answers are a failure of the suite, or None."""
    if not any(answer.detected for answer in answers):
        return f"{fault.does} ({fault.rule}) survives"
    for answer in answers:
        if not answer.detected and answer.engine not in fault.excused:
            return f"{fault.does} ({fault.rule}) is not found by {answer.engine}: {answer.how}"
    return None


def mutant(system: str, number: int, quick: bool) -> list[Result]:
    """Judge one fault of a system."""
    fault = mutants_of(system)[number]
    answers = judge(fault, quick)
    line = f"mutant   {fault.rule:<8} {fault.label}: {'; '.join(map(str, answers))}"
    return [Result(line, verdict(fault, answers), ("mutant", system, fault.rule))]


def kept(system: str, number: int) -> tuple[str, str, str | None]:
    """The run to keep for one fault of a system, with the system and the fault's label; an empty
    one where a seed finds it."""
    fault = mutants_of(system)[number]
    with planted(fault) as target:
        engines: Any = import_module("schedproof.tests.mutants.engines")
        in_seeds = engines.by_seeds(fault, target)[1]
        return system, fault.label, "" if in_seeds else engines.run_to_keep(fault, target, SEEDS)


def keep(systems: Iterable[str], jobs: int) -> int:
    """Keep a run for each fault that no seed finds; 1 if an engine finds none for a fault."""
    todo = [(kept, (name, n)) for name in systems for n in range(len(mutants_of(name)))]
    missing = 0
    for system, label, run in results(todo, jobs):
        if run is None:
            print(f"no run for {label}", flush=True)
            missing += 1
        elif run:
            path = RUNS / f"{system}.json"
            runs = {**kept_runs(system), label: json.loads(run)}
            rows = (f"{json.dumps(name)}: {json.dumps(runs[name])}" for name in sorted(runs))
            path.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
            print(f"kept for {label}", flush=True)
    return int(missing > 0)


def witness(system: str, revision: str, quick: bool) -> list[Result]:
    """Where each rule of a revision that breaks none is exercised."""
    with imported_anew(repaired(system, revision).sources()):
        engines: Any = import_module("schedproof.tests.mutants.engines")
        by_rule, broken = engines.witnesses(system, revision, quick)
    return [Result(line, line) for line in broken] + [
        _witnessed(system, revision, rule, [Answer(*answer) for answer in answers])
        for rule, answers in by_rule.items()
    ]


def lockstep_witness(system: str, revision: str) -> list[Result]:
    """Where a target that decides as its model does is compared with it."""
    engines: Any = import_module("schedproof.tests.mutants.engines")
    answer = Answer(*engines.lockstep_witness(system, revision))
    return [_witnessed(system, revision, "ALL-R07", [answer] if answer.detected else [])]


def _witnessed(system: str, revision: str, rule: str, answers: Sequence[Answer]) -> Result:
    line = f"witness  {rule:<8} {system} {revision}: {'; '.join(map(str, answers))}"
    fault = None if answers else f"{rule} ({system}) is never exercised"
    return Result(line, fault, ("witness", system, rule))


def agreement(function: str, *args: Any) -> list[Result]:
    """Rows of a comparison of the engines."""
    rows: Any = import_module("schedproof.tests.mutants.agreement")
    return [Result(row.line, row.fault) for row in getattr(rows, function)(*args)]


def tasks(parts: Sequence[str], quick: bool, systems: Iterable[str] = SYSTEMS) -> list[Task]:
    """What is to be judged, the longest first; `systems`: whose planted faults."""
    listed: list[Task] = []
    if "agreement" in parts:
        rows: Any = import_module("schedproof.tests.mutants.agreement")
        listed += [(agreement, ("volume_rows", (formula,))) for formula in rows.FORMULAS]
        listed += [(agreement, ("decided_rows",))]
        listed += [(agreement, ("rule_rows", revision)) for revision in rows.REVISIONS]
    if "witnesses" in parts:
        listed += [(witness, (*task, quick)) for task in HOLDING]
        listed += [(lockstep_witness, task) for task in compared()]
    for system in systems:
        for number, fault in enumerate(mutants_of(system)):
            if "mutants" in parts or (fault.bug and "known-bugs" in parts):
                listed.append((mutant, (system, number, quick)))
    return listed


def results(todo: Sequence[Task], jobs: int) -> Iterator[Any]:
    """Yield results as they come, from `jobs` processes."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=set_hypothesis_home)
    try:
        for future in as_completed([pool.submit(work, *args) for work, args in todo]):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def vacuous(judged: Iterable[Result]) -> list[str]:
    """Checked rules without a witness or without a fault that they name."""
    proven = {result.proves for result in judged if not result.fault}
    return [
        f"{rule.id} ({system}) is vacuous: it has no {what}"
        for system in SYSTEMS
        for rule in load(system)
        if rule.checked
        for what in ("witness", "mutant")
        if (what, system, rule.id) not in proven
    ]


def report(judged: Iterable[Result], parts: Sequence[str]) -> int:
    """Print each result and the faults; 1 if there is one."""
    began, every, faults = time.monotonic(), list[Result](), list[str]()
    for result in judged:
        print(f"{'FAULT ' if result.fault else ''}{result.line}", flush=True)
        every.append(result)
        faults += [result.fault] if result.fault else []
    if {"witnesses", "mutants"} <= {*parts}:
        faults += vacuous(every)
    print(*(f"FAULT {fault}" for fault in faults), sep="\n")
    scoped = sum(len(out_of_scope(system)) for system in SYSTEMS)
    print(
        f"{len(faults) or 'no'} faults in {len(every)} results "
        f"({scoped} published bugs are out of scope); {time.monotonic() - began:.0f} s"
    )
    return 1 if faults or not every else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=PARTS, help="may be repeated")
    parser.add_argument("--system", choices=SYSTEMS, help="plant the faults of this system only")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="one engine that finds it is enough")
    parser.add_argument("--keep", action="store_true", help="a run for each fault without seed")
    parser.add_argument("--check", action="store_true", help="only whether every entry applies")
    given = parser.parse_args()
    systems: Iterable[str] = [given.system] if given.system else SYSTEMS
    parts = given.only or PARTS
    if given.check or {"mutants", "known-bugs"} & {*parts}:
        # A fault that cannot be planted is reported before minutes are spent on the others.
        stale = [*problems(systems)]
        if given.check or stale:
            print(*stale, sep="\n")
            return int(bool(stale))
    if given.keep:
        return keep(systems, given.jobs)
    judged = results(tasks(parts, given.quick, systems), given.jobs)
    return report(chain.from_iterable(judged), parts)


if __name__ == "__main__":
    sys.exit(main())
