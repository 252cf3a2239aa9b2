"""Print a comparison of two targets."""

import shlex
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ...properties.checking.difference import CLASSES, plain, without_shared
from ...properties.checking.lockstep import Differing
from ..console import output
from ..console.step_lines import step_line
from ..judging.verdict import Began, Differed, Event, Notice, Progress
from .keeping import DiffFinding, DiffVerdict, KeptDifference

EVENTS = ("prefix hit", "preemption", "pause", "abort", "early EOS")


class SideNames(NamedTuple):
    """The names of both targets, and the options with which `schedproof replay` runs each."""

    names: tuple[str, str]
    options: tuple[str | None, str]


class DiffReporter:
    """Print the notices of a comparison and, on a terminal, its progress."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status = console.status("") if console.is_terminal else None

    def __call__(self, event: Event) -> None:
        if isinstance(event, Began) and event.base is not None:
            sides = zip("AB", (event.target, event.base), strict=True)
            names = "; ".join(f"{side}: {info.name} {info.version}" for side, info in sides)
            self._dim(f"{names}; scales {', '.join(event.scales)}")
        elif isinstance(event, Notice):
            self._dim(event.text.replace("the target refuses", "one of the targets refuses"))
        elif isinstance(event, Differed):
            self._dim(str(event))
        elif isinstance(event, Progress) and self._status is not None:
            of = f" of {event.of}" if event.of else ""
            self._status.update(f"{event.engine}: run {event.runs}{of}, {event.steps} steps")
            self._status.start()

    def _dim(self, text: str) -> None:
        self._console.print(output.one_line(text), style="dim", markup=False)

    def close(self) -> None:
        if self._status is not None:
            self._status.stop()


def print_finding(
    console: Console, finding: DiffFinding, found: KeptDifference, reported: SideNames
) -> None:
    print_difference(console, found, reported.names)
    plain = partial(output.say, console)
    plain(f"  scenario: {finding.scenario}")
    files = (finding.scenario, finding.scenario_b or finding.scenario)
    for name, file, options in zip("AB", files, reported.options, strict=True):
        if options is None:
            plain(f"  replay {name}: its run is recorded in the baseline")
        else:
            plain(f"  replay {name}: schedproof replay {shlex.quote(file)}{options}")
    timing = f"found after {finding.found_after:.1f} s"
    if finding.shrunk_in:
        timing += f", shrunk in {finding.shrunk_in:.1f} s"
    if reported.options[0] is None:
        timing = (
            f"in {finding.seen} recorded runs; this is the smallest; recorded runs cannot be shrunk"
        )
    plain(f"  {finding.engine}, {finding.scale} scale: {timing}")
    plain("")


def print_difference(console: Console, found: KeptDifference, names: Sequence[str]) -> None:
    difference, scenario = found.difference, found.noted.scenario
    console.print(
        f"[red]DIFFERS[/red] [bold]{difference.kind}[/bold] "
        f"{escape(output.one_line(CLASSES[difference.kind]))}"
    )
    plain = partial(output.say, console)
    what = difference.shape.partition(": ")[2] if difference.fields else difference.message
    plain(f"  step {difference.step}:  {what}")
    plain(f"  config:   {output.scenario_config(scenario)}")
    for line in output.request_lines(scenario):
        plain(f"  {line}")
    last, config = None, scenario.config
    if found.recent:
        plain("  the steps before, and what changed:")
    for number, step, _ in found.recent:
        plain(f"    {step_line(number, step, last, config)}")
        last = step
    if found.earlier is not None:
        plain(f"  already in step {found.earlier.step}: {found.earlier.shape}")
    first, second = difference.steps
    if first is not None and second is not None:
        plain("  then:")
        plain(f"    A {step_line(difference.step, first, last, config)}")
        plain(f"    B {step_line(difference.step, second, last, config)}")
        console.print(_side_by_side(found, names))
        plain("  in words:")
        for line in difference.words:
            plain(f"    {line}")
    if difference.details:
        output.print_details(difference.details, console)


def _side_by_side(found: KeptDifference, names: Sequence[str]) -> Table:
    drawn = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for head in (
        "    differs in",
        *(f"{side} {name}" for side, name in zip("AB", names, strict=True)),
    ):
        drawn.add_column(Text(output.one_line(head)), overflow="fold")
    for field in found.difference.fields:
        cells = [f"    {field.field}", *(plain(value) for value in sides_of(field))]
        drawn.add_row(*(Text(output.one_line(cell)) for cell in cells))
    return drawn


def sides_of(field: Differing) -> tuple[object, object]:
    """Return both values without the items that they have in common. If only the order differs,
    return them unchanged."""
    first, second = (
        without_shared(field.first, field.second),
        without_shared(field.second, field.first),
    )
    return (first, second) if first or second else (field.first, field.second)


def print_summary(console: Console, verdict: DiffVerdict, left_out: Sequence[str]) -> None:
    plain = partial(output.say, console)
    for engine in verdict.engines:
        refused = f", {engine.refused_configs} configurations left out" * bool(
            engine.refused_configs
        )
        rejected = f", {engine.rejected_requests} requests refused by both" * bool(
            engine.rejected_requests
        )
        broken_off = "" if engine.complete else ", broken off"
        plain(
            f"{engine.name}, {engine.scale}: {output.plural(engine.runs, 'run')}, "
            f"{output.plural(engine.steps, 'step')} in "
            f"{engine.seconds:.1f} s{refused}{rejected}{broken_off}"
        )
    compared = verdict.compared
    in_all = {name for name, steps in compared.fields.items() if steps == compared.steps}
    some = [
        f"{name} ({steps} steps)"
        for name, steps in sorted(compared.fields.items())
        if name not in in_all
    ]
    if compared.steps:
        plain(f"compared in {compared.steps} steps: {', '.join([*sorted(in_all), *some])}")
        counts = ", ".join(f"{name} {compared.events.get(name, 0)}" for name in EVENTS)
        plain(f"occurred: {counts}")
    for line in left_out:
        plain(line)
    if compared.both_failed:
        plain(f"{compared.both_failed} runs ended because both targets crashed or hung")
    console.print(output.one_line(conclusion(verdict)), style="bold", markup=False)


def conclusion(verdict: DiffVerdict) -> str:
    what = f"{verdict.a.spec} and {verdict.b.spec}"
    count = len(verdict.differences)
    if count:
        kinds = ", ".join(difference.kind for difference in verdict.differences)
        return f"{what}: {count} difference{'s' * (count > 1)} ({kinds}; seed {verdict.seed})"
    runs = sum(engine.runs for engine in verdict.engines)
    if not verdict.compared.steps:
        return f"{what}: inconclusive, nothing was compared (seed {verdict.seed})"
    how_far = f"{runs} runs, {verdict.compared.steps} steps (seed {verdict.seed})"
    if verdict.exit_code:
        return (
            f"{what}: inconclusive, no difference in {how_far}, but the comparison did not finish"
        )
    return f"{what}: no difference in {how_far}"
