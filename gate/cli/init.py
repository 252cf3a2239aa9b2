"""`schedproof init`: an adapter, the configuration, a workflow and a hook."""

from pathlib import Path
from typing import Annotated

import typer

from ...model.systems import check_system, resolve_revision
from ..console import output
from ..console.option_checks import option
from ..starting.files import address, write_files

NEXT = """next:
  schedproof doctor                 is the adapter sound?
  schedproof gate                   judge what is there: it conforms
  edit schedproof_adapter.py        put your scheduler in the place of the one there, and again"""


def command(
    system: Annotated[
        str, typer.Option(help="the system whose rules apply; generic: those of any scheduler")
    ] = "generic",
    revision: Annotated[
        str | None, typer.Option(help="the published behaviour that is meant (default: by system)")
    ] = None,
) -> None:
    """Begin in this folder: write an adapter, [tool.schedproof], a workflow and a hook.

    A file that is there is kept.
    """
    with option("--system"):
        check_system(system)
    with option("--revision"):
        revision = resolve_revision(system, revision)
    console = output.make_console()
    for path, kept in write_files(Path(), system, revision):
        output.say(console, f"{'kept   ' if kept else 'written'} {path}")
    if not address()[1]:
        output.say(
            console, "note    the workflow does not know where schedproof comes from: edit it"
        )
    console.print(NEXT, markup=False)
