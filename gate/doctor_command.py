"""`schedproof doctor`: is the adapter sound, before the scheduler behind it is judged?"""

from pathlib import Path
from typing import Annotated

import typer

from ..model.faults import ConfigRefused, TargetFault
from ..model.systems import check_system, resolve_revision
from ..spec.catalogue import load
from . import report
from .checkouts import with_path
from .doctor import examine
from .exits import BROKEN, CONFORMS
from .options import at_least, option
from .shared_options import Offline, SystemOption
from .state import Gate
from .targets.opening import default_revision, default_system, is_factory, opened

STYLES = {"ok": "green", "wrong": "red", "note": "yellow"}


def command(
    target: Annotated[str, typer.Argument(help="as for `schedproof gate`")],
    system: SystemOption = None,
    revision: Annotated[
        str | None, typer.Option(help="the published behaviour that is meant")
    ] = None,
    step_limit: Annotated[
        float, typer.Option("--step-limit", help="seconds that a step may take, at least 0.1")
    ] = 10.0,
    offline: Offline = False,
    path: Annotated[Path | None, typer.Option("--path", help="the checkout of the target")] = None,
) -> None:
    """Examine an adapter: fields, refusals, aborts, the same twice, nothing left over."""
    target = with_path(target, path)
    system = default_system(target) if system is None else system
    with option("--system"):
        check_system(system)
    with option("--revision"):
        resolved = resolve_revision(system, revision or default_revision(target))
    at_least("--step-limit", step_limit, 0.1)
    console = report.make_console()
    wrong = 0

    def say(says: str, what: str, why: str) -> None:
        line = report.one_line(f"{what}: {why}" if why else what)
        console.print(f"[{STYLES[says]}]{says:<6}[/]", end="")
        console.print(line, markup=False)

    with opened(
        target, step_limit=step_limit, offline=offline, report=report.notice(console)
    ) as open_target:
        gate = Gate(
            target=open_target.target,
            target_spec=target,
            system=system,
            revision=resolved,
            rules=load(system),
            chosen=False,
            profile_name="quick",
            seed=0,
            max_failures=1,
            out=Path(),
            report=lambda _: None,
        )
        try:
            for remark in examine(gate, target.partition(":")[0] if is_factory(target) else None):
                wrong += remark.says == "wrong"
                say(*remark)
        except ConfigRefused:
            raise
        except TargetFault as fault:
            if not hasattr(fault, "op") or fault.op == "start":
                raise
            wrong += 1
            say("wrong", str(fault), "")
            report.print_details(getattr(fault, "details", "") or open_target.stderr(), console)
    report.say(
        console, f"{wrong} wrong" if wrong else "nothing wrong; schedproof gate can judge it"
    )
    raise typer.Exit(BROKEN if wrong else CONFORMS)
