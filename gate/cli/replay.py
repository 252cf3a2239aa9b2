"""`schedproof replay`: run one scenario on a target, and show and judge every step."""

from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from ...model.errors import InputError
from ...model.faults import ConfigRefused
from ...model.observation import Step
from ...model.scenario import Scenario
from ...model.systems import resolve_revision
from ...properties.checking.differential_target import DifferentialTarget, Side
from ...properties.checking.replay import replay
from ...properties.explanations.evidence import Evidence
from ...properties.rules.predicate import Broken
from ...properties.rules.registry import LOCKSTEP
from ...spec.catalogue import CatalogueError, Rule, load, select
from ..compare.keeping import KeptDifference
from ..compare.report import print_difference
from ..console import BROKEN, CONFORMS, INCONCLUSIVE, output
from ..console.interrupts import keep_results
from ..console.option_checks import check_different
from ..console.step_lines import StepLines
from ..corpus.folder import scenario_named
from ..corpus.replay import not_at_stake
from ..files.scenario_file import FileError
from ..judging.base import Noted
from ..judging.rule_choice import lockstep_revision, rules_to_judge, use_rules
from ..reports.outcome import start_line
from ..targets.factory import opened
from ..targets.target_spec import (
    MEMORY_LIMIT,
    TargetSpec,
    are_versions_of_one,
    blame,
    replay_options,
)
from ..traces.perfetto import check_perfetto, run_of, write_perfetto
from ..traces.recorder import check_trace_file, record_target
from . import options
from .options import base_of, named_target, rules_to_exclude

A_WHILE = 1_000  # in steps


def command(
    context: typer.Context,
    scenario: Annotated[str, typer.Argument(help="a scenario file, or a built-in scenario")],
    target: options.TargetOption = "model",
    rule: options.RuleOption = None,
    exclude: options.ExcludeOption = None,
    extra_rules: options.ExtraRulesOption = None,
    compare_with: options.CompareWithOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="do not print a line per step")] = False,
    fold: Annotated[
        bool,
        typer.Option("--fold", help="print one line for steps that repeat"),
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace", help="record the run to this file for check-trace; .gz compresses it"
        ),
    ] = None,
    perfetto: Annotated[
        Path | None,
        typer.Option("--perfetto", help="write the run to this file, as trace events for Perfetto"),
    ] = None,
    step_limit: options.StepLimit = 10.0,
    memory_limit: options.MemoryLimit = MEMORY_LIMIT,
    time_limit: options.TimeLimit = None,
    offline: options.Offline = False,
    path: options.CheckoutPath = None,
    base: Annotated[
        str | None,
        typer.Option(
            "--base",
            help="show where TARGET and this target first differ, without judging a rule; the "
            "base is another target, or another revision of the checkout's repository",
        ),
    ] = None,
    against_base: options.AgainstBase = False,
    beyond_start_up: options.BeyondStartUp = False,
) -> None:
    """Run one scenario on a target, show every step, and judge it."""
    use_rules(extra_rules)
    spec = named_target(context, target, path, beyond_start_up=beyond_start_up)
    console = output.make_console()
    read = scenario_named(scenario)
    exclude = [*rules_to_exclude(context, exclude, rule, read.system)]
    catalogue = load(read.system, read.revision or "")
    beside = lockstep_revision(read, rule, spec, compare_with, output.notice(console))
    rules = rules_to_judge(read.system, rule, read.revision or "", spec, beside, exclude)
    _check_expected_rules(scenario, read, catalogue)
    if trace is not None:
        check_trace_file(trace, Path(scenario))
        # A model inside a recorder is still the model: comparing it with itself would prove
        # nothing.
        rules = [
            judged_rule
            for judged_rule in rules
            if judged_rule.id != LOCKSTEP or judged_rule.beside or not spec.is_model
        ]
    if perfetto is not None:
        check_perfetto(perfetto, Path(scenario))
        check_different({"--perfetto": perfetto} | ({"--trace": trace} if trace else {}))
    if (beside_it := base_of(spec, against_base, base)) is not None:
        unused = {
            **{"--rule": rule, "--trace": trace, "--perfetto": perfetto},
            **{"--quiet": quiet, "--fold": fold},
        }
        for name in (name for name, value in unused.items() if value):
            why = "replay compares the two targets; it judges no rule and records nothing"
            raise InputError(name, f"cannot be used with a base: {why}; omit {name}, or the base")
        limits = step_limit, memory_limit
        raise typer.Exit(_beside(console, read, (spec, beside_it), limits, offline))
    lines, steps = StepLines(console.print, read.config, fold=fold), list[Step]()
    evidence = Evidence()
    waiting = output.busy(console, "replaying") if quiet else nullcontext(lambda _: None)

    def watch(number: int, step: Step) -> None:
        evidence.watch(number, step)
        if not quiet:
            lines(number, step)
        elif number % A_WHILE == 0:
            progress(f"step {number:,}")
        if perfetto is not None:
            steps.append(step)

    idle = 0

    def skip(first: int, last: int) -> None:
        nonlocal idle
        idle += last - first + 1
        lines.close()
        if not quiet:
            console.print(f"steps {first:,} to {last:,}: skipped, idle until a request arrives")

    # Idle steps may be skipped on the console, but not in a trace or on a page.
    skipped = skip if trace is None and perfetto is None else None
    notice = output.notice(console)
    with (
        waiting as progress,
        opened(
            spec, step_limit=step_limit, memory_limit=memory_limit, offline=offline, report=notice
        ) as open_target,
    ):
        try:
            with record_target(open_target.target, trace) as replayed_target:
                outcome = replay(
                    *(replayed_target, read, rules, watch), begun=evidence.begun, skipped=skipped
                )
        except (InputError, ConfigRefused) as error:
            raise FileError(f"{scenario}: {error}") from None
        finally:
            lines.close()
        keep_results()
        stderr = open_target.stderr()
    if perfetto is not None:
        write_perfetto(perfetto, [run_of(read, outcome, steps)])
    for name, why in outcome.session.rejected.items():
        output.say(console, f"{name} refused: {why}")
    by_id = {entry.id: entry for entry in catalogue}
    if outcome.broken:
        outcome.broken = blame(outcome.broken, spec)
        first: Broken = outcome.broken[0]
        ids = rule and [judged_rule.id for judged_rule in rules]
        options = replay_options(
            spec, ids, step_limit, memory_limit, compare_with, exclude, extra_rules
        )
        excerpt, cause = outcome.session.excerpt, evidence.cause(read, outcome.broken)
        output.print_failure(
            *(console, by_id[first.rule], read, first, scenario, options, excerpt),
            why=None if cause is None else cause.why,
        )
        if outcome.session.started.start_up is not None:
            output.say(console, f"  {start_line(outcome.session.started.start_up)}")
        for other in outcome.broken[1:]:
            output.say(console, f"  in the same step {other.rule}: {other.message}")
        output.print_details(outcome.session.details or stderr, console)
    for line in outcome.unmet:
        output.say(console, f"not as expected: {line}")
    raise typer.Exit(_conclude(console, read, outcome, rules if rule else (), idle))


def _beside(
    console: Console,
    scenario: Scenario,
    specs: tuple[TargetSpec, TargetSpec],
    limits: tuple[float, int],
    offline: bool,
) -> int:
    system = scenario.system
    revision = resolve_revision(system, scenario.revision)
    with ExitStack() as stack:
        sides = []
        for spec in specs:
            other = stack.enter_context(
                opened(spec, step_limit=limits[0], memory_limit=limits[1], offline=offline)
            )
            sides.append(Side(other.target, system, revision, other.stderr))
        pair = DifferentialTarget(*sides, exact=are_versions_of_one(*specs))
        outcome = replay(pair, scenario, ())
        difference = pair.difference
        if difference is None and outcome.cut_short:
            steps = output.plural(outcome.steps, "step")
            why = "; ".join(str(failure.message) for failure in outcome.broken)
            output.say(console, f"not compared to the end: after {steps}, both targets fail: {why}")
            return INCONCLUSIVE
        if difference is None:
            console.print(f"the targets do not differ in {output.plural(outcome.steps, 'step')}")
            return CONFORMS
        replay(pair, scenario, (), last_step=difference.step)
        before = tuple(both for both in pair.recent if both.number < difference.step)
    kept = KeptDifference(Noted(scenario, "", ""), difference, "", before)
    print_difference(console, kept, [spec.text for spec in specs])
    return BROKEN


def _check_expected_rules(path: str, scenario: Any, catalogue: Sequence[Rule]) -> None:
    try:
        select(catalogue, (scenario.expect and scenario.expect.violates) or ())
    except CatalogueError as error:
        raise FileError(f"{path}: $.expect.violates: {error}") from None


def _conclude(
    console: Any, scenario: Any, outcome: Any, chosen: Sequence[Rule], idle_steps: int
) -> int:
    if outcome.broken:
        if not outcome.unmet and scenario.expect is not None and scenario.expect.violates:
            console.print(
                "as expected: the run breaks "
                f"{', '.join(failure.rule for failure in outcome.broken)}"
            )
        return INCONCLUSIVE if outcome.broken[0].by_adapter else BROKEN
    violates = (scenario.expect and scenario.expect.violates) or ()
    if violates and (why := not_at_stake(outcome, violates)):
        output.say(console, f"{why}; no verdict")
        return INCONCLUSIVE
    if outcome.unmet:
        return BROKEN
    if not outcome.finished:
        console.print(f"not finished after {output.plural(outcome.steps, 'step')}: no verdict")
        return INCONCLUSIVE
    exercised = [rule.id for rule in outcome.session.checked if outcome.exercised[rule.id]]
    idle = [rule.id for rule in chosen if rule.id not in exercised]
    if idle or not exercised:
        what = f"never exercised: {', '.join(idle)}" if idle else "no rule was exercised"
        console.print(f"{what}; no verdict")
        return INCONCLUSIVE
    left_out = f", {idle_steps:,} idle steps left out" if idle_steps else ""
    console.print(
        f"no rule is broken in {output.plural(outcome.steps - idle_steps, 'step')}{left_out} "
        f"({len(exercised)} of {len(outcome.session.checked)} rules were exercised)"
    )
    return CONFORMS
