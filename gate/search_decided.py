"""`schedproof search` for the rules of `solver.spyre.other_rules`: lemmas, then what they leave."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console

from ..model.scenario import Scenario
from ..model.target import ModelTarget
from ..properties.replay import replay as run_replay
from ..properties.rules import applies
from ..solver.obligation import Discharged, discharge
from ..solver.spyre.other_rules import DECIDED
from ..spec.catalogue import load
from . import report
from .bounded import Unanswered, bounded
from .exits import BROKEN, CONFORMS, INCONCLUSIVE
from .lemmas import blocks_of, lemma_line
from .scenario_file import write_scenario

Say = Callable[[str], None]


def run_decided(
    console: Console, rule: str, block: int | None, prove: bool, out: Path, time_limit: float
) -> int:
    """Prove the lemmas of a rule; unless `prove` is all, show what is refuted; the exit code.

    `block`: tokens of a block, None for blocks of any size. A counterexample that breaks another
    rule than this one is shown, and no finding against this one.
    """

    def say(line: str) -> None:
        report.say(console, line)

    say(f"{rule}: {DECIDED[rule].question}")
    ends = time.monotonic() + time_limit
    failed, proven = 0, 0
    try:
        for one in bounded(time_limit, _discharge, rule, block):
            say(lemma_line(one, 30))
            failed += one.status != "proven"
            proven += one.status == "proven"
        codes = [INCONCLUSIVE if failed else CONFORMS]
        say(f"{proven} lemmas proven for {blocks_of(block)}, {failed} not")
        if not prove:
            left = max(ends - time.monotonic(), 1.0)
            for name, scenario in bounded(left, _counterexamples, rule):
                codes.append(_shown(say, rule, name, scenario, out))
    except Unanswered as why:
        say(f"inconclusive: {why}")
        return INCONCLUSIVE
    return next(code for code in (BROKEN, INCONCLUSIVE, CONFORMS) if code in codes)


def _discharge(rule: str, block: int | None) -> Iterator[Discharged]:
    return discharge(DECIDED[rule].obligations(block))


def _counterexamples(rule: str) -> Iterator[tuple[str, Scenario | None]]:
    for name, make in DECIDED[rule].counterexamples.items():
        yield name, make()


def _shown(say: Say, rule: str, name: str, scenario: Scenario | None, out: Path) -> int:
    say(f"counterexample: {name}")
    if scenario is None:
        say("  inconclusive: none was found")
        return INCONCLUSIVE
    rules = [one for one in load("spyre") if applies(one, scenario.revision or "")]
    asked = [one for one in rules if one.id == rule]
    # What breaks first may be another rule: the one that is asked about comes before all others.
    broken = run_replay(ModelTarget(), scenario, asked).broken
    broken = broken or run_replay(ModelTarget(), scenario, rules).broken
    for first in broken[:1]:
        say(
            f"  replayed on the model of {scenario.revision}: breaks {first.rule} in step "
            f"{first.step}: {first.message}"
        )
    if not broken:
        say(f"  replayed on the model of {scenario.revision}: breaks no rule")
    path = write_scenario(scenario, out, broken[0].rule if broken else rule)
    say(f"  replay:   schedproof replay {path}")
    return BROKEN if any(one.rule == rule for one in broken) else CONFORMS
