"""`schedproof demo`: show what the main commands do, on the models, without a network."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from ..console import INCONCLUSIVE, WORDS, output
from ..console.option_checks import check_places
from .app import app, run

# For each command, a sentence about it and its arguments. OUT stands for the output folder.
SCENES = (
    (
        "`gate` judges a scheduler: here a model of published documentation, by one of its rules.",
        "gate model --system spyre --revision documented --rule SPY-R07 --profile quick "
        "--max-failures 1 --out OUT",
    ),
    (
        "`replay` runs a finding again and explains it. This finding is built in.",
        "replay late-arrivals-before-961 --rule SPY-R07 --fold",
    ),
    (
        "Z3 proves a rule of a model's code, here vLLM's token budget, and prints its assumptions.",
        "search V1-I2",
    ),
    (
        "`explore` visits every behaviour of a small scope.",
        "explore --system vllm --scope slots --limits 3",
    ),
    (
        "`show` renders a run as an HTML page.",
        "show late-arrivals-before-961 --rule SPY-R07 -o OUT/late-arrivals.html",
    ),
)


def command(
    out: Annotated[Path, typer.Option(help="folder for counterexamples and pages")] = Path(
        "schedproof-demo"
    ),
) -> None:
    """Run the main commands on the models. It takes half a minute and needs no network."""
    check_places(None, out)
    out.mkdir(exist_ok=True)
    console = output.make_console()
    for says, line in SCENES:
        words = [word.replace("OUT", str(out)) for word in shlex.split(line)]
        console.rule()
        console.print(says, style="bold", markup=False)
        console.print(f"$ schedproof {shlex.join(words)}\n", markup=False, soft_wrap=True)
        code = run(app, words, project=False)
        console.print(f"exit code {code}: {WORDS[code]}\n", markup=False)
        # Only after Ctrl-C: otherwise no command of the demo is inconclusive.
        if code == INCONCLUSIVE:
            raise typer.Exit(code)
    console.rule()
    output.say(console, "To judge your own scheduler, start with `schedproof init`.")
