"""`schedproof check contracts`: prove the arithmetic of Spyre's model with CrossHair."""

from typing import Annotated

import typer

from ...model.errors import InputError
from ..console import output
from ..console.option_checks import at_least


def command(
    what: Annotated[
        str,
        typer.Argument(help="contracts (about the arithmetic of Spyre's model, with CrossHair)"),
    ],
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="check only this contract; repeat the option to add more"),
    ] = None,
    profile: Annotated[
        str, typer.Option(help="ci or nightly; nightly also uses Hypothesis")
    ] = "ci",
    time_limit: Annotated[
        float,
        typer.Option(help="seconds after which a contract is inconclusive, at least 1"),
    ] = 20.0,
) -> None:
    """Prove the arithmetic of Spyre's model, with a verdict per contract."""
    if what != "contracts":
        raise InputError("WHAT", f"{what!r}; valid: contracts")
    at_least("--time-limit", time_limit, 1)
    from ..search.contracts import run_contracts

    raise typer.Exit(run_contracts(output.make_console(), only or [], profile, time_limit))
