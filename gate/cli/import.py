"""`schedproof import`: turn a load recorded from a server into a scenario."""  # noqa: N999

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from ...model.errors import InputError
from ...model.scenario import FORMAT
from ..console import output
from ..console.option_checks import (
    at_least,
    check_file,
    check_not_input,
    check_own,
    resolved_revision,
)
from ..console.output import plural
from ..files.disk import FileError, write
from ..files.loads import FORMS, Load, read_load, scenario_of_load, shared_tokens
from ..files.scenario_file import MAX_BYTES, scenario_json
from ..targets.scales import read_changes

SHOWN_REASONS = 3


def command(
    form: Annotated[str, typer.Argument(metavar="FORM", help=f"{', '.join(FORMS)}")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="the recorded load")],
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            metavar="FILE",
            help="the scenario to write  [default: the load's name with .json, in this folder]",
        ),
    ] = None,
    system: Annotated[str, typer.Option(help="the system that the scenario is for")] = "vllm",
    revision: Annotated[
        str | None, typer.Option(help="published behaviour  [default: the system's first]")
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", help="set a configuration key; repeat the option to add more"),
    ] = None,
    step_ms: Annotated[
        float,
        typer.Option("--step-ms", help="milliseconds per step, to convert arrival times to steps"),
    ] = 20.0,
    first: Annotated[int, typer.Option("--from", help="first row to take, counted from 1")] = 1,
    requests: Annotated[int, typer.Option(help="largest number of rows to take, at least 1")] = 100,
    tokens_per_hash: Annotated[
        int,
        typer.Option("--tokens-per-hash", help="prompt tokens per hash, for the mooncake format"),
    ] = 512,
    skip_unfit: Annotated[
        bool, typer.Option("--skip-unfit", help="leave out rows that the system cannot run")
    ] = False,
) -> None:
    """Make a scenario from a load that a server recorded, with its real lengths and arrival
    times."""
    if form not in FORMS:
        raise InputError("FORM", f"{form!r:.60}; valid: {', '.join(FORMS)}")
    for name, value in (
        ("--from", first),
        ("--requests", requests),
        ("--tokens-per-hash", tokens_per_hash),
    ):
        at_least(name, value, 1)
    at_least("--step-ms", step_ms, 0.001)
    revision = resolved_revision(system, revision)
    values = read_changes(system, revision, config or [], {})
    place = out or Path(f"{file.stem}.json")
    check_file("--out", place)
    check_not_input("--out", place, "the recorded load", file)
    if out is None:
        check_own("--out", place, "scenario", FORMAT.encode())
    load = read_load(form, file, first, requests, tokens_per_hash)
    scenario = scenario_of_load(
        load, file.name, (system, revision, values), step_ms, tokens_per_hash
    )
    if load.unfit and not skip_unfit:
        number, why = next(iter(load.unfit.items()))
        others = f", and {len(load.unfit) - 1:,} more of {len(load.rows):,} rows cannot run"
        raise FileError(
            f"{file}: row {number:,}: {why}{others if len(load.unfit) > 1 else ''}; valid: "
            "--config with larger limits, or --skip-unfit to leave them out"
        )
    numbers = [row.number for row in load.rows]
    note = f"{form}, rows {min(numbers)} to {max(numbers)} of {file.name}, {step_ms:g} ms per step"
    text = scenario_json(replace(scenario, origin={"note": note})).encode()
    if len(text) > MAX_BYTES:
        raise InputError("--requests", f"{len(text):,} bytes; valid: at most {MAX_BYTES:,}")
    write(place, text)
    console = output.make_console()
    for line in what_is_missing(load):
        output.say(console, line)
    generated = sum(request.max_tokens for request in scenario.requests)
    prompts = sum(request.prompt_len for request in scenario.requests)
    output.say(console, f"{place}: {plural(len(scenario.requests), 'request')}")
    output.say(
        console,
        f"  {prompts:,} prompt tokens, {shared_tokens(load, tokens_per_hash):,} of them shared "
        "with an earlier prompt",
    )
    last = max(request.arrival for request in scenario.requests)
    output.say(console, f"  {generated:,} tokens generated, arrivals in steps 0 to {last:,}")


def what_is_missing(load: Load) -> Iterator[str]:
    if load.goes_on:
        last = max(row.number for row in load.rows)
        yield f"rows from {last + 1:,} on are left out (--requests)"
    numbers = [row.number for row in load.rows]
    if numbers != sorted(numbers):
        yield "the rows are not in order of arrival; the scenario sorts them by their times"
    if load.unused:
        yield f"fields that a scenario cannot express: {', '.join(load.unused)}"
    if load.unfit:
        yield f"{len(load.unfit):,} of {plural(len(load.rows), 'row')} cannot run and are left out:"
        for number, why in islice(load.unfit.items(), SHOWN_REASONS):
            yield f"  row {number:,}: {why}"
        if len(load.unfit) > SHOWN_REASONS:
            yield f"  and {len(load.unfit) - SHOWN_REASONS:,} more"
