"""`schedproof recompute`: what each victim policy computes again after preemptions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from ...gate.console import CONFORMS, output
from ...gate.console.option_checks import at_least, check_file
from ...gate.files.disk import write
from ...model.errors import InputError
from ...model.vllm.config import VllmConfig
from .recompute_model import Cost, cost_of
from .victims import POLICIES, Policy
from .workloads import ENGINE, WORKLOADS, Workload, fewest_blocks

Row = tuple[Workload, Policy, Cost]


def command(
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--workload",
            help=f"one of {', '.join(workload.name for workload in WORKLOADS)}  [default: all]",
        ),
    ] = None,
    blocks: Annotated[int, typer.Option(help="of 16 tokens, in the pool")] = 400,
    caching: Annotated[
        bool, typer.Option("--prefix-caching/--no-prefix-caching", help="vLLM's prefix cache")
    ] = True,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="write the counts to this file")
    ] = None,
) -> None:
    """Compare the price of preemption under four victim policies, on vLLM's model."""
    workloads = chosen_workloads(only)
    at_least("--blocks", blocks, max(fewest_blocks(workload) for workload in workloads))
    if json_file is not None:
        check_file("--json", json_file)
    config = msgspec.structs.replace(ENGINE, num_blocks=blocks, enable_prefix_caching=caching)
    console = output.make_console()
    rows = measured(console, config, workloads)
    show(console, config, rows)
    if json_file is not None:
        write(json_file, as_json(config, rows))
    raise typer.Exit(CONFORMS)


def chosen_workloads(names: Sequence[str] | None) -> list[Workload]:
    """Return the workloads with these names, or all.

    Raises:
        InputError: an unknown name.
    """
    by_name = {workload.name: workload for workload in WORKLOADS}
    for name in names or ():
        if name not in by_name:
            raise InputError("--workload", f"{name!r:.60}; valid: {', '.join(by_name)}")
    return [by_name[name] for name in dict.fromkeys(names or by_name)]


def measured(console: Console, config: VllmConfig, workloads: Sequence[Workload]) -> list[Row]:
    """Run every workload under every policy."""
    rows = []
    with console.status("") as status:
        for workload in workloads:
            for policy in POLICIES:
                status.update(f"{workload.name}, {policy.name}")
                rows.append((workload, policy, cost_of(config, workload, policy)))
    return rows


def show(console: Console, config: VllmConfig, rows: Sequence[Row]) -> None:
    """Print the policies, the counts, and what they mean."""
    output.say(
        console,
        f"recompute vllm: {config.num_blocks} blocks of {config.block_size} tokens, budget "
        f"{config.max_num_batched_tokens:,}, prefix cache "
        f"{'on' if config.enable_prefix_caching else 'off'}",
    )
    for policy in POLICIES:
        output.say(console, f"  {policy.name:<9} preempts {policy.about}")
    output.say(console, "workloads, as requests x (prompt + output) in tokens:")
    for workload in dict.fromkeys(load for load, _, _ in rows):
        output.say(console, f"  {workload.name:<14} {workload.about}")
    console.print(table(rows))
    output.say(console, "most: preemptions of one request; again: tokens that the same request had")
    output.say(console, "computed before; life: steps from arrival to end, on average")


def table(rows: Sequence[Row]) -> Table:
    """Return a table with a row for each workload and policy; the fewest recomputed tokens are
    bold."""
    drawn = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    drawn.add_column("workload")
    drawn.add_column("policy")
    for head in ("preemptions", "most", "computed", "again", "steps", "life"):
        drawn.add_column(head, justify="right")
    last = None
    for workload, policy, cost in rows:
        least = min(other.recomputed for load, _, other in rows if load is workload)
        again = f"{cost.recomputed:,}"
        drawn.add_row(
            "" if workload is last else workload.name,
            policy.name,
            *(f"{cost.preemptions:,}", f"{cost.most:,}", f"{cost.computed:,}"),
            f"[bold]{again}[/bold]" if cost.recomputed == least else again,
            *(f"{cost.steps:,}", f"{cost.mean_steps:,.0f}"),
        )
        last = workload
    return drawn


def as_json(config: VllmConfig, rows: Sequence[Row]) -> bytes:
    """Return the file of --json; lengths are in tokens, durations in steps."""
    whole = {
        "format": "schedproof/recompute@1",
        "system": "vllm",
        "config": config,
        "rows": [
            {"workload": workload.name, "policy": policy.name, **cost._asdict()}
            for workload, policy, cost in rows
        ],
    }
    return output.as_json(whole)
