"""Hypothesis as an engine of `schedproof search`: it finds, and never proves."""

import time
from pathlib import Path

from rich.console import Console

from ..model.target import ModelTarget
from ..spec.catalogue import Rule, load
from . import report
from .events import Event, Found, Judged, Progress
from .exits import BROKEN, INCONCLUSIVE
from .hypothesis_home import set_hypothesis_home
from .judge import run_gate
from .reports.terminal import Terminal
from .state import Gate


def run_samples(
    console: Console,
    system: str,
    rule: Rule,
    revision: str,
    formula: str | None,
    out: Path,
    time_limit: float,
) -> int:
    """Sample runs of the model of `revision`, until one breaks the rule; the exit code.

    `formula`: admits by that volumetric check instead of the revision's own.
    """
    set_hypothesis_home()
    target = f"model:{formula}" if formula else "model"
    options = report.replay_options(target, [rule.id], 10)
    terminal = Terminal(console, load(system))
    ends = time.monotonic() + time_limit

    def report_in_time(event: Event) -> None:
        if isinstance(event, Judged):
            return  # by a verdict on one rule of the model nobody is served
        terminal(event)
        in_time = time.monotonic() <= ends or not isinstance(event, Progress)
        if isinstance(event, Found) or not in_time:
            raise KeyboardInterrupt  # as Ctrl-C: what was found until now is kept

    gate = Gate(
        target=ModelTarget(formula),
        target_spec=target,
        system=system,
        revision=revision,
        rules=[rule],
        chosen=True,
        profile_name="ci",
        seed=0,
        max_failures=1,
        out=out,
        report=report_in_time,
        replay_options=options,
    )
    try:
        verdict = run_gate(gate)
    finally:
        terminal.close()
    if verdict.findings:
        return BROKEN
    runs = sum(engine.runs for engine in verdict.engines)
    ended = "the time limit was reached" if gate.interrupted else "no more were asked for"
    report.say(
        console,
        f"inconclusive: no run of {runs} breaks {rule.id}, which was at stake in "
        f"{gate.at_stake[rule.id]} steps; {ended}",
    )
    return INCONCLUSIVE
