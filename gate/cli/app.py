"""The command line. Exit codes: 0 conforms, 1 a rule is broken, 2 usage, 3 inconclusive."""

import io
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ... import __version__
from ...model.errors import InputError
from ...model.faults import ConfigRefused, TargetCrashed, TargetFault, TargetNotStarted
from ...properties.rules.predicate import RuleFault
from ...spec.catalogue import CatalogueError
from ..console import INCONCLUSIVE, USAGE, interrupts, output
from ..files.scenario_file import FileError
from ..targets.supported_releases import ReleaseError
from ..targets.target_spec import UnknownTargetError
from .groups import SETTINGS, Grouped
from .options import defaults

# Typer contains its own copy of click. It exports only subclasses of click's error; this is their
# base class.
COMMAND_LINE_ERROR: type[Exception] = typer.BadParameter.__mro__[2]
NO_PROJECT = "no project"
BAD_INPUT = (
    *(InputError, FileError, CatalogueError, UnknownTargetError, ReleaseError),
    *(ConfigRefused, TargetNotStarted, RuleFault),
)
TYPER_INTERRUPTED = 130  # Typer's exit code if Ctrl-C ends a command

app = typer.Typer(
    cls=Grouped,
    context_settings=SETTINGS,
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
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="show the version, and exit"
        ),
    ] = False,
) -> None:
    """Options that come before the command."""
    if context.obj != NO_PROJECT:
        context.default_map = defaults()


def main(commands: typer.Typer = app) -> None:
    """Run the command line of this process. Every error is one line, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # So that "×" is escaped where only ASCII can be printed.
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run(commands))


def run(
    commands: typer.Typer = app, words: Sequence[str] | None = None, project: bool = True
) -> int:
    """Run a command line, by default that of this process, and return its exit code."""
    try:
        code = commands(words, standalone_mode=False, obj=None if project else NO_PROJECT)
        if code == TYPER_INTERRUPTED:
            raise KeyboardInterrupt
    except SystemExit as left:
        # Typer exits with 1 if its output is closed. Here, 1 would mean that a rule is broken.
        if isinstance(left.__context__, BrokenPipeError):
            raise BrokenPipeError from None
        raise
    except COMMAND_LINE_ERROR as error:
        _explain_usage(error)
        code = USAGE
    except (typer.Abort, KeyboardInterrupt):
        output.fail(interrupts.why())
        code = INCONCLUSIVE
    except BAD_INPUT as error:
        output.fail(str(error))
        code = USAGE
    except TargetCrashed as error:
        # It crashed at its first start; later crashes are findings.
        output.fail(str(error))
        output.print_details(error.details)
        code = USAGE
    except TargetFault as error:
        output.fail(str(error))
        code = INCONCLUSIVE
    finally:
        interrupts.no_limit()
    return int(code or 0)


def _explain_usage(error: Any) -> None:
    message = getattr(error, "format_message", error.__str__)()
    if type(error).__name__ == "NoArgsIsHelpError":
        output.to_stderr(message)
        return
    context = getattr(error, "ctx", None)
    joint = " " if message.endswith("?") else "; "
    hint = f"{joint}{context.command_path} --help shows what is valid" if context else ""
    output.fail(message.rstrip(".") + hint)
