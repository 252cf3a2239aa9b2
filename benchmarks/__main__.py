"""`python -m schedproof.benchmarks`: the whole table of speed."""

import typer

from ..gate.cli.app import main
from .command import command

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
app.command()(command)

if __name__ == "__main__":
    main(app)
