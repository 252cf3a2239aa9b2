"""The command line. Exit codes: 0 conforms, 1 a rule is broken, 2 usage, 3 inconclusive."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from ..model.errors import InputError
from ..model.faults import ConfigRefused, TargetFault, TargetNotStarted
from ..model.systems import check_system, resolve_revision
from ..model.target import ModelTarget
from ..properties.predicate import Broken
from ..properties.replay import replay as run_replay
from ..spec.catalogue import CatalogueError, load, select
from . import report
from .judge import Gate, run_gate
from .profiles import PROFILES
from .releases import ReleaseError
from .scenario_file import FileError, read_scenario
from .targets.jsonl import serve as serve_lines
from .targets.opening import UnknownTargetError, default_revision, load_factory, opened

# Typer brings its own copy of click and names only the leaves of its errors: this is the root.
COMMAND_LINE_ERROR: type[Exception] = typer.BadParameter.__mro__[2]
CONFORMS, BROKEN, USAGE, INCONCLUSIVE = 0, 1, 2, 3

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Model-based checks for the schedulers of LLM inference engines.",
)

TargetOption = Annotated[
    str,
    typer.Option(
        "--target",
        help="model, MODULE:FACTORY, 'cmd:COMMAND LINE' or a release (sendnn-inference==2.1.2)",
    ),
]
StepLimit = Annotated[
    float, typer.Option("--step-limit", help="seconds that a target may take for a step", min=0.1)
]
Offline = Annotated[bool, typer.Option("--offline", help="install nothing")]


@app.command()
def gate(
    target: Annotated[
        str,
        typer.Argument(
            help="model, MODULE:FACTORY, 'cmd:COMMAND LINE' or a release (sendnn-inference==2.1.2)"
        ),
    ] = "model",
    system: Annotated[str, typer.Option(help="the system whose rules apply")] = "spyre",
    revision: Annotated[
        str | None,
        typer.Option(help="the published behaviour that is meant (default: by the target)"),
    ] = None,
    rule: Annotated[
        list[str] | None, typer.Option("--rule", help="check only this rule; may be repeated")
    ] = None,
    profile: Annotated[str, typer.Option(help=f"one of {', '.join(PROFILES)}")] = "ci",
    seed: Annotated[int, typer.Option(help="the same seed gives the same runs", min=0)] = 0,
    max_failures: Annotated[
        int, typer.Option(help="broken rules to look for per engine and scale", min=1)
    ] = 3,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="write the verdict to this file")
    ] = None,
    out: Annotated[Path, typer.Option(help="folder for counterexamples")] = Path("schedproof-out"),
    step_limit: StepLimit = 10.0,
    offline: Offline = False,
) -> None:
    """Judge a scheduler: replay known scenarios, search for new ones, give a verdict per rule."""
    check_system(system)
    resolved = resolve_revision(system, revision or default_revision(target))
    if profile not in PROFILES:
        raise InputError("--profile", f"{profile!r}; valid: {', '.join(PROFILES)}")
    if json_file is not None and not json_file.parent.is_dir():
        raise InputError("--json", f"{json_file}: the folder {json_file.parent} does not exist")
    catalogue = load(system)
    rules = select(catalogue, _split(rule)) if rule else catalogue
    console = report.make_console()
    reporter = report.GateReporter(console, catalogue, target)
    notice = _notice(console)
    with opened(target, step_limit=step_limit, offline=offline, report=notice) as open_target:
        judged = Gate(
            target=open_target.target,
            target_spec=target,
            system=system,
            revision=resolved,
            rules=rules,
            chosen=bool(rule),
            profile_name=profile,
            seed=seed,
            max_failures=max_failures,
            out=out,
            report=reporter,
        )
        try:
            verdict = run_gate(judged)
        finally:
            reporter.close()
        stderr = open_target.stderr()
    report.print_verdict(console, verdict, catalogue)
    if judged.fault is not None:
        report.fail(str(judged.fault))
        _show_stderr(stderr)
    if json_file is not None:
        json_file.write_bytes(report.verdict_json(verdict))
    raise typer.Exit(verdict.exit_code)


@app.command()
def replay(
    scenario: Annotated[Path, typer.Argument(help="a scenario file")],
    target: TargetOption = "model",
    rule: Annotated[
        list[str] | None, typer.Option("--rule", help="check only this rule; may be repeated")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="no line per step")] = False,
    step_limit: StepLimit = 10.0,
    offline: Offline = False,
) -> None:
    """Run one scenario on a target, show every step, and judge it."""
    read = read_scenario(scenario)
    catalogue = load(read.system)
    rules = select(catalogue, _split(rule)) if rule else catalogue
    console = report.make_console()
    last: list[Any] = [None]

    def show(number: int, step: Any) -> None:
        if not quiet:
            console.print(report.step_line(number, step, last[0]), markup=False)
        last[0] = step

    notice = _notice(console)
    with opened(target, step_limit=step_limit, offline=offline, report=notice) as open_target:
        outcome = run_replay(open_target.target, read, rules, show)
        stderr = open_target.stderr()
    for name, why in outcome.session.rejected.items():
        console.print(f"{name} refused at the door: {why}", markup=False)
    by_id = {entry.id: entry for entry in catalogue}
    if outcome.broken:
        first: Broken = outcome.broken[0]
        report.print_failure(console, by_id[first.rule], read, first, str(scenario), target)
        for other in outcome.broken[1:]:
            console.print(f"  in the same step {other.rule}: {other.message}", markup=False)
        if outcome.session.details or stderr:
            _show_stderr(outcome.session.details or stderr)
    for line in outcome.unmet:
        console.print(f"not as expected: {line}", markup=False)
    raise typer.Exit(_conclude(console, read, outcome))


@app.command()
def rules(
    system: Annotated[str, typer.Option(help="the system whose rules to list")] = "spyre",
    rule: Annotated[str | None, typer.Argument(help="show this rule in full")] = None,
) -> None:
    """List the rules: what they say, where it is written, and which are only planned."""
    check_system(system)
    catalogue = load(system)
    console = report.make_console()
    if rule is not None:
        _show_rule(console, select(catalogue, [rule])[0])
        return
    for entry in catalogue:
        state = "planned" if entry.planned else entry.kind
        console.print(f"{entry.id:<8} {state:<9} {entry.title}", markup=False)
    planned = sum(bool(entry.planned) for entry in catalogue)
    console.print(
        f"{len(catalogue) - planned} rules are checked, {planned} are planned; "
        "`schedproof rules RULE` shows one in full"
    )


@app.command()
def serve(
    target: Annotated[str, typer.Argument(help="model, or MODULE:FACTORY")],
) -> None:
    """Host a Python target on stdin and stdout (JSON Lines, the target protocol)."""
    made: Any = ModelTarget() if target == "model" else load_factory(target)()
    serve_lines(made)


def main() -> None:
    """Run the command line; every error is one line, never a traceback."""
    try:
        code = app(standalone_mode=False)
    except COMMAND_LINE_ERROR as error:
        report.fail(getattr(error, "format_message", error.__str__)())
        code = USAGE
    except (typer.Abort, KeyboardInterrupt):
        report.fail("interrupted")
        code = INCONCLUSIVE
    except (InputError, FileError, CatalogueError, UnknownTargetError, ReleaseError) as error:
        report.fail(str(error))
        code = USAGE
    except (ConfigRefused, TargetNotStarted) as error:
        report.fail(str(error))
        code = USAGE
    except TargetFault as error:
        report.fail(str(error))
        code = INCONCLUSIVE
    sys.exit(code or 0)


def _conclude(console: Any, scenario: Any, outcome: Any) -> int:
    if outcome.broken:
        return BROKEN
    expected = scenario.expect.violates if scenario.expect is not None else None
    if expected:
        console.print(f"not as expected: {', '.join(expected)} did not break", markup=False)
    if outcome.unmet:
        return BROKEN
    if not outcome.finished:
        console.print(f"not finished after {outcome.steps} steps: no verdict")
        return INCONCLUSIVE
    exercised = sum(1 for rule in outcome.session.checked if outcome.at_stake[rule.id])
    console.print(
        f"no rule is broken in {outcome.steps} steps "
        f"({exercised} of {len(outcome.session.checked)} rules were at stake)"
    )
    return CONFORMS


def _show_rule(console: Any, entry: Any) -> None:
    lines = [f"{entry.id} ({entry.kind}): {entry.title}", f"  says:      {entry.says}"]
    lines.append(f"  source:    {entry.source}")
    lines.append(f"  revisions: {', '.join(entry.revisions)}")
    if entry.planned:
        lines.append(f"  planned:   {entry.planned}")
    else:
        lines.append(f"  needs:     {', '.join(entry.needs) or 'nothing beyond kind, scheduled'}")
        lines.append(f"  witness:   {entry.witness}")
        lines.append(f"  engines:   {', '.join(entry.engines)}")
    lines += [f"  differs:   {one.releases}: {one.says}" for one in entry.divergences]
    for line in lines:
        console.print(line, markup=False)


def _split(rules: list[str] | None) -> list[str]:
    """`--rule A,B --rule C` means A, B and C."""
    return [part for word in rules or [] for part in word.split(",") if part]


def _notice(console: Any) -> Callable[[str], None]:
    return lambda text: console.print(text, style="dim", markup=False)


def _show_stderr(text: str) -> None:
    for line in text.strip().splitlines()[-15:]:
        print(f"  | {line}", file=sys.stderr)
