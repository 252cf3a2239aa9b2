"""`schedproof diff`: two targets, or a target and what was recorded of another, asked the same."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console

from ...model.errors import InputError
from ...model.replies import Started
from ...properties.checking.differential_target import Pair, Side
from ...properties.checking.recording import Recorded
from ..compare.baseline import read_baseline
from ..compare.baseline_runs import Recording, record, replay_baseline
from ..compare.context import Diff, Opening
from ..compare.report import DiffReporter, SideNames, print_summary
from ..compare.run import run_diff
from ..compare.setting import Setting, in_other_terms, read_setting, setting_of_baseline
from ..compare.verdict import Compared, DiffVerdict, exit_code
from ..console import output
from ..console.interrupts import why
from ..console.option_checks import at_least, check_file, check_places, option
from ..files.writing import write
from ..judging.profiles import PROFILES, set_hypothesis_home
from ..judging.verdict import TargetInfo
from ..targets.checkouts import known_checkouts
from ..targets.factory import Opened, opened
from ..targets.supported_releases import parse_release
from ..targets.target_spec import TargetSpec, parse_target, replay_options
from .options import Offline, SchedulerClass, StepLimit, TimeLimit
from .project import from_project, with_its_target

TARGETS = "model, MODULE:FACTORY, 'cmd:COMMAND LINE', a release or a checkout"


def command(
    context: typer.Context,
    target_a: Annotated[str, typer.Argument(metavar="TARGET_A", help=TARGETS)],
    target_b: Annotated[
        str | None,
        typer.Argument(metavar="TARGET_B", help="another one; none with --save or --since"),
    ] = None,
    system: Annotated[
        str | None,
        typer.Option(
            help="the system whose scenarios are run (default: by TARGET_A)",
            callback=with_its_target,
        ),
    ] = None,
    revision: Annotated[
        str | None,
        typer.Option(
            help="the published behaviour whose configuration is meant (default: by the target)",
            callback=with_its_target,
        ),
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help=f"one of {', '.join(PROFILES)}  [default: ci]")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="the same seed gives the same runs; from 0 upwards  [default: 0]"),
    ] = None,
    max_differences: Annotated[int, typer.Option(help="differences to look for, at least 1")] = 3,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="KEY=VALUE: in every configuration; may be repeated"),
    ] = None,
    scheduler_cls: SchedulerClass = None,
    against_base: Annotated[
        bool,
        typer.Option("--against-base", help="TARGET_B is the release's own scheduler class"),
    ] = False,
    path_a: Annotated[
        Path | None,
        typer.Option(
            help=f"TARGET_A's checkout of {', '.join(known_checkouts())}, or the folder that has "
            "--scheduler-cls"
        ),
    ] = None,
    path_b: Annotated[Path | None, typer.Option(help="the same of TARGET_B")] = None,
    save: Annotated[
        Path | None, typer.Option(help="record TARGET_A in this file, for --since")
    ] = None,
    since: Annotated[
        Path | None, typer.Option(help="compare TARGET_A with what --save recorded here")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="write the result to this file")
    ] = None,
    out: Annotated[Path, typer.Option(help="folder for scenarios that differ")] = Path(
        "schedproof-out"
    ),
    jobs: Annotated[
        int, typer.Option(help="processes that search scales, at least 1; the same result")
    ] = 1,
    step_limit: StepLimit = 10.0,
    time_limit: TimeLimit = None,
    offline: Offline = False,
) -> None:
    """Find where two schedulers decide otherwise: the same scenarios on both, step by step."""
    if since is not None:  # a baseline has its own
        system = None if from_project(context, "system") else system
        revision = None if from_project(context, "revision") else revision
    asked: dict[str, object] = {"--system": system, "--revision": revision, "--set": changes}
    asked |= {"--profile": profile, "--seed": seed, "--jobs": None if jobs == 1 else jobs}
    if against_base:
        target_b = _base(target_a, target_b, scheduler_cls)
    _check_one_question(target_b, path_b, save, since, json_file, asked)
    profile, seed = profile or "ci", seed or 0
    if profile not in PROFILES:
        raise InputError("--profile", f"{profile!r}; valid: {', '.join(PROFILES)}")
    at_least("--seed", seed, 0)
    at_least("--max-differences", max_differences, 1)
    at_least("--step-limit", step_limit, 0.1)
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


def _base(target_a: str, target_b: str | None, scheduler_cls: str | None) -> str:
    """The release whose class TARGET_A replaces.

    Raises:
        InputError: another target is named, or TARGET_A replaces none.
    """
    if target_b is not None:
        raise InputError("--against-base", f"not together with TARGET_B {target_b!r}")
    release, _, named = target_a.partition(":")
    if parse_release(release) is None or not (named or scheduler_cls):
        raise InputError(
            "--against-base",
            f"TARGET_A {target_a!r} has no base; valid: a release with --scheduler-cls CLASS",
        )
    return release


class Begun(NamedTuple):
    """The options that every form of the command has."""

    console: Console
    profile: str
    seed: int
    max_differences: int
    out: Path
    json_file: Path | None
    step_limit: float
    offline: bool
    jobs: int

    def opened(self, spec: TargetSpec) -> AbstractContextManager[Opened]:
        """The target that a word names."""
        notice = output.notice(self.console)
        return opened(spec, step_limit=self.step_limit, offline=self.offline, report=notice)


def _live(begun: Begun, specs: Sequence[TargetSpec], setting: Setting) -> int:
    with begun.opened(specs[0]) as first, begun.opened(specs[1]) as second:
        pair = Pair(*map(_side, (first, second), setting.sides))
        options = [replay_options(spec, None, begun.step_limit) for spec in specs]
        reported = SideNames((specs[0].text, specs[1].text), (options[0], options[1]))
        openings = tuple(
            Opening(spec, *terms, begun.step_limit)
            for spec, terms in zip(specs, setting.sides, strict=True)
        )
        run = partial(_in_processes, openings=openings, jobs=begun.jobs)
        return _compare(begun, reported, setting, pair, run, None)


def _in_processes(diff: Diff, openings: tuple[Opening, ...], jobs: int) -> None:
    diff.openings, diff.jobs = openings, jobs
    run_diff(diff)


def _since(begun: Begun, spec: TargetSpec, file: Path) -> int:
    header, records = read_baseline(file)
    setting = setting_of_baseline(spec, header.system, header.revision)
    names = (f"{header.target.spec} ({file})", spec.text)
    options = (None, replay_options(spec, None, begun.step_limit))
    with begun.opened(spec) as now:
        started = Started(header.target.name, header.target.version, frozenset())
        then = Side(Recorded(()), header.system, header.revision, started=started)
        pair = Pair(then, _side(now, setting.sides[0]))
        profile = begun._replace(profile=header.profile, seed=header.seed)
        run = partial(replay_baseline, file=file, records=records)
        return _compare(profile, SideNames(names, options), setting, pair, run, str(file))


def _save(begun: Begun, spec: TargetSpec, setting: Setting, file: Path) -> int:
    with begun.opened(spec) as now:
        recording = Recording(
            now.target, spec.text, setting.system, setting.revision, setting.fixed, begun.profile
        )
        return record(begun.console, recording, begun.seed, file)


def _compare(
    begun: Begun,
    reported: SideNames,
    setting: Setting,
    pair: Pair,
    run: Callable[[Diff], None],
    baseline: str | None,
) -> int:
    """Run the comparison, print it, write it down; the exit code."""
    reporter = DiffReporter(begun.console, reported)
    if setting.fixed:
        values = ", ".join(f"{key} {json.dumps(one)}" for key, one in setting.fixed.items())
        output.say(begun.console, f"in every configuration: {values}")
    for name, side in zip("AB", pair.sides, strict=True):
        if side.system != setting.system:
            output.say(begun.console, in_other_terms(name, setting, side.system, side.revision))
    diff = Diff(
        pair=pair,
        specs=reported.names,
        system=setting.system,
        revision=setting.revision,
        fixed=setting.fixed,
        profile_name=begun.profile,
        seed=begun.seed,
        max_differences=begun.max_differences,
        out=begun.out,
        report=reporter,
    )
    try:
        run(diff)
    finally:
        reporter.close()
    verdict = _verdict(diff, baseline)
    if begun.json_file is not None:
        write(begun.json_file, output.as_json(verdict))
    print_summary(begun.console, verdict, _left_out(diff))
    if diff.interrupted:
        output.fail(f"{why()}: the result is about what ran until then")
    if diff.fault is not None:
        output.fail(diff.fault.text)
        output.print_details(diff.fault.details)
    return verdict.exit_code


def _verdict(diff: Diff, baseline: str | None) -> DiffVerdict:
    covered = diff.pair.coverage
    complete = not diff.interrupted and diff.fault is None
    infos = []
    for spec, side in zip(diff.specs, diff.pair.sides, strict=True):
        started = side.started
        said = (started.name, started.version) if started is not None else ("", "")
        infos.append(TargetInfo(spec, *said))
    return DiffVerdict(
        a=infos[0],
        b=infos[1],
        system=diff.system,
        revision=diff.revision,
        fixed=diff.fixed,
        profile=diff.profile_name,
        seed=diff.seed,
        engines=tuple(diff.engines),
        differences=tuple(diff.found.values()),
        compared=Compared(
            covered.steps,
            dict(sorted(covered.fields.items())),
            dict(covered.events),
            covered.both_failed,
        ),
        exit_code=exit_code(len(diff.found), covered.steps, complete),
        baseline=baseline,
        interrupted=diff.interrupted,
        fault=None if diff.fault is None else diff.fault.text,
    )


def _left_out(diff: Diff) -> list[str]:
    said = {words for words in diff.pair.cannot_abort.values() if words}
    lines = [f"aborts left out: {words}" for words in sorted(said)]
    if diff.enough:
        lines.append(f"looked no further after {len(diff.found)} (--max-differences)")
    return lines


def _side(target: Opened, terms: tuple[str, str]) -> Side:
    return Side(target.target, *terms, stderr=target.stderr)


def _check_one_question(
    target_b: str | None,
    path_b: Path | None,
    save: Path | None,
    since: Path | None,
    json_file: Path | None,
    asked: Mapping[str, object],
) -> None:
    """Raise InputError unless there are two to compare, or one to record."""
    if save is not None and since is not None:
        raise InputError("--save", f"{save}: not together with --since; valid: one of them")
    name, file = ("--save", save) if save is not None else ("--since", since)
    if file is None:
        if target_b is None:
            raise InputError("TARGET_B", "missing; valid: a target, or --save FILE or --since FILE")
        return
    if target_b is not None or path_b is not None:
        raise InputError("TARGET_B", f"{target_b or path_b}: {name} takes one target only")
    if save is not None and json_file is not None:
        raise InputError("--json", f"{json_file}: --save compares nothing")
    if save is not None and asked["--jobs"] is not None:
        raise InputError("--jobs", f"{asked['--jobs']}: --save records in one process")
    given = [key for key, value in asked.items() if value not in (None, [])]
    if since is not None and given:
        raise InputError(given[0], f"{asked[given[0]]}: not with --since, whose file says it")
