"""`schedproof diff`: compare two targets, or a target with a recorded baseline of another
target."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console

from ...model.errors import InputError
from ...model.faults import ConfigRefused, TargetFault
from ...model.replies import Started
from ...properties.checking.differential_target import DifferentialTarget, Side
from ...properties.checking.recording import Recorded
from ..compare.baseline import Recording, read_baseline, record, replay_baseline
from ..compare.keeping import (
    Compared,
    DiffFinding,
    DiffVerdict,
    exit_code,
    finding_of,
    keep_differences,
)
from ..compare.report import DiffReporter, SideNames, print_finding, print_summary
from ..compare.setting import Setting, read_setting, setting_of_baseline, translation_line
from ..console import output
from ..console.interrupts import keep_results, why
from ..console.option_checks import at_least, check_choice, check_file, check_places, option
from ..files.disk import write
from ..judging.base import Base, BaseOptions
from ..judging.context import BreakOff, GateContext, GateOptions, GateResults
from ..judging.deviations import Deviations
from ..judging.judge import run_gate
from ..judging.profiles import PROFILES, set_hypothesis_home
from ..judging.verdict import TargetInfo
from ..targets.checkouts import known_checkouts
from ..targets.factory import Opened, opened
from ..targets.target_spec import TargetSpec, parse_target, replay_options
from .options import Offline, SchedulerClass, StepLimit, TimeLimit, from_project, option_for_target

TARGETS = "model, MODULE:FACTORY, 'cmd:COMMAND LINE', a release or a checkout"


def command(
    context: typer.Context,
    target_a: Annotated[str, typer.Argument(metavar="TARGET_A", help=TARGETS)],
    target_b: Annotated[
        str | None,
        typer.Argument(
            metavar="TARGET_B", help="target to compare with; omit it if --save or --since is given"
        ),
    ] = None,
    system: Annotated[
        str | None,
        typer.Option(
            help="run scenarios of this system (default: TARGET_A's)",
            callback=option_for_target,
        ),
    ] = None,
    revision: Annotated[
        str | None,
        typer.Option(
            help="use configurations of this published behaviour (default: the target's own)",
            callback=option_for_target,
        ),
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help=f"one of {', '.join(PROFILES)}  [default: ci]")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="seed of the search, 0 or more; the same seed gives the same runs  [default: 0]"
        ),
    ] = None,
    max_differences: Annotated[
        int, typer.Option(help="number of differences after which to stop, at least 1")
    ] = 3,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--config", help="fix KEY in every configuration; repeat the option to add more keys"
        ),
    ] = None,
    scheduler_cls: SchedulerClass = None,
    path_a: Annotated[
        Path | None,
        typer.Option(
            help=f"folder of TARGET_A, if that is a checkout of {', '.join(known_checkouts())}, or "
            "of the class that --scheduler-cls names"
        ),
    ] = None,
    path_b: Annotated[Path | None, typer.Option(help="like --path-a, for TARGET_B")] = None,
    save: Annotated[
        Path | None, typer.Option(help="record the behaviour of TARGET_A in this file, for --since")
    ] = None,
    since: Annotated[
        Path | None, typer.Option(help="compare TARGET_A with the file that --save wrote")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="write the result to this file")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="folder for scenarios in which the targets differ")
    ] = Path("schedproof-out"),
    jobs: Annotated[
        int,
        typer.Option(help="number of processes, at least 1; it does not change the result"),
    ] = 1,
    step_limit: StepLimit = 10.0,
    time_limit: TimeLimit = None,
    offline: Offline = False,
) -> None:
    """Run the same scenarios on two schedulers, and show where their decisions differ."""
    if since is not None:  # a baseline contains the scenarios to run
        system = None if from_project(context, "system") else system
        revision = None if from_project(context, "revision") else revision
    options: dict[str, object] = {"--system": system, "--revision": revision, "--config": changes}
    options |= {"--profile": profile, "--seed": seed, "--jobs": None if jobs == 1 else jobs}
    _check_one_question(target_b, path_b, save, since, json_file, options)
    profile, seed = profile or "ci", seed or 0
    check_choice("--profile", profile, PROFILES)
    at_least("--seed", seed, 0)
    at_least("--max-differences", max_differences, 1)
    at_least("--jobs", jobs, 1)
    check_places(json_file, out)
    if save is not None:
        check_file("--save", save)
    with option("--path-a" if scheduler_cls is None else "--scheduler-cls"):
        specs = [parse_target(target_a, path_a, scheduler_cls)]
    if target_b is not None:
        with option("--path-b"):
            specs.append(parse_target(target_b, path_b))
    set_hypothesis_home()
    console = output.make_console()
    begun = Begun(
        console, profile, seed, max_differences, out, json_file, step_limit, offline, jobs
    )
    if since is not None:
        code = _since(begun, specs[0], since)
    elif save is not None:
        code = _save(begun, specs[0], read_setting(specs, system, revision, changes or []), save)
    else:
        code = _live(begun, specs, read_setting(specs, system, revision, changes or []))
    raise typer.Exit(code)


class Begun(NamedTuple):
    """The options that all forms of the command share."""

    console: Console
    profile: str
    seed: int
    max_differences: int
    out: Path
    json_file: Path | None
    step_limit: float
    offline: bool
    jobs: int

    def notice(self, text: str) -> None:
        output.notice(self.console)(text)

    def opened(self, spec: TargetSpec) -> AbstractContextManager[Opened]:
        return opened(spec, step_limit=self.step_limit, offline=self.offline, report=self.notice)


def _live(begun: Begun, specs: Sequence[TargetSpec], setting: Setting) -> int:
    """Run both targets: a gate on the first target, with the second target as its base. The gate
    judges no rules."""
    options = _options(begun, specs[0], specs[1], setting)
    findings: list[DiffFinding] = []
    reported = SideNames(
        (specs[0].text, specs[1].text),
        (replay_options(specs[0], None, begun.step_limit), _replay_b(begun, specs[1])),
    )
    _say_terms(begun, setting)
    reporter = DiffReporter(begun.console)

    def keep(gate: GateContext) -> Mapping[str, Any]:
        reporter.close()
        try:
            for kept in keep_differences(gate, begun.max_differences):
                finding = finding_of(gate, kept)
                findings.append(finding)
                print_finding(begun.console, finding, kept, reported)
        except TargetFault as fault:
            gate.results.fault = gate.results.fault or BreakOff.of(fault, gate.stderr())
        except KeyboardInterrupt:
            gate.results.interrupted = True
        _conclude(begun, gate, setting, findings, None)
        return {}

    try:
        _, results = run_gate(options, Deviations(), reporter, begun.notice, keep)
    except ConfigRefused as refusal:
        words = str(refusal).replace("the target refuses the configuration of every scale: ", "")
        raise ConfigRefused(f"there is no scale that both targets accept: {words}") from None
    finally:
        reporter.close()
    return _code(results, findings)


def _options(begun: Begun, a: TargetSpec, b: TargetSpec, setting: Setting) -> GateOptions:
    first, second = setting.sides
    return GateOptions(
        spec=a,
        system=setting.system,
        revision=setting.revision,
        rules=(),
        profile_name=begun.profile,
        seed=begun.seed,
        out=begun.out,
        step_limit=begun.step_limit,
        offline=begun.offline,
        jobs=begun.jobs,
        fixed=setting.fixed,
        base=BaseOptions(b, (first, second), begun.max_differences),
    )


def _since(begun: Begun, spec: TargetSpec, file: Path) -> int:
    header, records = read_baseline(file)
    setting = setting_of_baseline(spec, header.system, header.revision)
    begun = begun._replace(profile=header.profile, seed=header.seed)
    recorded = TargetSpec(f"{header.target.spec} ({file})", "command")
    both = setting._replace(sides=((header.system, header.revision), *setting.sides))
    reported = SideNames((recorded.text, spec.text), (None, _replay_b(begun, spec)))
    _say_terms(begun, both)
    with begun.opened(spec) as now:
        started = Started(header.target.name, header.target.version, frozenset())
        then = Side(Recorded(()), header.system, header.revision, started=started)
        pair = DifferentialTarget(then, Side(now.target, *setting.sides[0], stderr=now.stderr))
        options = _options(begun, recorded, spec, both)
        reporter = DiffReporter(begun.console)
        gate = GateContext(options, pair, reporter, now.stderr, base=Base(pair, ()))
        try:
            kept_findings = replay_baseline(gate, file, records)
        finally:
            reporter.close()
    findings = [finding_of(gate, kept) for kept in kept_findings[: begun.max_differences]]
    for finding, kept in zip(findings, kept_findings, strict=False):
        print_finding(begun.console, finding, kept, reported)
    _conclude(begun, gate, both, findings, str(file))
    return _code(gate.results, findings)


def _replay_b(begun: Begun, spec: TargetSpec) -> str:
    return replay_options(spec, None, begun.step_limit)


def _say_terms(begun: Begun, setting: Setting) -> None:
    for name, (system, revision) in zip("AB", setting.sides, strict=True):
        if system != setting.system:
            output.say(begun.console, translation_line(name, setting, system, revision))


def _save(begun: Begun, spec: TargetSpec, setting: Setting, file: Path) -> int:
    with begun.opened(spec) as now:
        recording = Recording(
            now.target, spec.text, setting.system, setting.revision, setting.fixed, begun.profile
        )
        return record(begun.console, recording, begun.seed, file)


def _conclude(
    begun: Begun,
    gate: GateContext,
    setting: Setting,
    found: Sequence[DiffFinding],
    baseline: str | None,
) -> None:
    keep_results()
    verdict = _verdict(gate, found, baseline)
    if begun.json_file is not None:
        write(begun.json_file, output.as_json(verdict))
    print_summary(begun.console, verdict, _left_out(gate, found))
    if gate.results.interrupted:
        output.fail(f"{why()}: the result covers only what had run by then")
    if gate.results.fault is not None:
        output.fail(gate.results.fault.text)
        output.print_details(gate.results.fault.details)


def _code(results: GateResults, found: Sequence[DiffFinding]) -> int:
    complete = not results.interrupted and results.fault is None
    return exit_code(len(found), results.compared.coverage.steps, complete)


def _verdict(gate: GateContext, found: Sequence[DiffFinding], baseline: str | None) -> DiffVerdict:
    options, results = gate.options, gate.results
    assert gate.base is not None
    assert options.base is not None
    covered = results.compared.coverage
    specs = (options.spec, options.base.spec)
    infos = [
        TargetInfo.of(spec.text, side.started)
        for spec, side in zip(specs, gate.base.pair.sides, strict=True)
    ]
    return DiffVerdict(
        a=infos[0],
        b=infos[1],
        system=options.system,
        revision=options.revision,
        fixed=options.fixed,
        profile=options.profile_name,
        seed=options.seed,
        engines=tuple(results.engines),
        differences=tuple(found),
        compared=Compared(
            covered.steps,
            dict(sorted(covered.fields.items())),
            dict(covered.events),
            covered.both_failed,
        ),
        exit_code=_code(results, found),
        baseline=baseline,
        interrupted=results.interrupted,
        fault=None if results.fault is None else results.fault.text,
    )


def _left_out(gate: GateContext, found: Sequence[DiffFinding]) -> list[str]:
    unable = {words for words in gate.results.compared.coverage.cannot_abort.values() if words}
    lines = [f"no aborts: {words}" for words in sorted(unable)]
    assert gate.options.base is not None
    if len(found) >= gate.options.base.stop_after:
        lines.append(f"stopped after {output.plural(len(found), 'difference')} (--max-differences)")
    return lines


def _check_one_question(
    target_b: str | None,
    path_b: Path | None,
    save: Path | None,
    since: Path | None,
    json_file: Path | None,
    options: Mapping[str, object],
) -> None:
    if save is not None and since is not None:
        raise InputError("--save", f"{save}: contradicts --since; valid: one of them")
    name, file = ("--save", save) if save is not None else ("--since", since)
    if file is None:
        if target_b is None:
            raise InputError("TARGET_B", "missing; valid: a target, or --save FILE or --since FILE")
        return
    if target_b is not None or path_b is not None:
        raise InputError("TARGET_B", f"{target_b or path_b}: {name} takes one target only")
    if save is not None and json_file is not None:
        raise InputError("--json", f"{json_file}: --save compares nothing")
    if save is not None and options["--jobs"] is not None:
        raise InputError("--jobs", f"{options['--jobs']}: --save uses one process; valid: 1")
    given = [key for key, value in options.items() if value not in (None, [])]
    if since is not None and given:
        raise InputError(
            given[0], f"{options[given[0]]}: --since determines this itself; omit the option"
        )
