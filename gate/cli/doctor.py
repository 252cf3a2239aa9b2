"""`schedproof doctor`: check an adapter before judging the scheduler behind it."""

from typing import Annotated

import typer
from rich.markup import escape

from ...model.errors import InputError
from ...model.faults import ConfigRefused, TargetFault
from ...spec.catalogue import load
from ..console import BROKEN, CONFORMS, output
from ..console.option_checks import resolved_revision
from ..targets.doctor import examine
from ..targets.factory import opened
from ..targets.probe import ProbeRequest
from ..targets.target_spec import parse_target
from . import options

STYLES = {"ok": "green", "wrong": "red", "note": "yellow"}


def command(
    target: Annotated[
        str | None, typer.Argument(help="the target, named as for `schedproof gate`")
    ] = None,
    system: options.SystemOption = None,
    revision: options.RevisionOption = None,
    step_limit: options.StepLimit = 10.0,
    time_limit: options.TimeLimit = None,
    offline: options.Offline = False,
    scheduler_cls: options.SchedulerClass = None,
    path: options.ClassPath = None,
) -> None:
    """Check an adapter: its fields, refusals and aborts, and whether a repeated run gives the
    same steps."""
    if target is None:
        raise InputError("TARGET", options.NO_TARGET)
    spec = parse_target(target, path, scheduler_cls)
    system = spec.default_system if system is None else system
    resolved = resolved_revision(system, revision, spec.default_revision())
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
