"""`schedproof doctor`: check an adapter before you judge the scheduler behind it."""

from typing import Annotated

import typer
from rich.markup import escape

from ...model.faults import ConfigRefused, TargetFault
from ...model.systems import check_system, resolve_revision
from ...spec.catalogue import load
from ..console import BROKEN, CONFORMS, output
from ..console.option_checks import at_least, option
from ..targets.doctor import examine
from ..targets.factory import opened
from ..targets.probe import ProbeRequest
from ..targets.target_spec import parse_target
from .options import ClassPath, Offline, RevisionOption, SchedulerClass, SystemOption, TimeLimit

STYLES = {"ok": "green", "wrong": "red", "note": "yellow"}


def command(
    target: Annotated[str, typer.Argument(help="the target, named as for `schedproof gate`")],
    system: SystemOption = None,
    revision: RevisionOption = None,
    step_limit: Annotated[
        float, typer.Option("--step-limit", help="seconds that a step may take, at least 0.1")
    ] = 10.0,
    time_limit: TimeLimit = None,
    offline: Offline = False,
    scheduler_cls: SchedulerClass = None,
    path: ClassPath = None,
) -> None:
    """Check an adapter: its fields, refusals and aborts, and that equal runs give equal steps."""
    spec = parse_target(target, path, scheduler_cls)
    system = spec.default_system if system is None else system
    with option("--system"):
        check_system(system)
    with option("--revision"):
        resolved = resolve_revision(system, revision or spec.default_revision())
    at_least("--step-limit", step_limit, 0.1)
    console = output.make_console()
    wrong = 0

    def say(says: str, what: str, why: str) -> None:
        line = output.one_line(f"{what}: {why}" if why else what)
        console.print(f"[{STYLES[says]}]{says:<6}[/]{escape(line)}")

    with opened(
        spec, step_limit=step_limit, offline=offline, report=output.notice(console)
    ) as open_target:
        request = ProbeRequest(open_target.target, system, resolved, load(system, resolved))
        try:
            for remark in examine(request, spec.module or None):
                wrong += remark.says == "wrong"
                say(*remark)
        except ConfigRefused:
            raise
        except TargetFault as fault:
            if not hasattr(fault, "op") or fault.op == "start":
                raise
            wrong += 1
            say("wrong", str(fault), "")
            output.print_details(getattr(fault, "details", "") or open_target.stderr(), console)
    output.say(
        console,
        f"{wrong} wrong" if wrong else "found nothing wrong; schedproof gate can judge this target",
    )
    raise typer.Exit(BROKEN if wrong else CONFORMS)
