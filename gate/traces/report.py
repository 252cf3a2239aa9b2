"""Print the results of `check-trace`: broken runs as they are found and, at the end, the models
that match and the verdict."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

from ...properties.explanations.lockstep import Departure, Explainer, Match
from ...properties.history.request_history import RequestHistory
from ...spec.catalogue import load
from ..console import BROKEN, CONFORMS, INCONCLUSIVE, output
from ..console.output import plural
from ..console.step_lines import step_line
from ..reports import terminal
from ..reports.outcome import shows_little
from .judge import TraceRun
from .run_events import Event
from .trace_file import Source
from .verdict import NOT_SHOWN, TOO_LITTLE, Part, TraceVerdict

SHOWN_WIDTH = 400  # how many characters of a difference to show
PROGRESS_EVERY = 2_000  # update the progress display after this many events


class TraceReporter:
    """Print findings while a trace is judged. At most `most` broken runs are shown in full."""

    def __init__(self, console: Console, source: Source, most: int) -> None:
        self._console = console
        self._source = source
        self._left = most
        self._shown: set[int] = set()
        self._status = console.status("") if console.is_terminal else None

    def broke(self, run: TraceRun) -> None:
        if self._left == 0:
            return
        self._left -= 1
        self._shown.add(run.number)
        self.quiet()
        print_broken(self._console, run)

    def over(self, run: TraceRun) -> None:
        """When a run ends, print how many steps followed a printed failure, or a remark if the run
        breaks no rule but differs from its model."""
        explainer = run.explainer
        if run.number in self._shown:
            self._shown.discard(run.number)
            self.quiet()
            if run.unjudged:
                self._say(f"  {run.unjudged:,} more steps of run {run.number} are not judged")
        elif explainer is None or _follows_its_model(run, explainer) or self._left == 0:
            return
        else:
            self._left -= 1
            self.quiet()
            self._say(f"run {run.number}, line {run.begun.line}: no rule is broken")
        if explainer is not None:
            print_explanation(self._console, run, explainer)

    def notice(self, text: str) -> None:
        self.quiet()
        self._console.print(_one(text), style="dim", markup=False)

    @contextmanager
    def progress(self, events: Iterator[Event]) -> Iterator[Iterator[Event]]:
        try:
            yield events if self._status is None else self._with_progress(events)
        finally:
            self.quiet()

    def quiet(self) -> None:
        if self._status is not None:
            self._status.stop()

    def _with_progress(self, events: Iterator[Event]) -> Iterator[Event]:
        for number, event in enumerate(events):
            if number % PROGRESS_EVERY == 0 and self._status is not None:
                read, size = self._source.position(), self._source.size
                share = f" of {size:,} bytes, {read / size:.0%}" if size else " bytes"
                self._status.update(f"line {event.line:,}, {read:,}{share}")
                self._status.start()
            yield event

    def _say(self, line: str) -> None:
        output.say(self._console, line)


def print_broken(console: Console, run: TraceRun) -> None:
    begun, (first, *others) = run.begun, run.broken
    rule = next(known for known in load(begun.system, begun.revision) if known.id == first.rule)
    word = "ADAPTER" if first.by_adapter else "BROKEN"
    console.print(f"[red]{word}[/red] [bold]{rule.id}[/bold] {escape(rule.title)}")
    for words in (
        f"  rule:     {rule.statement}",
        f"  source:   {rule.source}",
        f"  step {first.step}:  {first.message}",
        *(f"  in the same step {failure.rule}: {failure.message}" for failure in others),
        f"  where:    line {run.line} (run {run.number}, started on line {begun.line})",
        f"  config:   {output.config_line(begun.system, begun.revision, begun.config)}",
    ):
        output.say(console, _one(words))
    live = [*run.monitor.history.live.values()]
    for request in live[: output.SHOWN_REQUESTS]:
        output.say(console, _one(f"  {_request(request)}"))
    if len(live) > output.SHOWN_REQUESTS:
        output.say(console, f"  and {len(live) - output.SHOWN_REQUESTS} more requests")
    output.say(console, "  the steps before, and what changed:")
    last = None
    for number, step in run.recent:
        output.say(console, _one(f"    {step_line(number, step, last, begun.config)}"))
        last = step


def print_explanation(console: Console, run: TraceRun, explainer: Explainer) -> None:
    best = explainer.best
    output.say(console, f"  the models on run {run.number} ({run.steps:,} steps):")
    for match in explainer.matches:
        output.say(console, f"    {_match_line(run, match)}")
    for revision, why in explainer.unfit.items():
        name = f"{run.begun.system} {revision}"
        output.say(console, _one(f"    {name}: does not support this configuration: {why}"))
    if best is None or best.departed is None:
        return
    output.say(
        console,
        f"  {run.begun.system} {best.revision} matches longest, and would have taken these steps:",
    )
    for line in _ahead(run, best.departed):
        output.say(console, line)


def print_trace_verdict(console: Console, verdict: TraceVerdict, explained: bool) -> None:
    for part in verdict.parts:
        rules = load(part.system, part.revision)
        terminal.print_rules(console, part.rules, rules)
        output.say(console, _one(_counts(part)))
        for revision, runs in (part.runs_that_match or {}).items():
            whole = f"{runs:,} of {part.runs:,} runs" if part.runs > 1 else "the run"
            output.say(console, f"{part.system} {revision} makes the same decisions in {whole}")
        if explained and not part.runs_that_match:
            output.say(console, f"no model of {part.system} matches a run to its end")
    if verdict.cut is not None:
        line = f"{verdict.cut}; the rest of that run is not judged"
        console.print(_one(line), style="yellow", markup=False)
    if verdict.inapplicable:
        names = ", ".join(verdict.inapplicable)
        apply = "applies" if len(verdict.inapplicable) == 1 else "apply"
        output.say(
            console, _one(f"{names} {apply} to no run of {verdict.file}, so there is no verdict")
        )
    for part in verdict.parts:
        counted = terminal.counts(part.rules, load(part.system, part.revision))
        broken = any(entry.status == "violated" for entry in part.rules)
        code = BROKEN if broken else verdict.exit_code
        word = {CONFORMS: "conforms", BROKEN: "does not conform"}.get(code, "inconclusive")
        if verdict.cut is not None and code == INCONCLUSIVE:
            word += ", because the record ends too early"
        elif part.steps == 0 and code == INCONCLUSIVE:
            word += ", because no step is recorded"
        word += shows_little(code, part.rules, (NOT_SHOWN, TOO_LITTLE))
        target = f"{part.target.name} {part.target.version} against {part.revision}"
        console.print(_one(f"{target}: {word} ({counted})"), style="bold", markup=False)
    if not verdict.parts:
        output.say(console, "no run is recorded, so there is no verdict")


def _follows_its_model(run: TraceRun, explainer: Explainer) -> bool:
    match = explainer.match_of(run.begun.revision)
    return match is not None and match.departed is None


def _match_line(run: TraceRun, match: Match) -> str:
    name = f"{run.begun.system} {match.revision}"
    if match.departed is None:
        return f"{name}: all steps match"
    differences = "; ".join(match.departed.differences)
    return _one(f"{name}: {match.matched:,} steps match; step {match.departed.step}: {differences}")


def _ahead(run: TraceRun, departed: Departure) -> list[str]:
    lines, last = [], None
    for number, step in departed.ahead:
        lines.append(_one(f"    {step_line(number, step, last, run.begun.config)}"))
        last = step
    return lines


def _request(request: RequestHistory) -> str:
    stops = (
        ""
        if request.output_len in (None, request.max_tokens)
        else f", stops after {request.output_len}"
    )
    return (
        f"{request.id:<9} prompt {request.prompt}, max_tokens {request.max_tokens}{stops}: "
        f"{request.computed} computed, {request.emitted} generated"
    )


def _counts(part: Part) -> str:
    rejected = f", {plural(part.rejected_requests, 'request')} refused"
    unjudged = f", {part.steps_not_judged:,} of them after a broken rule and not judged"
    return (
        f"{part.target.spec}: {plural(part.runs, 'run')}, {plural(part.steps, 'step')}"
        f"{unjudged * bool(part.steps_not_judged)}{rejected * bool(part.rejected_requests)}"
    )


def _one(text: str) -> str:
    line = output.one_line(text)
    return line if len(line) <= SHOWN_WIDTH else line[: SHOWN_WIDTH - 1] + "…"
