"""`schedproof search`: find a counterexample to one rule, or prove it."""

from pathlib import Path
from typing import Annotated

import typer

from ..console import output
from ..console.option_checks import at_least, check_places
from ..processes.work_process import TimeLimit
from .options import model_note


def command(
    rule: Annotated[
        str,
        typer.Argument(
            help="rule to search; Z3 decides questions about SPY-R07, R47, R41, R50, P01, R19 and "
            "more"
        ),
    ],
    engine: Annotated[
        str,
        typer.Option(
            help="z3: decides a question about the rule; hypothesis: tries random runs, for any "
            "checked rule; explore: tries every run of small scopes; vectorized: thousands of runs "
            "at once, for SPY-R07 and SPY-R35; all: z3, hypothesis and explore"
        ),
    ] = "z3",
    revision: Annotated[
        str | None, typer.Option(help="published behaviour to search  [default: sound]")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            help="parameter of the search: a length in tokens, formula=NAME, or a switch "
            "(early_eos, interleave, pausing)",
        ),
    ] = None,
    prove: Annotated[
        bool,
        typer.Option(
            "--prove",
            help="prove the lemmas from which the answer follows, and state what they leave out. "
            "--param block_size=any proves the arithmetic for any block size; the lemmas about "
            "code still use one size",
        ),
    ] = False,
    certificate: Annotated[
        Path | None,
        typer.Option(
            help="new folder for the lemmas that --prove uses, in SMT-LIB, and for cvc5's proofs "
            "of them"
        ),
    ] = None,
    maximize: Annotated[
        str | None,
        typer.Option(
            help="find the worst volume, overshoot or waste that N requests can cause "
            "(--param requests=N)  [default: 5]"
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="also replay the counterexample on this target")
    ] = None,
    out: Annotated[Path, typer.Option(help="folder for counterexamples")] = Path("schedproof-out"),
    jobs: Annotated[
        int,
        typer.Option(help="number of processes for the engines hypothesis and explore, at least 1"),
    ] = 2,
    time_limit: Annotated[
        float,
        typer.Option(
            help="seconds after which the answer is inconclusive, at least 1; time in which Z3 "
            "waits for a processor does not count"
        ),
    ] = 300.0,
) -> None:
    """Search for a counterexample to one rule, or prove a claim about it. The answer may be
    inconclusive."""
    at_least("--time-limit", time_limit, 1)
    at_least("--jobs", jobs, 1)
    check_places(None, out)
    limit = TimeLimit.begin(time_limit)
    # Late, because importing Z3 takes a third of a second.
    from ..search.question import Question, run, system_of

    question = Question(
        rule=rule,
        engine=engine,
        revision=revision,
        changes=changes or [],
        prove=prove,
        maximize=maximize,
        target=target,
        out=out,
        time_limit=limit,
        jobs=jobs,
        certificate=certificate,
    )
    console = output.make_console()
    if target is None and (note := model_note("searches", system_of(rule))):
        output.notice(console)(note)
    raise typer.Exit(run(console, question))
