"""How fast is everything, in one run on one machine?

Each figure compares things that run side by side. All figures together take half an hour on one
core:

    make tool NAME=benchmarks OPTIONS="--only models,overhead --json figures.json"
    make tool NAME=benchmarks OPTIONS=--quick    # a minute: do they still work?
"""

import typer

from schedproof.gate.cli.app import main

from .command import command

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
app.command()(command)

if __name__ == "__main__":
    main(app)
