"""`python -m schedproof.examples.studies`: studies of workloads on the reference models."""

import typer

from ...gate.cli.app import main
from . import compare, frontier, recompute

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Studies of workloads on the reference models.",
)
app.command("frontier")(frontier.command)
app.command("recompute")(recompute.command)
app.command("compare")(compare.command)

if __name__ == "__main__":
    main(app)
