"""`schedproof compare`: run one workload on the model of every system."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ...gate.console import CONFORMS, output
from ...gate.console.option_checks import check_file
from ...gate.files.disk import write
from ...gate.files.scenario_file import read_scenario
from ...model.errors import InputError
from ...model.scenario import Request
from .compare_picture import picture
from .compared import Measured, check_servers, longest_of, measure, servers
from .pictures import check_picture
from .workloads import WORKLOADS

NAMES = ", ".join(workload.name for workload in WORKLOADS)


def command(
    workload: Annotated[
        str, typer.Argument(metavar="WORKLOAD", help=f"{NAMES}; or a scenario file: its requests")
    ],
    tokens: Annotated[int, typer.Option(help="of KV cache that each server has")] = 65_536,
    slots: Annotated[int, typer.Option(help="max_num_seqs of each server")] = 32,
    budget: Annotated[
        int, typer.Option(help="max_num_batched_tokens, where a system has it")
    ] = 2_048,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="write the counts to this file")
    ] = None,
    picture_file: Annotated[
        Path | None, typer.Option("--picture", help="draw the tokens of every step (.html, .svg)")
    ] = None,
) -> None:
    """Compare tokens per step, waiting, preemptions and padding of the same requests on every
    system."""
    requests = requests_of(workload)
    check_servers(tokens, slots, budget)
    if json_file is not None:
        check_file("--json", json_file)
    if picture_file is not None:
        check_picture(picture_file)
    console = output.make_console()
    measured = []
    with console.status("") as status:
        for server in servers(tokens, slots, budget, longest_of(requests)):
            status.update(server.name)
            measured.append(measure(server, requests))
    show(console, workload, len(requests), measured)
    if json_file is not None:
        write(json_file, as_json(workload, measured))
    if picture_file is not None:
        write(picture_file, picture(picture_file, workload, measured))
    raise typer.Exit(CONFORMS)


def requests_of(workload: str) -> Sequence[Request]:
    """Return the requests of a workload or of a scenario.

    Raises:
        InputError: no workload or file has this name.
        FileError: the file is no scenario.
    """
    by_name = {load.name: load.requests for load in WORKLOADS}
    if workload in by_name:
        return by_name[workload]
    if not Path(workload).is_file():
        raise InputError("WORKLOAD", f"{workload!r:.60}; valid: {NAMES}, or a scenario file")
    return read_scenario(Path(workload)).requests


def show(console: Console, workload: str, requests: int, measured: Sequence[Measured]) -> None:
    """Print the servers, the counts, and what they mean."""
    output.say(console, f"compare {workload}: {requests} requests, on models")
    for result in measured:
        config = ", ".join(f"{key} {value}" for key, value in result.server.config.items())
        output.say(console, f"  {result.server.name}: {config}")
    console.print(table(measured))
    output.say(
        console,
        "tokens: computed in a step; wait: steps from arrival to the first scheduling; preempted: "
        "how often; again: tokens that the same request had computed before; pad: of the positions "
        "that prefill chunks and decode rectangles compute, those without a token",
    )
    for result in measured:
        if result.refused or result.unfinished:
            output.say(
                console,
                f"{result.server.name}: {result.refused} requests refused, "
                f"{result.unfinished} never end",
            )


def table(measured: Sequence[Measured]) -> Table:
    """Return a table with a row for each server."""
    drawn = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    drawn.add_column("\nmodel", no_wrap=True)
    for head in (
        *("\nsteps", "tokens\nmean", "\nmost", "wait\nmean", "\nmost"),
        *("pre-\nempted", "\nagain", "pad:\nchunk", "pad:\ndecode"),
    ):
        drawn.add_column(head, justify="right", min_width=max(map(len, head.split())))
    for result in measured:
        waits = result.waits or (0,)
        drawn.add_row(
            result.server.name,
            *(f"{len(result.tokens):,}", f"{mean(result.tokens):,.0f}", f"{max(result.tokens):,}"),
            *(f"{mean(waits):,.0f}", f"{max(waits):,}"),
            *(f"{result.preemptions:,}", f"{result.again:,}"),
            *(f"{share:.0%}" for share in (result.chunk_padding, result.decode_padding)),
        )
    return drawn


def as_json(workload: str, measured: Sequence[Measured]) -> bytes:
    """Return the file of --json; counts are in tokens and steps."""
    rows = [result._asdict() | {"server": result.server._asdict()} for result in measured]
    return output.as_json({"format": "schedproof/compare@1", "workload": workload, "servers": rows})
