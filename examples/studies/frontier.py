"""`schedproof frontier`: what a chunk size costs a long prompt and the requests that decode
beside it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ...gate.console import CONFORMS, output
from ...gate.console.option_checks import between, check_file
from ...gate.files.disk import write
from ...model.errors import InputError
from .frontier_model import (
    KNOBS,
    Load,
    Priced,
    StepCost,
    even_chunk,
    even_chunks,
    measure,
    possible,
    priced,
)
from .frontier_picture import picture
from .pictures import check_picture

CHUNKS = "64,128,256,512,1024,2048,4096,8192,16384,32768"
MAX_TOKENS = 1_000_000
MAX_SETTINGS = 100
MAX_COST = 1_000_000
KNOB_NAMES = {
    "budget": "max_num_batched_tokens",
    "threshold": "long_prefill_token_threshold",
}


def command(
    prompt: Annotated[int, typer.Option(help="tokens of the long prompt, 1 to 1000000")] = 30_000,
    decoding: Annotated[int, typer.Option(help="requests that decode beside it, 1 to 1024")] = 32,
    chunks: Annotated[
        str, typer.Option(help="settings in tokens that each of the two knobs is given")
    ] = CHUNKS,
    step_cost: Annotated[
        float,
        typer.Option(help="of a step, whatever it computes: illustrative units, no hardware's"),
    ] = 256.0,
    token_cost: Annotated[float, typer.Option(help="of each token in it, in the same units")] = 1.0,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="write the points to this file")
    ] = None,
    picture_file: Annotated[
        Path | None,
        typer.Option("--picture", help="draw the points: an .html file, or .svg; needs Plotly"),
    ] = None,
) -> None:
    """Show the frontier of TTFT against ITL over the chunk size of a long prompt, on vLLM's
    model."""
    between("--prompt", prompt, 1, MAX_TOKENS)
    between("--decoding", decoding, 1, 1024)
    between("--step-cost", step_cost, 0, MAX_COST)
    between("--token-cost", token_cost, 0.001, MAX_COST)
    settings = read_chunks(chunks)
    if json_file is not None:
        check_file("--json", json_file)
    if picture_file is not None:
        check_picture(picture_file)
    load, cost = Load(prompt, decoding), StepCost(step_cost, token_cost)
    console = output.make_console()
    points = measured(console, load, settings, cost)
    show(console, load, settings, cost, points)
    if json_file is not None:
        write(json_file, as_json(load, cost, points))
    if picture_file is not None:
        write(picture_file, picture(picture_file, load, cost, points))
    raise typer.Exit(CONFORMS)


def read_chunks(words: str) -> tuple[int, ...]:
    """Read settings in tokens such as "64,128"; return them in ascending order without duplicates.

    Raises:
        InputError: no numbers, or numbers out of range.
    """
    parts = [part.strip() for part in words.split(",")]
    sizes: set[int] = set()
    for part in parts:
        if not (part.isascii() and part.isdigit() and 1 <= int(part[:8]) <= MAX_TOKENS):
            raise InputError(
                "--chunks", f"{words!r:.60}; valid: tokens from 1 to {MAX_TOKENS:,}, as 64,128,256"
            )
        sizes.add(int(part))
    if len(sizes) > MAX_SETTINGS:
        raise InputError("--chunks", f"{len(sizes)} settings; valid: 1 to {MAX_SETTINGS}")
    return tuple(sorted(sizes))


def measured(console: Console, load: Load, settings: Sequence[int], cost: StepCost) -> list[Priced]:
    """Run every possible setting of both knobs on the model."""
    choices = [
        (knob, setting) for knob in KNOBS for setting in settings if possible(load, knob, setting)
    ]
    points = []
    with console.status("") as status:
        for number, (knob, setting) in enumerate(choices, 1):
            status.update(f"{knob} {setting}: {number} of {len(choices)}")
            points.append(measure(load, knob, setting))
    return priced(points, cost)


def show(
    console: Console, load: Load, settings: Sequence[int], cost: StepCost, points: list[Priced]
) -> None:
    """Print the points by ascending chunk, and the conclusions."""
    output.say(
        console,
        f"frontier vllm: a prompt of {load.prompt:,} tokens arrives beside {load.decoding} decodes",
    )
    for knob, name in KNOB_NAMES.items():
        output.say(console, f"  {knob:<9} {name}, the other knob out of the way")
    output.say(
        console,
        f"  a step costs {cost.fixed:g} + {cost.per_token:g} x its tokens: illustrative units, no "
        "hardware's",
    )
    console.print(table(points))
    left_out = [str(setting) for setting in settings if not possible(load, "budget", setting)]
    if left_out:
        output.say(
            console,
            f"no budget of {', '.join(left_out)}: {load.decoding} decodes and two prompts need "
            f"{load.decoding + 2} tokens a step",
        )
    for line in conclusions(load, points):
        output.say(console, line)


def table(points: list[Priced]) -> Table:
    """Return a table with a row for each point; dominated ones are dim and marked."""
    drawn = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    drawn.add_column("\nknob")
    for head in (
        *("\nset to", "\nchunk", "TTFT\nsteps", "longest\nstep", "mean\nstep"),
        *("TTFT\ncost", "ITL\nlongest", "ITL\nmean", "wait\nbehind"),
    ):
        drawn.add_column(head, justify="right")
    drawn.add_column("\n")
    for priced_point in points:
        point = priced_point.point
        drawn.add_row(
            point.knob,
            *(f"{point.setting:,}", f"{point.chunk:,}", f"{point.steps:,}"),
            *(f"{point.longest:,}", f"{point.tokens / point.steps:,.0f}"),
            *(
                f"{priced_point.ttft:,.0f}",
                f"{priced_point.itl:,.0f}",
                f"{priced_point.mean_itl:,.0f}",
            ),
            f"{point.waits:,}",
            "x" if priced_point.dominated else "",
            style="dim" if priced_point.dominated else None,
        )
    return drawn


def conclusions(load: Load, points: list[Priced]) -> list[str]:
    """Sum up the points in a few lines."""
    kept = sum(not point.dominated for point in points)
    lines = [
        "chunk: the prompt's tokens in a step; steps: all tokens in one, decodes included",
        "wait behind: steps to the first token of a short prompt that comes a step later",
        f"x: dominated; {kept} of {len(points)} points are on the frontier",
        f"{even_chunks(load.prompt):,} of all {load.prompt:,} chunk sizes are: they cut the prompt "
        "into even slices",
    ]
    worse = next((result.point for result in points if result.dominated), None)
    if worse is not None:
        even = even_chunk(load.prompt, worse.chunk)
        lines.append(f"a chunk of {even:,} takes the same {worse.steps:,} steps as {worse.chunk:,}")
    return lines


def as_json(load: Load, cost: StepCost, points: list[Priced]) -> bytes:
    """Return the file of --json; lengths are in tokens, prices in the unit of the cost."""
    whole = {
        "format": "schedproof/frontier@1",
        "system": "vllm",
        **load._asdict(),
        "cost": cost._asdict(),
        "points": [
            {
                **point.point._asdict(),
                "mean": point.point.tokens / point.point.steps,
                "ttft": point.ttft,
                "itl": point.itl,
                "mean_itl": point.mean_itl,
                "dominated": point.dominated,
            }
            for point in points
        ],
    }
    return output.as_json(whole)
