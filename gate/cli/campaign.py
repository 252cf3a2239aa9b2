"""`schedproof campaign`: search systems, scales, configurations and seeds for hours."""

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from ...model.errors import InputError
from ..console import INCONCLUSIVE, output
from ..console.option_checks import at_least, check_places
from ..targets.target_spec import parse_target

if TYPE_CHECKING:
    from ..campaign.options import CampaignOptions

UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
BUDGET = re.compile("".join(rf"(?:(\d+(?:\.\d+)?){unit})?" for unit in UNITS), re.ASCII)
DEFAULT_LEDGER = Path("schedproof-out") / "campaign.jsonl"


def command(
    budget: Annotated[
        str | None, typer.Option(help="time after which no new item starts: 2h, 30m, 1h30m")
    ] = None,
    items: Annotated[
        int | None, typer.Option(help="total number of items in the campaign, at least 1")
    ] = None,
    ledger: Annotated[
        Path, typer.Option(help="file that stores the campaign; an existing campaign is resumed")
    ] = DEFAULT_LEDGER,
    workers: Annotated[
        int | None,
        typer.Option(help="number of processes, at least 1  [default: the number of cores]"),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="use this Dask scheduler instead of --workers: tcp://HOST:PORT"),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="seed, 0 or more  [default: 0]")] = None,
    system: Annotated[
        list[str] | None,
        typer.Option(help="search only this system; repeat the option or write A,B to add more"),
    ] = None,
    revision: Annotated[
        list[str] | None,
        typer.Option(help="search only this revision; repeat the option to add more"),
    ] = None,
    rule: Annotated[
        list[str] | None, typer.Option(help="check only this rule; repeat the option to add more")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="target to judge, named as for gate  [default: model]")
    ] = None,
    show: Annotated[
        bool,
        typer.Option("--report", help="report what the ledger contains, without running anything"),
    ] = False,
    out: Annotated[Path, typer.Option(help="folder for counterexamples")] = Path("schedproof-out"),
) -> None:
    """Search for hours, on one machine or many. Run the same command again to resume."""
    check_places(None, out)
    console = output.make_console()
    if show:
        running = (budget, items, workers, cluster, seed, system, revision, rule, target)
        if any(value is not None for value in running):
            raise InputError("--report", "runs nothing; only --ledger and --out are valid with it")
        from ..campaign.ledger import read_ledger
        from ..campaign.report import report

        raise typer.Exit(report(console, read_ledger(ledger), out))
    ends = float("inf") if budget is None else time.monotonic() + _seconds(budget)
    if budget is None and items is None:
        raise InputError("--budget", "not given; valid: a time, such as 2h, or --items N")
    for name, value, least in (
        ("--items", items, 1),
        ("--workers", workers, 1),
        ("--seed", seed, 0),
    ):
        at_least(name, least if value is None else value, least)
    if cluster is not None and workers is not None:
        raise InputError(
            "--workers", "a cluster has its own workers; valid: --workers or --cluster"
        )
    from ..campaign.options import CampaignOptions  # Hypothesis takes a while to import

    options = CampaignOptions(seed, _words(system), _words(revision), _words(rule), target)
    workers = workers or os.cpu_count() or 1
    raise typer.Exit(_run(console, options, ledger, workers, cluster, items, ends, out))


def _run(
    console: Console,
    options: "CampaignOptions",
    path: Path,
    workers: int,
    cluster: str | None,
    items: int | None,
    ends: float,
    out: Path,
) -> int:
    from ..campaign.ledger import open_ledger, read_ledger
    from ..campaign.report import report
    from ..campaign.running import run_campaign, work
    from ..processes.executors import ClusterError, make_executor

    with open_ledger(path, lambda begun: options.settings(path, begun)) as ledger:
        target = parse_target(ledger.settings.target)
        if ledger.items and target.may_change:
            kept = f"{output.plural(ledger.items, 'item')} of earlier runs"
            kept += " counts as well" if ledger.items == 1 else " count as well"
            output.say(console, f"{kept}; if {target} has changed since, use a new --ledger")
        try:
            with make_executor(work, workers, cluster) as executor, console.status("") as status:
                run_campaign(
                    *(ledger, executor),
                    items=items,
                    ends=ends,
                    report=lambda line: output.say(console, line),
                    progress=lambda ran: status.update(
                        f"ran {ran:,} items, {ledger.items:,} in total"
                    ),
                )
        except (KeyboardInterrupt, ClusterError) as error:
            reason = str(error) if isinstance(error, ClusterError) else "interrupted"
            kept = f"{ledger.items:,} items are in {path}"
            output.fail(f"{reason}; {kept}: run the command again to resume")
            return INCONCLUSIVE
    return report(console, read_ledger(path), out)


def _seconds(budget: str) -> float:
    match = BUDGET.fullmatch(budget.strip())
    parts = zip(match.groups(), UNITS.values(), strict=True) if match else ()
    seconds = sum(float(number) * unit for number, unit in parts if number)
    if not seconds:
        raise InputError("--budget", f"{budget!r}; valid: a time, such as 2h, 30m, 45s or 1h30m")
    return seconds


def _words(values: Sequence[str] | None) -> tuple[str, ...] | None:
    if values is None:
        return None
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())
