"""Hypothesis as an engine of `schedproof search`: it finds, and never proves."""

import time
from pathlib import Path

from rich.console import Console

from ...spec.catalogue import Rule, load
from ..console import output
from ..console.exit_codes import BROKEN, INCONCLUSIVE
from ..judging.context import GateOptions
from ..judging.deviations import Deviations
from ..judging.events import Event, Found, Judged, Progress
from ..judging.judge import run_gate
from ..reports.terminal import Terminal
from ..targets.target_spec import model_spec


def run_samples(
    console: Console,
    system: str,
    rule: Rule,
    revision: str,
    formula: str | None,
    out: Path,
    time_limit: float,
    jobs: int,
) -> int:
    """Sample runs of the model of `revision`, until one breaks the rule; the exit code.

    `formula`: admits by that volumetric check instead of the revision's own. `jobs`: processes;
    what is found is the same for every number.
    """
    spec = model_spec(formula)
    terminal = Terminal(console, load(system))
    ends = time.monotonic() + time_limit
    found: list[Found] = []

    def report_in_time(event: Event) -> None:
        if isinstance(event, Judged):
            return  # a verdict on one rule of the model tells nothing more
        if isinstance(event, Found):
            found.append(event)  # one of a later process may not count
            return
        terminal(event)
        if isinstance(event, Progress) and time.monotonic() > ends:
            raise KeyboardInterrupt  # as Ctrl-C: what was found until now is kept

    options = GateOptions(
        spec=spec,
        system=system,
        revision=revision,
        rules=[rule],
        chosen=True,
        max_failures=1,
        first_only=True,
        jobs=jobs,
        out=out,
    )
    try:
        verdict, results = run_gate(options, Deviations(), report_in_time)
        for event in found:
            if event.finding in verdict.findings:
                terminal(event)
    finally:
        terminal.close()
    if verdict.findings:
        return BROKEN
    runs = sum(engine.runs for engine in verdict.engines)
    ended = "the time limit was reached" if results.interrupted else "no more were asked for"
    output.say(
        console,
        f"inconclusive: no run of {runs} breaks {rule.id}, which was exercised in "
        f"{results.exercised[rule.id]} steps; {ended}",
    )
    return INCONCLUSIVE
