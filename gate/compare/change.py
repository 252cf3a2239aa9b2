"""Judge a changed scheduler against its base. Report only the rules that the change breaks or
repairs, and the decisions that differ."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from ...model.errors import InputError
from ...model.faults import TargetFault
from ...properties.shrinking.shrink import shrink
from ...spec.catalogue import Rule
from ..console import INCONCLUSIVE, output
from ..console.output import one_line, plural
from ..files.scenario_file import write_scenario
from ..judging.base import BaseOptions, Noted
from ..judging.context import BreakOff, GateContext
from ..judging.verdict import (
    AFTER_INTENDED,
    Change,
    Concluded,
    Differed,
    Event,
    Fault,
    Found,
    Verdict,
)
from ..reports.outcome import lines_of_code, shows_little
from ..reports.terminal import Terminal, print_coverage
from ..targets.target_spec import TargetSpec, replay_options
from .keeping import keep_differences

MOST = 12  # at most this many kinds of difference are shrunk and written to files
SHOWN = 5  # at most this many are printed if the change breaks no rule
BESIDE_FAULTS = 2  # at most this many are printed if the change breaks a rule
WHOLE = 2  # with more faults than this, their scenarios and `show` commands are not printed
BELOW = 4  # for each fault, how many possible consequences get a line
SEVERE = ("crash", "hang", "request", "blocks")  # kinds of fault that are printed in full
FEW = 3  # a rule counts as repaired if only the base breaks it, in at least this many runs
ATTEMPTS = 60  # shrink attempts for a scenario in which only the base breaks a rule


def base_options(base: TargetSpec, system: str, revision: str) -> BaseOptions:
    """Return the options of a gate's base. Raise InputError if the base belongs to another
    system."""
    if base.own_system not in (None, system):
        problem = f"{base.text} belongs to {base.own_system}; valid: a target of {system}"
        raise InputError("--base", problem)
    return BaseOptions(base, ((system, revision), (system, revision)))


def changes_of(gate: GateContext) -> Mapping[str, Any]:
    """Return the fields that the verdict has only if the gate has a base."""
    decisions: list[Change] = []
    repaired: list[Change] = []
    try:
        decisions = _decisions(gate)
        repaired = _repaired_rules(gate)
    except TargetFault as fault:
        gate.results.fault = gate.results.fault or BreakOff.of(fault, gate.stderr())
    except KeyboardInterrupt:
        gate.results.interrupted = True
    return {"decisions": tuple(decisions), "repaired": tuple(repaired)}


def _decisions(gate: GateContext) -> list[Change]:
    options = gate.options
    assert options.base is not None
    both = f"{options.replay_options_of(None)} --base {shlex.quote(options.base.spec.text)}"
    if options.base.spec.is_base:
        both = f"{options.replay_options_of(None)} --against-base"
    return [
        Change(
            kept.difference.shape,
            kept.path,
            kept.difference.step,
            output.unicode_text(kept.difference.message),
            f"schedproof replay {shlex.quote(kept.path)}{both}",
            kept.seen,
        )
        for kept in keep_differences(gate, MOST)
        if not kept.difference.breaks_rule
    ]


def _repaired_rules(gate: GateContext) -> list[Change]:
    """Return the rules that only the base breaks.

    A rule counts as repaired only if the change breaks it in no run and the base breaks it in
    several, because a change may avoid one or two failures by chance.
    """
    assert gate.base is not None
    base, options = gate.base, gate.options
    assert options.base is not None
    ours = {
        rule for finding in gate.results.findings for rule in (finding.rule, *finding.consequences)
    }
    changes = []
    for rule, noted in sorted(base.compared.repaired.items()):
        runs = base.compared.kept[rule]
        if rule in ours or base.compared.shared[rule] or gate.results.broken_off or runs < FEW:
            continue
        scenario = _smallest(gate, rule, noted)
        broken = base.broken_by_base(scenario).get(rule)
        if broken is None:
            continue
        path = write_scenario(scenario, options.out, f"repaired-{rule}")
        words = replay_options(options.base.spec, [rule], options.step_limit)
        replay = f"schedproof replay {shlex.quote(str(path))}{words}"
        message = output.unicode_text(broken.message)
        changes.append(Change(rule, str(path), broken.step, message, replay, runs))
    return changes


def _smallest(gate: GateContext, rule: str, noted: Noted) -> Any:
    assert gate.base is not None
    base = gate.base
    attempts = min(ATTEMPTS, gate.options.profile.shrink_attempts)
    return shrink(
        noted.scenario, lambda candidate: base.only_base_breaks(rule, candidate), attempts
    )


class ChangeReporter(Terminal):
    """Print how a change differs from its base, and how many runs and steps were compared.

    The first difference and the first finding are printed at once. All others are printed at the
    end, by kind and by fault.
    """

    _differs = False

    def _found_one(self, event: Found) -> None:
        if self._found:
            self._found[event.finding.scenario] = event
        else:
            super()._found_one(event)

    def __call__(self, event: Event) -> None:
        if isinstance(event, Differed):
            if self._differs:
                return
            self._differs = True
        if isinstance(event, Concluded) and not self._verbose:
            self.close()
        else:
            super().__call__(event)
        if isinstance(event, Concluded):
            self._judged(event.verdict)

    def _judged(self, verdict: Verdict) -> None:
        by_id = {rule.id: rule for rule in self._rules}
        causes = causes_of(verdict.faults)
        faults = one_per_rule(verdict.faults, causes)
        for fault in faults:
            cause = causes.get(fault.number)
            if cause is not None and fault.kind not in SEVERE:
                continue
            is_whole = len(verdict.faults) <= WHOLE
            event = self._found.get(fault.scenario) if is_whole else None
            print_broken(self._console, fault, event, by_id[fault.rule], cause, is_whole)
            below = [
                other
                for other in faults
                if causes.get(other.number) == fault and other.kind not in SEVERE
            ]
            for other in below[:BELOW]:
                line = f"  may follow: {in_short(other, by_id[other.rule])} ({other.scenario})"
                self._console.print(one_line(line), markup=False, soft_wrap=True)
            if more := ", ".join(other.rule for other in below[BELOW:]):
                self._console.print(f"  may follow: {more} (--json lists them)", soft_wrap=True)
        for change in verdict.repaired:
            self._line("REPAIRS", "green", f"{change.what} {by_id[change.what].title}", change)
        shown = BESIDE_FAULTS if verdict.faults else SHOWN
        for change in verdict.decisions[:shown]:
            self._line("DIFFERS", "yellow", change.what, change)
        for line in summary_lines(verdict):
            self._dim(line)
        if not self._verbose:
            print_coverage(self._console, verdict.coverage)
        self._console.print(one_line(conclusion(verdict)), style="bold", markup=False)

    def _line(self, word: str, style: str, what: str, change: Change) -> None:
        text = escape(one_line(f"{what} ({plural(change.runs, 'run')}): {change.replay}"))
        self._console.print(f"[{style}]{word}[/{style}] {text}", soft_wrap=True)


def causes_of(faults: Sequence[Fault]) -> dict[int, Fault]:
    """Return the first cause of each fault that may be a consequence. The keys are the numbers of
    these faults. To find a first cause, follow the possible causes to a fault without a cause."""
    by_number = {fault.number: fault for fault in faults}
    causes = {}
    for fault in faults:
        chain = [fault.number]
        while (before := by_number[chain[-1]].behind) is not None and before not in chain:
            chain.append(before)
        # If the faults form a cycle, any of them could be the cause. Take the first.
        first = chain[-1] if before is None else min(chain[chain.index(before) :])
        if first != fault.number:
            causes[fault.number] = by_number[first]
    return causes


def one_per_rule(faults: Sequence[Fault], causes: Mapping[int, Fault]) -> list[Fault]:
    """Return the causes, then their possible consequences. If several consequences of one cause
    break the same rule, keep only the first."""
    kept: dict[tuple[str, int], Fault] = {}
    for fault in sorted(faults, key=lambda fault: fault.number in causes):
        cause = causes.get(fault.number, fault)
        kept.setdefault((fault.rule, cause.number), fault)
    return list(kept.values())


def in_short(fault: Fault, rule: Rule) -> str:
    return f"{rule.id}{_also(fault)} {rule.title}: step {fault.step}: {fault.message}"


def _also(fault: Fault) -> str:
    return f" (and {', '.join(fault.follows)})" * bool(fault.follows)


def print_broken(
    console: Console,
    fault: Fault,
    event: Found | None,
    rule: Rule,
    cause: Fault | None,
    is_whole: bool,
) -> None:
    text = f"{rule.title}: step {fault.step}: {fault.message}"
    if cause is not None:
        where = "" if is_whole else f": {fault.scenario}"
        text += f" (may follow from {cause.rule}, or have the same cause{where})"
    console.print(
        f"[red]BREAKS[/red] [bold]{rule.id}[/bold]{_also(fault)} {escape(one_line(text))}",
        soft_wrap=True,
    )
    if cause is not None and not is_whole:
        return
    lines = []
    lines += [f"decided:  {fault.decided}"] * bool(fault.decided and event is None)
    if event is not None:
        lines.append(f"means: {fault.means}")
        lines += lines_of_code(fault)
        lines += [output.scenario_config(event.scenario), *output.request_lines(event.scenario)]
    show = fault.replay.replace("schedproof replay ", "schedproof show ", 1)
    for line in (*lines, f"replay: {fault.replay}", *[f"show:   {show}"] * is_whole):
        console.print(f"  {one_line(line)}", markup=False, soft_wrap=True)


def summary_lines(verdict: Verdict) -> list[str]:
    runs = sum(engine.runs for engine in verdict.engines)
    steps = sum(engine.steps for engine in verdict.engines)
    seconds = sum(engine.seconds for engine in verdict.engines)
    lines = [
        f"{plural(runs, 'run')}, {plural(steps, 'step')} on the change and its base in "
        f"{seconds:.0f} s"
    ]
    known = {rule.id: rule.message or "" for rule in verdict.rules if rule.status == "known"}
    intended = [rule for rule, why in known.items() if why.startswith(AFTER_INTENDED)]
    if shared := [rule for rule in known if rule not in intended]:
        lines.append(f"also broken by the base: {', '.join(shared)}")
    if intended:
        lines.append(f"broken only after an intended difference: {', '.join(intended)}")
    open_ = [rule.id for rule in verdict.rules if rule.status == "inconclusive"]
    if open_:
        lines.append(f"inconclusive: {', '.join(open_)}")
    by_design = [rule.id for rule in verdict.rules if rule.status == "excluded"]
    if by_design:
        lines.append(f"not judged, by design or by --exclude: {', '.join(by_design)}")
    return lines


def conclusion(verdict: Verdict) -> str:
    assert verdict.base is not None
    causes = causes_of(verdict.faults)
    faults = one_per_rule(verdict.faults, causes)
    below = sum(fault.number in causes for fault in faults)
    own = len(faults) - below
    parts = [f"{plural(own, 'fault')} that the base does not have"]
    parts += [f"{below} more that may follow from {'it' if own == 1 else 'them'}"] * bool(below)
    if not verdict.faults:
        parts = ["no fault found that the base does not have"]
    if verdict.repaired:
        parts.append(f"repairs {plural(len(verdict.repaired), 'rule')}")
    if verdict.decisions:
        parts.append(f"{plural(len(verdict.decisions), 'kind')} of difference (--json lists all)")
    what = f"{verdict.target.name} ({verdict.target.version}) against {verdict.base.name}"
    state = "inconclusive: " if verdict.exit_code == INCONCLUSIVE else ""
    found = f"{state}{', '.join(parts)}{shows_little(verdict.exit_code, verdict.rules)}"
    return f"{what} {verdict.base.version}: {found} (seed {verdict.seed})"
