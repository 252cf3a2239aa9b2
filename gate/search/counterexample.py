"""Replay a counterexample of `schedproof search` on the model. Shrink it, write it to a file, show
it, and replay it on a second target."""

import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from ...model.observation import Step
from ...model.scenario import Scenario
from ...model.target import ModelTarget, Target
from ...properties.checking.replay import Outcome
from ...properties.checking.replay import replay as run_replay
from ...properties.rules.predicate import Broken
from ...properties.shrinking.shrink import shrink
from ...spec.catalogue import Rule
from ...spec.systems import SYSTEMS
from ..console import BROKEN, INCONCLUSIVE, output
from ..files.scenario_file import write_failure
from ..targets.factory import opened
from ..targets.target_spec import model_spec, parse_target, replay_options

SHRINK_SECONDS = 10.0


@contextmanager
def open_second_target(
    console: Console, spec: str | None, system: str
) -> Iterator[tuple[str, Target] | None]:
    """Open the target on which counterexamples are replayed in addition to the model. Yield None if
    the user named no such target."""
    if spec is None:
        yield None
        return
    with opened(parse_target(spec), report=output.notice(console)) as opening:
        target = opening.target
        target.start(
            system, SYSTEMS[system].revisions[0], {}
        )  # fail before the search if it is no target
        yield spec, target


def show(
    console: Console,
    scenario: Scenario,
    rule: Rule,
    formula: str | None,
    out: Path,
    also: tuple[str, Target] | None,
    *,
    found_by: str,
    kept: str = "",
    most: Callable[[Step], int] | None = None,
) -> int:
    """Replay a scenario on the model. If a step breaks the rule, show the run up to this step.
    Return the exit code.

    With `most`, the scenario is not shrunk, and is shown up to the step in which `most` is largest.
    `formula` replaces the formula of the model's revision. `also` is a second target to replay on;
    `kept` is the message if that target does not break the rule, or "" for the usual message.
    """
    target = ModelTarget(formula)
    outcome = run_replay(target, scenario, [rule])
    if not outcome.broken:
        message = f"inconclusive: {found_by} does not break the rule on the model"
        output.say(console, message)
        return INCONCLUSIVE
    if most is None:
        scenario = _shrunk(target, scenario, [rule])
        outcome = run_replay(target, scenario, [rule])
    first = outcome.broken[0].step
    if most is not None:
        outcome = _at_most(target, scenario, rule, most)
    path = write_failure(scenario, out, outcome.broken[0])
    options = replay_options(model_spec(formula), [rule.id])
    output.print_failure(
        console,
        *(rule, scenario, outcome.broken[0], str(path), options, outcome.session.excerpt),
    )
    if outcome.broken[0].step > first:
        output.say(console, f"step {first} is the first to break the rule; replay stops there")
    return BROKEN if also is None else _elsewhere(console, scenario, rule, path, also, kept)


def _at_most(
    target: Target, scenario: Scenario, rule: Rule, most: Callable[[Step], int]
) -> Outcome:
    reached: dict[int, int] = {}
    broken: set[int] = set()

    def goes_on(found: list[Broken], _: Scenario) -> list[Broken]:
        broken.update(failure.step for failure in found)
        return []

    def watch(number: int, step: Step) -> None:
        reached[number] = most(step)

    run_replay(target, scenario, [rule], watch, new=goes_on)
    worst = max(sorted(broken), key=reached.__getitem__)
    return run_replay(
        target,
        scenario,
        [rule],
        new=lambda found, _: [failure for failure in found if failure.step == worst],
    )


def _shrunk(target: Target, scenario: Scenario, rules: Sequence[Rule]) -> Scenario:
    ends = time.monotonic() + SHRINK_SECONDS

    def still_breaks(candidate: Scenario) -> bool:
        return time.monotonic() < ends and bool(run_replay(target, candidate, rules).broken)

    return shrink(scenario, still_breaks, 10_000)


def _elsewhere(
    console: Console,
    scenario: Scenario,
    rule: Rule,
    path: Path,
    also: tuple[str, Target],
    kept: str,
) -> int:
    name, target = also
    outcome = run_replay(target, scenario, [rule])
    if not outcome.broken:
        output.say(console, f"{name} {kept or f'does not break {rule.id} in this run'}")
        return INCONCLUSIVE
    first = outcome.broken[0]
    output.say(console, f"{name} also breaks it, in step {first.step}: {first.message}")
    words = shlex.join([str(path), "--target", name, "--rule", rule.id])
    output.say(console, f"  replay:   schedproof replay {words}")
    return BROKEN
