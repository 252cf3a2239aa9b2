"""Check that the suite finds what it should: witnesses, mutants, agreement of the engines."""

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from rich.console import Console
from rich.markup import escape

from ...model.errors import InputError
from ...properties.mutants.systems import out_of_scope
from ...spec.catalogue import load
from ...spec.systems import SYSTEMS
from ..console import output
from ..console.exit_codes import BROKEN, CONFORMS, INCONCLUSIVE
from ..console.interrupts import why
from ..judging.hypothesis_home import set_hypothesis_home
from ..processes.watchdog import end_with_parent
from . import agreement
from .agreement import Row
from .suite import Answer, Killed, Witnessed, kill, lockstep_witness, mutants, witnesses

PARTS = ("witnesses", "mutants", "agreement")
# Models on which every rule holds, and those that a release is compared with.
HOLDING = (
    ("spyre", "sound"),
    ("spyre", "2.5.2"),
    ("vllm", "documented"),
    ("nano_vllm", "documented"),
    ("llmservingsim", "documented"),
    ("llmservingsim", "head"),
    ("generic", "documented"),
)
COMPARED = (
    ("spyre", "2.1.2"),
    ("spyre", "2.5.2"),
    ("vllm", "documented"),
    ("nano_vllm", "0.2.0"),
    ("llmservingsim", "head"),
)
Task = tuple[Callable[..., Any], tuple[Any, ...]]


def check_parts(only: Sequence[str], jobs: int) -> Sequence[str]:
    """What is to be checked.

    Raises:
        InputError: an unknown part, or no process.
    """
    for name in only:
        if name not in PARTS:
            raise InputError("--only", f"{name!r}; valid: {', '.join(PARTS)}")
    if jobs < 1:
        raise InputError("--jobs", f"{jobs}; valid: at least 1")
    return only or PARTS


def run(console: Console, parts: Sequence[str], jobs: int, quick: bool = False) -> int:
    """Everything that `parts` names; the exit code. `quick`: one engine that answers is enough."""
    began = time.monotonic()
    tasks: list[Task] = []
    if "agreement" in parts:
        tasks += [(volume_table, (formula,)) for formula in agreement.FORMULAS]
        tasks += [(decided_table, ())]
        tasks += [(rules_table, (revision,)) for revision in agreement.REVISIONS]
    if "witnesses" in parts:
        tasks += [(witnesses, (*task, quick)) for task in HOLDING]
        tasks += [(lockstep_witness, task) for task in COMPARED]
    if "mutants" in parts:
        tasks += [(kill, (number, quick)) for number in range(len(mutants()))]
    results: list[Any] = []
    faults: list[str] = []
    try:
        with output.busy(console, "checking") as progress:
            for number, result in enumerate(answered(tasks, jobs), start=1):
                progress(f"{number} of {len(tasks)}")
                for one in result if isinstance(result, list) else [result]:
                    results.append(one)
                    faults += tell(console, one)
    except KeyboardInterrupt:
        output.fail(f"{why()}: this is what was checked until then")
        return INCONCLUSIVE
    except BrokenProcessPool:
        output.fail("a process of the check died; no verdict")
        return INCONCLUSIVE
    if set(PARTS) == set(parts):
        faults += vacuous(results)
    return conclude(console, results, faults, time.monotonic() - began)


def answered(tasks: Sequence[Task], jobs: int) -> Iterator[Any]:
    """The results as they come, from `jobs` processes."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin_worker)
    try:
        futures: list[Future[Any]] = [pool.submit(work, *args) for work, args in tasks]
        for future in as_completed(futures):
            yield future.result()
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin_worker() -> None:
    end_with_parent()
    set_hypothesis_home()


def volume_table(formula: str) -> list[Row]:
    """SPY-R07 by one formula."""
    return list(agreement.volume_rows([formula]))


def decided_table() -> list[Row]:
    """The rules that Z3 proves."""
    return list(agreement.decided_rows())


def rules_table(revision: str) -> list[Row]:
    """Every rule on one revision."""
    return list(agreement.rule_rows(revision))


def tell(console: Console, one: Any) -> list[str]:
    """One line; and what is wrong with it."""
    fault: str | None
    if isinstance(one, str):
        line, fault = one, one
    elif isinstance(one, Killed):
        what = f"{one.bug} {one.name}".strip()
        line, fault = f"mutant   {one.rule:<8} {what}: {_answers(one.answers)}", one.fault
    elif isinstance(one, Witnessed):
        line, fault = (
            f"witness  {one.rule:<8} {one.system} {one.revision}: {_answers(one.answers)}",
            one.fault,
        )
    else:
        engines = f"hypothesis {one.hypothesis}, explorer {one.explorer}, Z3 {one.z3}"
        remark = f" ({one.remark})" if one.remark else ""
        line = f"agree    {one.rule:<8} {one.revision}, {one.config}: {engines}{remark}"
        fault = one.disagreement and f"{one.rule}, {one.revision}, {one.config}: {one.remark}"
    style = "[red]FAULT[/red] " if fault else ""
    console.print(f"{style}{escape(line)}")
    return [fault] if fault else []


def vacuous(results: Sequence[Any]) -> list[str]:
    """Checked rules that lack a witness or a mutant."""
    sound = [one for one in results if isinstance(one, (Witnessed, Killed)) and not one.fault]
    witnessed = {(one.system, one.rule) for one in sound if isinstance(one, Witnessed)}
    killed = {(one.system, one.rule) for one in sound if isinstance(one, Killed)}
    return [
        f"{rule.id} ({system}) is vacuous: it has no {what}"
        for system in SYSTEMS
        for rule in load(system)
        if rule.checked
        for what, having in (("witness", witnessed), ("mutant", killed))
        if (system, rule.id) not in having
    ]


def conclude(
    console: Console, results: Sequence[Any], faults: Sequence[str], seconds: float
) -> int:
    """The sums, the faults, and the exit code."""
    killed = [one for one in results if isinstance(one, Killed)]
    witnessed = [one for one in results if isinstance(one, Witnessed)]
    rows = [one for one in results if isinstance(one, Row)]
    counts = []
    if witnessed:
        rules = {(one.system, one.rule) for one in witnessed}
        counts.append(f"{len(rules)} rules exercised")
    if killed:
        bugs = {one.bug for one in killed if one.bug}
        both = sum(all(answer.found for answer in one.answers) for one in killed)
        counts.append(
            f"{len(killed)} mutants, {len(bugs)} of them published bugs "
            f"({sum(len(out_of_scope(system)) for system in SYSTEMS)} more are out of scope); "
            f"{both} killed by every engine asked"
        )
    if rows:
        doubtful = sum("inconclusive" in (one.explorer, one.hypothesis) for one in rows)
        counts.append(f"{len(rows)} rows compared, {doubtful} without an answer")
    for fault in faults:
        console.print(f"[red]FAULT[/red] {escape(fault)}")
    word = f"{len(faults)} faults" if faults else "no fault"
    console.print(f"{word}; {'; '.join(counts)}; {seconds:.0f} s", style="bold", markup=False)
    if faults:
        return BROKEN
    return CONFORMS if results else INCONCLUSIVE


def _answers(answers: Sequence[Answer]) -> str:
    return "; ".join(
        f"{one.engine} {'' if one.found else 'does not find it: '}"
        f"{f'{one.seconds:.1f} s, ' if one.found else ''}{one.how}"
        for one in answers
    )
