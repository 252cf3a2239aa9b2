"""`schedproof matrix`: judge many releases in several configurations, and show which rules each
release breaks."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from ...model.errors import InputError
from ..console import INCONCLUSIVE, output
from ..console.interrupts import keep_results, why
from ..console.option_checks import at_least, check_choice, check_unicode, option
from ..files.disk import write
from ..judging.profiles import PROFILES
from ..matrix.cells import CellVerdict, cells_of, matrix_of, page_of, run_cells
from ..processes.executors import ClusterError
from ..targets.releases import releases_of
from ..targets.supported_releases import packages
from ..targets.target_spec import parse_target
from .options import ClassPath, SchedulerClass, TimeLimit, project_note, project_settings


def command(
    releases: Annotated[
        list[str],
        typer.Argument(
            metavar="RELEASE...",
            help=f"NAME==VERSION, or a NAME for all of its releases: {', '.join(packages())}",
        ),
    ],
    profile: Annotated[
        str, typer.Option(help="profile of every gate: quick, ci or nightly")
    ] = "quick",
    seed: Annotated[int, typer.Option(help="seed of every gate, 0 or more")] = 0,
    jobs: Annotated[
        int, typer.Option(help="number of gates that run at the same time, at least 1")
    ] = 1,
    cluster: Annotated[
        str | None,
        typer.Option(help="use this Dask scheduler instead of --jobs: tcp://HOST:PORT"),
    ] = None,
    time_limit: TimeLimit = None,
    scheduler_cls: SchedulerClass = None,
    path: ClassPath = None,
    out: Annotated[
        Path,
        typer.Option(
            help="folder for matrix.json, matrix.md, verdicts and scenarios; gates with a verdict "
            "in it are not repeated, unless the settings in pyproject.toml have changed"
        ),
    ] = Path("schedproof-matrix"),
) -> None:
    """Judge many releases, each in every configuration. Run the command again to resume.

    With --scheduler-cls, judge that class on each release, with the release's own class as the
    base. This shows what you must change before the class can run on a new release. Such gates are
    never skipped.

    Exit code 0: every gate gave a verdict, pass or fail. 3: some gates gave none, or the command
    was interrupted.
    """
    check_choice("--profile", profile, PROFILES)
    at_least("--seed", seed, 0)
    at_least("--jobs", jobs, 1)
    if cluster is not None and jobs != 1:
        raise InputError("--jobs", "a cluster has its own workers; valid: --jobs or --cluster")
    check_unicode("--out", str(out))
    targets: list[str] = []
    for release in releases:
        targets += [release] if "==" in release else releases_of(release)
    targets = list(dict.fromkeys(targets))
    scheduler = ""
    if scheduler_cls is not None:  # judge the same class on each release
        with option("--scheduler-cls"):
            specs = [parse_target(target, path, scheduler_cls) for target in targets]
        scheduler = specs[0].scheduler
    cells = cells_of(targets, profile, seed, scheduler, project_settings)
    note = project_note({parse_target(target).default_system for target in targets})
    console = output.make_console()
    if note:
        output.notice(console)(note)
    done = 0
    output.notice(console)(f"{output.plural(len(cells), 'gate')} of profile {profile}")

    def report(judged: CellVerdict, seconds: float) -> None:
        nonlocal done
        done += 1
        line = f"{done}/{len(cells)}  {judged.cell.title}: {judged.outcome}"
        output.say(console, f"{line} ({seconds:.0f} s)" if seconds else f"{line} (kept)")

    try:
        judged = run_cells(cells, out.absolute(), report, jobs, cluster)
    except (KeyboardInterrupt, ClusterError) as ends:
        reason = str(ends) if isinstance(ends, ClusterError) else why()
        again = (
            "the gates of a class start over" if scheduler else "run the command again to resume"
        )
        output.fail(f"{reason} after {done} of {len(cells)}; {again}")
        raise typer.Exit(INCONCLUSIVE) from None
    keep_results()
    matrix = matrix_of(judged, profile, seed)
    given = {"--profile": (profile, "quick"), "--seed": (seed, 0), "--jobs": (jobs, 1)}
    options = [f"{key}={value}" for key, (value, usual) in given.items() if value != usual]
    options += [f"--scheduler-cls={scheduler_cls}"] if scheduler_cls is not None else []
    options += [f"--path={path}"] if path is not None else []
    words = shlex.join(["schedproof", "matrix", *releases, *options])
    write(out / "matrix.json", output.as_json(matrix))
    write(out / "matrix.md", page_of(matrix, words, note).encode())
    output.say(console, f"{out / 'matrix.md'}: {len(matrix.rows)} rows with broken rules")
    raise typer.Exit(0 if all(result.is_judged for result in judged) else INCONCLUSIVE)
