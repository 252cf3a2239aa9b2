"""The command line. Exit codes: 0 conforms, 1 a rule is broken, 2 usage, 3 inconclusive."""

import io
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import __version__
from ..model.errors import InputError
from ..model.faults import ConfigRefused, TargetCrashed, TargetFault, TargetNotStarted
from ..model.systems import check_system
from ..model.target import ModelTarget
from ..spec.catalogue import SYSTEMS, CatalogueError, load, select
from ..spec.shared import topics
from . import (
    bench_command,
    catalogue_rules,
    check_trace_command,
    compare_command,
    corpus_command,
    diff_command,
    doctor_command,
    explore_command,
    frontier_command,
    gate_command,
    recompute_command,
    replay_command,
    report,
    show_command,
    step_command,
)
from .campaign import command as campaign_command
from .exits import INCONCLUSIVE, USAGE
from .options import at_least, check_places, option
from .published import ReleaseError
from .scenario_file import FileError
from .targets.jsonl import serve as serve_lines
from .targets.opening import UnknownTargetError, make_target

# Typer brings its own copy of click and names only the leaves of its errors: this is the root.
COMMAND_LINE_ERROR: type[Exception] = typer.BadParameter.__mro__[2]
TYPER_INTERRUPTED = 130  # what Typer makes of Ctrl-C in a command

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Model-based checks for the schedulers of LLM inference engines.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"schedproof {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="show the version, and exit"
        ),
    ] = False,
) -> None:
    """Options of the command line as a whole."""


app.command("gate")(gate_command.command)
app.command("replay")(replay_command.command)


@app.command()
def search(
    rule: Annotated[
        str,
        typer.Argument(help="the rule to decide; Z3 knows SPY-R07, R41, R50, P01, R19 and more"),
    ],
    engine: Annotated[
        str,
        typer.Option(
            help="z3 decides; for any checked rule hypothesis samples, explore exhausts small "
            "scopes; all; lanes: thousands of runs at once for SPY-R07 and SPY-R35"
        ),
    ] = "z3",
    revision: Annotated[
        str | None, typer.Option(help="the behaviour that is asked about  [default: sound]")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="KEY=VALUE: a length in tokens, a formula, or early_eos=true"),
    ] = None,
    prove: Annotated[
        bool,
        typer.Option(
            "--prove", help="for every number of requests; --set block_size=any: of blocks, too"
        ),
    ] = False,
    maximize: Annotated[
        str | None,
        typer.Option(help="the worst volume, overshoot or waste of --set requests=N  [default: 5]"),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="replay the counterexample on this target, too")
    ] = None,
    out: Annotated[Path, typer.Option(help="folder for counterexamples")] = Path("schedproof-out"),
    time_limit: Annotated[
        float, typer.Option(help="seconds until the answer is inconclusive, at least 1")
    ] = 300.0,
) -> None:
    """Decide a rule: a counterexample, a proof, or inconclusive."""
    at_least("--time-limit", time_limit, 1)
    check_places(None, out)
    from . import deciding  # Z3 takes a while to import

    question = deciding.Question(
        *(rule, engine, revision, changes or [], prove, maximize, target, out, time_limit)
    )
    raise typer.Exit(deciding.run(report.make_console(), question))


app.command("explore")(explore_command.command)
app.command("step")(step_command.command)
app.command("campaign")(campaign_command.command)
app.command("frontier")(frontier_command.command)
app.command("recompute")(recompute_command.command)
app.command("compare")(compare_command.command)
app.add_typer(corpus_command.app, name="corpus")
app.command("doctor")(doctor_command.command)
app.command("diff")(diff_command.command)
app.command("check-trace")(check_trace_command.command)
app.command("show")(show_command.command)
app.command("bench")(bench_command.command)


@app.command()
def selfcheck(
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="witnesses, mutants or agreement; may be repeated"),
    ] = None,
    jobs: Annotated[int, typer.Option(help="processes, at least 1")] = 2,
    quick: Annotated[
        bool, typer.Option("--quick", help="one engine that answers is enough; half the time")
    ] = False,
) -> None:
    """Check the suite itself: every witness occurs, every mutant is killed, the engines agree."""
    from . import selfcheck_command  # Z3 takes a while to import

    parts = selfcheck_command.check_parts(only or [], jobs)
    raise typer.Exit(selfcheck_command.run(report.make_console(), parts, jobs, quick))


@app.command()
def check(
    what: Annotated[str, typer.Argument(help="contracts: of the model's arithmetic, by CrossHair")],
    only: Annotated[
        list[str] | None, typer.Option("--only", help="check only this contract; may be repeated")
    ] = None,
    profile: Annotated[
        str, typer.Option(help="ci, or nightly: then through Hypothesis as well")
    ] = "ci",
    time_limit: Annotated[
        float, typer.Option(help="seconds per contract until it is inconclusive, at least 1")
    ] = 20.0,
) -> None:
    """Prove the arithmetic of the model: a verdict per contract."""
    if what != "contracts":
        raise InputError("WHAT", f"{what!r}; valid: contracts")
    at_least("--time-limit", time_limit, 1)
    from . import contracts

    code = contracts.run_contracts(report.make_console(), only or [], profile, time_limit)
    raise typer.Exit(code)


@app.command()
def rules(
    system: Annotated[
        str | None, typer.Option(help="the system whose rules to list  [default: spyre]")
    ] = None,
    rule: Annotated[str | None, typer.Argument(help="show this rule in full")] = None,
    matrix: Annotated[
        bool, typer.Option("--matrix", help="rule x revision, engine, witness, mutant")
    ] = False,
    shared: Annotated[
        bool, typer.Option("--shared", help="what systems have in common, and where they differ")
    ] = False,
) -> None:
    """List the rules: what they say, where it is written, and what checks them."""
    system = system or (_system_of(rule) if rule else SYSTEMS[0])
    with option("--system"):
        check_system(system)
    catalogue = load(system)
    console = report.make_console()
    if shared:
        catalogue_rules.show_shared(console, topics())
    elif rule is not None:
        catalogue_rules.show_rule(console, select(catalogue, [rule])[0])
    elif matrix:
        catalogue_rules.show_matrix(console, catalogue, system)
    else:
        catalogue_rules.show_list(console, catalogue)


def _system_of(rule: str) -> str:
    """The first system that has a rule of this id, or the first one."""
    having = (system for system in SYSTEMS if rule in {one.id for one in load(system)})
    return next(having, SYSTEMS[0])


@app.command()
def serve(
    target: Annotated[str, typer.Argument(help="model, or MODULE:FACTORY")],
) -> None:
    """Host a Python target on stdin and stdout (JSON Lines, the target protocol)."""
    serve_lines(ModelTarget() if target == "model" else make_target(target))


def main() -> None:
    """Run the command line; every error is one line, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # "×" where there is only ASCII
    try:
        code = app(standalone_mode=False)
        if code == TYPER_INTERRUPTED:
            raise KeyboardInterrupt
    except COMMAND_LINE_ERROR as error:
        _explain_usage(error)
        code = USAGE
    except (typer.Abort, KeyboardInterrupt):
        report.fail("interrupted")
        code = INCONCLUSIVE
    except (InputError, FileError, CatalogueError, UnknownTargetError, ReleaseError) as error:
        report.fail(str(error))
        code = USAGE
    except (ConfigRefused, TargetNotStarted) as error:
        report.fail(str(error))
        code = USAGE
    except TargetCrashed as error:  # at its first start: later ones are findings
        report.fail(str(error))
        report.print_details(error.details)
        code = USAGE
    except TargetFault as error:
        report.fail(str(error))
        code = INCONCLUSIVE
    sys.exit(code or 0)


def _explain_usage(error: Any) -> None:
    """One line that ends with where to look; the help itself where nothing was asked for."""
    message = getattr(error, "format_message", error.__str__)()
    if type(error).__name__ == "NoArgsIsHelpError":
        print(message, file=sys.stderr)
        return
    context = getattr(error, "ctx", None)
    hint = f"; {context.command_path} --help shows what is valid" if context else ""
    report.fail(message.rstrip(".") + hint)
