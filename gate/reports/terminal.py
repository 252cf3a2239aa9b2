"""Print the progress of a gate, a line per finding and, at the end, the faults and the verdict."""

import time
from collections import Counter
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from ...spec.catalogue import Rule
from ..console.output import one_line, plural, print_details, say, show_failure
from ..judging.coverage import Coverage, coverage_lines
from ..judging.verdict import (
    NOT_SHOWN,
    WORKLOADS,
    Began,
    Concluded,
    Differed,
    EngineRun,
    Event,
    Fault,
    Found,
    Notice,
    Progress,
    Refusal,
    RuleVerdict,
    Verdict,
)
from .outcome import (
    explanation_lines,
    in_short,
    isolation_warning,
    out_of_date,
    reach_in_words,
    reason_of,
    requests_refused,
    result,
)

MARKS = {
    "held": ("held", "green"),
    "violated": ("BROKEN", "red"),
    "known": ("known", "magenta"),
    "excluded": ("excluded", "yellow"),
    "diverges": ("diverges", "magenta"),
    "not_observable": ("not observable", "yellow"),
    "not_exercised": ("not exercised", "yellow"),
    "inconclusive": ("inconclusive", "yellow"),
    "planned": ("planned", "dim"),
}
COUNTED = (
    "known",
    "excluded",
    "not_exercised",
    "not_observable",
    "inconclusive",
)  # statuses whose rules the last line counts, if there are any
# If the target conforms, the rules with each of these statuses share a line.
TOGETHER = ("held", "not_exercised", "not_observable")
SPINNER = 2  # width of the spinner in columns
SETTLED = 1.0  # seconds after which the rate of runs means something


class Pace:
    """Describes the progress of the current engine.

    `clock` returns seconds. The rate does not include the time spent on shrinking.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: Progress | None = None
        self._heard = 0.0
        self._seconds = 0.0
        self._runs = 0

    def words(self, event: Progress) -> str:
        self._count(event)
        parts = [f"{event.engine}: {event.runs}/{event.of}"]
        if not event.of:
            parts = [f"{event.engine}: {event.runs} trials"]
        elif event.shrinking:
            parts.append("shrinking")
        elif self._seconds >= SETTLED and self._runs > 0:
            rate = self._runs / self._seconds
            remaining = _duration((event.of - event.runs) / rate)
            parts += [f"{remaining} left", f"{rate:.{1 if rate < 10 else 0}f} runs/s"]
        return ", ".join([*parts, f"{event.steps} steps"])

    def _count(self, event: Progress) -> None:
        last, now = self._last, self._clock()
        if last is None or last.engine != event.engine:
            self._seconds, self._runs = 0.0, 0
        elif not last.shrinking:
            self._seconds += now - self._heard
            self._runs += event.runs - last.runs
        self._last, self._heard = event, now


class Terminal:
    """Print events on a console. Rules that are not broken are listed only if `verbose` is set."""

    def __init__(self, console: Console, rules: Sequence[Rule], verbose: bool = True) -> None:
        self._console = console
        self._rules = rules
        self._verbose = verbose
        self._pace = Pace()
        self._found: dict[str, Found] = {}
        # the other spinners of rich are not ASCII
        self._status = console.status("", spinner="line") if console.is_terminal else None

    def __call__(self, event: Event) -> None:
        if isinstance(event, Began):
            scales = ", ".join(event.scales)
            self._dim(f"target {event.target.name} {event.target.version}, scales {scales}")
        elif isinstance(event, Notice):
            self._dim(event.text)
        elif isinstance(event, Differed):
            self._dim(str(event))
        elif isinstance(event, Progress):
            self._progress(event)
        elif isinstance(event, Found):
            self.close()
            self._found_one(event)
        elif isinstance(event, Concluded):
            self.close()
            self._print_faults(event.verdict)
            print_verdict(self._console, event.verdict, self._rules, self._verbose)

    def close(self) -> None:
        if self._status is not None:
            self._status.stop()

    def _dim(self, text: str) -> None:
        self._console.print(one_line(text), style="dim", markup=False)

    def _progress(self, event: Progress) -> None:
        if self._status is None:
            return
        words = Text(one_line(self._pace.words(event)))
        words.truncate(self._console.width - SPINNER)
        self._status.update(words)
        self._status.start()

    def _found_one(self, event: Found) -> None:
        finding = event.finding
        self._found[finding.scenario] = event
        at = f"step {finding.step}, {finding.scale} scale, after {finding.found_after:.1f} s"
        self._dim(f"found {finding.rule}: {at}: {finding.scenario}")

    def print_finding(self, event: Found) -> None:
        """Print a finding in full, unless a fault of the verdict includes it."""
        finding = event.finding
        self._print_failure(event, finding.rule)
        timing = f"found after {finding.found_after:.1f} s"
        if finding.shrunk_in:
            timing += f", shrunk in {finding.shrunk_in:.1f} s"
        self._console.print(f"  {finding.engine}, {finding.scale} scale: {timing}\n")

    def _print_faults(self, verdict: Verdict) -> None:
        for fault in verdict.faults:
            event = self._found.get(fault.scenario)
            if event is None:  # the process ended before it reported the finding
                continue
            self._console.print()
            say(self._console, f"FAULT {fault.number}: {fault.means}")
            self._print_failure(event, fault.rule, fault)
        if verdict.faults:
            self._console.print()

    def _print_failure(self, event: Found, rule_id: str, fault: Fault | None = None) -> None:
        rule = next(judged for judged in self._rules if judged.id == rule_id)
        word = "ADAPTER" if fault is not None and fault.kind == "adapter" else "BROKEN"
        show_failure(self._console, rule, explanation_lines(event, rule, fault), word)
        print_details(event.run.details or event.stderr, self._console)


def print_verdict(
    console: Console, verdict: Verdict, rules: Sequence[Rule], verbose: bool = True
) -> None:
    """Print one line per rule, one per engine, and the result.

    Unless `verbose` is set, all rules that held share a line, all rules that were not exercised
    share another, and so on. Inconclusive rules share a line if they have the same reason.
    """
    entries: Sequence[RuleVerdict] = verdict.rules
    if not verbose:
        print_grouped(console, entries, rules)
        entries = [entry for entry in entries if entry.status not in TOGETHER]
        entries = print_inconclusive(console, entries)
    print_rules(console, entries, rules)
    for what, why in out_of_date(verdict).items():
        console.print(f"[red]{'OUT OF DATE':<14}[/red] {escape(one_line(f'{what} {why}'))}")
    for entry in verdict.deviations:
        if entry.state == "not_met":
            where = entry.scenario or entry.version
            line = f"deviation of {entry.rule} ({where}): {entry.says}"
            console.print(f"[yellow]{'not met':<14}[/yellow] {escape(one_line(line))}")
    for engine in in_one_line(verdict.engines):
        console.print(engine_line(engine))
    for refusal in verdict.refusals:
        console.print(one_line(refusal_line(refusal)), markup=False)
    if verdict.reach is not None:
        console.print(one_line(f"{'reached':<14} {reach_in_words(verdict.reach)}"), markup=False)
    if (warning := isolation_warning(verdict)) is not None:
        console.print(f"[yellow]{'warning':<14}[/yellow] {warning}")
    print_coverage(console, verdict.coverage)
    print_faults(console, verdict.faults)
    console.print(one_line(summary(verdict, rules)), style="bold", markup=False)


def print_coverage(console: Console, coverage: Coverage | None) -> None:
    for word, what in coverage_lines(coverage) if coverage is not None else ():
        console.print(one_line(f"{word:<14} {what}"), markup=False)


def print_faults(console: Console, faults: Sequence[Fault]) -> None:
    if not faults:
        return
    say(console, f"{plural(len(faults), 'fault')}:")
    for fault in faults:
        say(console, f"  {in_short(fault)}")
        say(console, f"     {fault.replay}")


def print_grouped(console: Console, entries: Sequence[RuleVerdict], rules: Sequence[Rule]) -> None:
    """Print three lines: the rules that held, the rules that were never exercised, and the rules
    for which the target does not show enough.

    The line for the rules that held gives the smallest number of steps that exercised any of them.
    """
    by_id = {rule.id: rule for rule in rules}
    checked = [entry for entry in entries if by_id[entry.id].checked]
    held = [entry for entry in checked if entry.status == "held"]
    if held:
        least = min(held, key=lambda entry: entry.exercised)
        steps = plural(least.exercised, "step")
        line = f"{plural(len(held), 'rule')}, each exercised in {steps} or more"
        console.print(f"[green]{'held':<14}[/green] {line} (--verbose lists them)")
    if idle := ", ".join(entry.id for entry in checked if entry.status == "not_exercised"):
        console.print(f"[yellow]{'not exercised':<14}[/yellow] {idle}")
    if hidden := [entry.message or "" for entry in checked if entry.status == "not_observable"]:
        fields = sorted(
            {field for why in hidden for field in why.removeprefix(NOT_SHOWN).split(", ")}
        )
        line = f"{len(hidden)} rules: {NOT_SHOWN}{', '.join(fields)}"
        console.print(f"[yellow]{'not observable':<14}[/yellow] {escape(one_line(line))}")


def print_inconclusive(console: Console, entries: Sequence[RuleVerdict]) -> Sequence[RuleVerdict]:
    """Print one line for each reason for which several rules are inconclusive. Return the other
    entries."""
    alike = [entry for entry in entries if entry.status == "inconclusive" and not entry.fault]
    numbers = Counter(entry.message for entry in alike)
    shared = {why: number for why, number in numbers.items() if why and number > 1}
    for why, number in shared.items():
        line = f"{number} rules: {why} (--verbose lists them)"
        console.print(f"[yellow]{'inconclusive':<14}[/yellow] {escape(one_line(line))}")
    return [entry for entry in entries if entry not in alike or entry.message not in shared]


def print_rules(console: Console, entries: Sequence[RuleVerdict], rules: Sequence[Rule]) -> None:
    by_id = {rule.id: rule for rule in rules}
    planned = [entry for entry in entries if entry.status == "planned"]
    unchecked = [entry for entry in entries if by_id[entry.id].unchecked]
    for entry in entries:
        if entry in planned or entry in unchecked:
            continue
        word, style = MARKS["diverges" if entry.divergence else entry.status]
        why = one_line(reason_of(entry))
        if why:
            why = f" ({why})" if entry.status == "held" else f": {why}"
        console.print(
            f"[{style}]{word:<14}[/{style}] {entry.id:<8} {escape(by_id[entry.id].title)}"
            f"{escape(why)}"
        )
        if entry.divergence and not entry.consequence_of:
            console.print(f"    the rule: {by_id[entry.id].statement}", markup=False)
            console.print(f"    known divergence of {one_line(entry.divergence)}", markup=False)
    if unchecked:
        console.print(
            f"[dim]{len(unchecked)} more rules have no predicate of their own (to see why, and "
            "what checks them instead: schedproof rules)[/dim]"
        )
    if planned:
        console.print(
            f"[dim]{len(planned)} more rules are planned (schedproof rules shows them)[/dim]"
        )


def in_one_line(engines: Sequence[EngineRun]) -> list[EngineRun]:
    """Return the engines to list, with all shapes of workload combined into one engine. Leave out a
    corpus that has no scenario for a scale."""
    shapes = [engine for engine in engines if engine.name == WORKLOADS]
    others = [engine for engine in engines if engine.name != WORKLOADS and not _is_empty(engine)]
    if not shapes:
        return others
    return [
        *others,
        EngineRun(
            WORKLOADS,
            " ".join(engine.scale for engine in shapes),
            sum(engine.runs for engine in shapes),
            sum(engine.steps for engine in shapes),
            sum(engine.seconds for engine in shapes),
            sum(engine.refused_configs for engine in shapes),
            sum(engine.rejected_requests for engine in shapes),
            all(engine.complete for engine in shapes),
        ),
    ]


def _is_empty(engine: EngineRun) -> bool:
    tried = engine.runs + engine.refused_configs + engine.rejected_requests
    return engine.name == "corpus" and engine.complete and not tried


def engine_line(engine: EngineRun) -> str:
    refused = [
        f", {plural(number, noun)} refused"
        for number, noun in (
            (engine.refused_configs, "configuration"),
            (engine.rejected_requests, "request"),
        )
        if number
    ]
    broken_off = "" if engine.complete else ", stopped early"
    return (
        f"{engine.name}, {engine.scale}: {plural(engine.runs, 'run')}, "
        f"{plural(engine.steps, 'step')} in "
        f"{engine.seconds:.1f} s{''.join(refused)}{broken_off}"
    )


def refusal_line(refusal: Refusal) -> str:
    such = "" if refusal.count == 1 else ", such as"
    return f"refused {plural(refusal.count, 'configuration')}{such}: {refusal.message}"


def summary(verdict: Verdict, rules: Sequence[Rule]) -> str:
    dated = len(out_of_date(verdict))
    parts = [plural(len(verdict.faults), "fault")] * bool(verdict.faults)
    parts.append(counts(verdict.rules, rules))
    parts += [f"{dated} deviation{'s' * (dated > 1)} out of date"] * bool(dated)
    more = [f"seed {verdict.seed}"]
    if refused := requests_refused(verdict):
        more.insert(0, f"{plural(refused, 'request')} refused")
    return f"{result(verdict)} ({'; '.join([', '.join(parts), *more])})"


def counts(entries: Sequence[RuleVerdict], rules: Sequence[Rule]) -> str:
    """Count the rules by verdict, without rules that have no predicate."""
    unchecked = {rule.unchecked for rule in rules if rule.unchecked}
    count = dict.fromkeys(MARKS, 0)
    for entry in entries:
        count[entry.status] += entry.message not in unchecked
    known = sum(bool(entry.divergence) for entry in entries)
    which = f" ({known} known divergence{'s' * (known > 1)})" if known else ""
    parts = [f"{count['held']} held", f"{count['violated']} broken{which}"]
    parts += [f"{count[status]} {MARKS[status][0]}" for status in COUNTED if count[status]]
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    """Format a time as `40 s`, `3 min 05 s` or `2 h 10 min`."""
    whole = max(round(seconds), 0)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"
