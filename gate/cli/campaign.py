"""`schedproof campaign`: rules, systems, revisions, configurations and engines, for hours."""

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from ...model.errors import InputError
from ..console import output
from ..console.exit_codes import INCONCLUSIVE
from ..console.option_checks import at_least, check_places
from ..files.scenario_file import FileError
from ..judging.hypothesis_home import set_hypothesis_home

UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
BUDGET = re.compile("".join(rf"(?:(\d+(?:\.\d+)?){unit})?" for unit in UNITS), re.ASCII)
DEFAULT_LEDGER = Path("schedproof-out") / "campaign.sqlite"


def command(
    budget: Annotated[
        str | None, typer.Option(help="hand out items for so long: 2h, 30m, 1h30m")
    ] = None,
    items: Annotated[
        int | None, typer.Option(help="items of the whole campaign, at least 1")
    ] = None,
    ledger: Annotated[
        Path, typer.Option(help="the campaign's file; an existing one is resumed")
    ] = DEFAULT_LEDGER,
    workers: Annotated[
        int | None, typer.Option(help="processes, at least 1  [default: as many as cores]")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="a Dask scheduler instead, tcp://HOST:PORT")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="from 0 upwards  [default: 0]")] = None,
    system: Annotated[
        list[str] | None, typer.Option(help="only this system; may be repeated, or A,B")
    ] = None,
    revision: Annotated[
        list[str] | None, typer.Option(help="only this revision; may be repeated")
    ] = None,
    rule: Annotated[
        list[str] | None, typer.Option(help="judge this rule only; may be repeated")
    ] = None,
    engine: Annotated[
        list[str] | None, typer.Option(help="hypothesis, explore or z3; may be repeated")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="what Hypothesis runs: a TARGET as of gate  [default: model]"),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(help="examples shared with others: a folder, or redis://HOST:PORT/DB"),
    ] = None,
    merge: Annotated[
        list[Path] | None, typer.Option(help="take over another ledger; may be repeated")
    ] = None,
    show: Annotated[bool, typer.Option("--report", help="say what the ledger holds")] = False,
    out: Annotated[Path, typer.Option(help="folder for counterexamples")] = Path("schedproof-out"),
) -> None:
    """Search for hours, on one machine or many; the same command resumes what was interrupted."""
    check_places(None, out)
    console = output.make_console()
    running = (budget, items, workers, cluster, seed, system, revision, rule, engine, target)
    if merge or show:
        if any(value is not None for value in (*running, database)):
            option = "--merge" if merge else "--report"
            raise InputError(option, "runs nothing; valid beside it: --ledger, --merge, --out")
        raise typer.Exit(_reported(console, ledger, merge or [], out))
    seconds = _seconds(budget) if budget is not None else None
    if seconds is None and items is None:
        raise InputError("--budget", "not given; valid: a time, such as 2h, or --items N")
    for name, value, least in (
        ("--items", items, 1),
        ("--workers", workers, 1),
        ("--seed", seed, 0),
    ):
        at_least(name, least if value is None else value, least)
    if cluster is not None and workers is not None:
        raise InputError("--workers", "a cluster has its own; valid: --workers or --cluster")
    from ..campaign.options import CampaignOptions  # Z3 takes a while to import

    asked = CampaignOptions(
        seed=seed,
        systems=_words(system),
        revisions=_words(revision),
        rules=_words(rule),
        engines=_words(engine),
        target=target,
        database=database,
    )
    began = time.monotonic()
    ends = began + seconds if seconds is not None else float("inf")
    raise typer.Exit(_run(console, asked, ledger, workers, cluster, items, ends, out))


def _run(
    console: Console,
    asked: Any,
    path: Path,
    workers: int | None,
    cluster: str | None,
    most: int | None,
    ends: float,
    out: Path,
) -> int:
    from ..campaign import executors
    from ..campaign.campaign import Campaign
    from ..campaign.ledger import opened
    from ..campaign.report import tell
    from ..processes.cluster import ClusterError

    set_hypothesis_home()
    with opened(path, write=True) as ledger:
        settings = asked.settings(path, ledger.campaigns())

        def make() -> executors.Pool | executors.Cluster:
            if cluster is not None:
                return executors.Cluster(cluster, asked.database)
            return executors.Pool(workers or os.cpu_count() or 1, asked.database)

        failed = ""
        try:
            with executors.running(make) as executor, console.status("") as status:
                campaign = Campaign(
                    *(settings, ledger, executor, most, ends),
                    tell=lambda line: output.say(console, line),
                    watch=lambda now: status.update(_progress(now)),
                )
                campaign.run()
        except KeyboardInterrupt:
            failed = "interrupted"
        except ClusterError as error:
            failed = str(error)
        if failed:
            [[kept]] = ledger.rows("SELECT count(*) FROM results")
            output.fail(f"{failed}; {kept:,} items are in {path}: the same command goes on")
            return INCONCLUSIVE
        return tell(console, ledger, out)


def _progress(campaign: Any) -> str:
    rounds = campaign.rounds
    return f"{rounds.finished:,} of {rounds.planned:,} items planned, {campaign.ran:,} run now"


def _reported(console: Console, path: Path, others: Sequence[Path], out: Path) -> int:
    """Merge what is to be merged, and say what the ledger holds."""
    from ..campaign.ledger import opened
    from ..campaign.report import tell

    for other in others:
        if other.resolve() == path.resolve():
            raise InputError("--merge", f"{other} is the ledger itself; valid: another one")
        with opened(other, write=False) as theirs, opened(path, write=True) as ledger:
            codes = {one.code for one in (*ledger.campaigns(), *theirs.campaigns())}
            if len(codes) > 1:
                problem = (
                    f"{other} and {path} are of different versions of schedproof, Hypothesis or Z3"
                )
                raise FileError(f"{problem}; valid: ledgers of one version")
            ledger.merge(theirs)
    with opened(path, write=False) as ledger:
        return tell(console, ledger, out)


def _seconds(budget: str) -> float:
    """The seconds of a budget.

    Raises:
        InputError: it is none.
    """
    read = BUDGET.fullmatch(budget.strip())
    parts = zip(read.groups(), UNITS.values(), strict=True) if read else ()
    seconds = sum(float(number) * unit for number, unit in parts if number)
    if not seconds:
        raise InputError("--budget", f"{budget!r}; valid: a time, as 2h, 30m, 45s or 1h30m")
    return seconds


def _words(values: Sequence[str] | None) -> tuple[str, ...] | None:
    """Every word of an option that may be repeated; `A,B` means A and B."""
    if values is None:
        return None
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())
