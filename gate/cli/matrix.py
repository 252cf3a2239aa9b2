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
            help="folder for matrix.json, matrix.md, verdicts and scenarios; gates whose verdict "
            "is already there are not repeated, unless the settings in pyproject.toml have changed"
        ),
    ] = Path("schedproof-matrix"),
) -> None:
    """Judge many releases, each in every configuration. Run the command again to resume.

    With --scheduler-cls, judge that class on each release, with the release's own class as the
    base. This shows what you must change before the class can run on a new release. Such gates are
    never skipped.

    Exit code 0: every gate gave a verdict, pass or fail. 3: some gates gave none, or the command
    was interrupted or reached its time limit. The results so far are then written, with a list of
    the missing gates.
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
    judged: dict[str, CellVerdict] = {}
    unfinished = ""
    output.notice(console)(f"{output.plural(len(cells), 'gate')} of profile {profile}")

    def report(result: CellVerdict, seconds: float) -> None:
        judged[result.cell.title] = result
        line = f"{len(judged)}/{len(cells)}  {result.cell.title}: {result.outcome}"
        output.say(console, f"{line} ({seconds:.0f} s)" if seconds else f"{line} (kept)")

    try:
        results = run_cells(cells, out.absolute(), report, jobs, cluster)
    except (KeyboardInterrupt, ClusterError) as ends:
        unfinished = str(ends) if isinstance(ends, ClusterError) else why()
        again = (
            "the next run judges the class from the start"
            if scheduler
            else "run the command again to resume"
        )
        output.fail(f"{unfinished} after {len(judged)} of {len(cells)}; {again}")
        if not judged:
            raise typer.Exit(INCONCLUSIVE) from None
        left = CellVerdict(cells[0], None, f"{unfinished} before it was judged")
        results = [judged.get(cell.title) or left._replace(cell=cell) for cell in cells]
    keep_results()
    matrix = matrix_of(results, profile, seed)
    given = {"--profile": (profile, "quick"), "--seed": (seed, 0), "--jobs": (jobs, 1)}
    options = [f"{key}={value}" for key, (value, usual) in given.items() if value != usual]
    options += [f"--scheduler-cls={scheduler_cls}"] if scheduler_cls is not None else []
    options += [f"--path={path}"] if path is not None else []
    words = shlex.join(["schedproof", "matrix", *releases, *options])
    write(out / "matrix.json", output.as_json(matrix))
    write(
        out / "matrix.md",
        page_of(matrix, words, note, unfinished, len(cells) - len(judged)).encode(),
    )
    for target in targets if unfinished else ():
        names = [
            c.configuration.name for c in cells if c.target == target and c.title not in judged
        ]
        if names:
            output.say(console, f"not judged: {target}: {', '.join(names)}")
    rows = f"{output.plural(len(matrix.rows), 'row')} with broken rules"
    output.say(console, f"{out / 'matrix.md'}: {rows}{', incomplete' if unfinished else ''}")
    raise typer.Exit(0 if all(result.is_judged for result in results) else INCONCLUSIVE)
