"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from ..console import interrupts
from ..console.option_checks import at_least
from ..targets.checkouts import known_checkouts
from ..targets.target_spec import MIN_MEMORY
from .project import with_its_target

TargetOption = Annotated[
    str,
    typer.Option(
        "--target",
        help="model, MODULE:FACTORY, 'cmd:COMMAND LINE' or a release (vllm==0.28.0)",
    ),
]
SystemOption = Annotated[
    str | None,
    typer.Option(
        help="system whose rules apply (default: the target's own)", callback=with_its_target
    ),
]
RevisionOption = Annotated[
    str | None,
    typer.Option(
        help="published behaviour to judge by (default: the target's own)",
        callback=with_its_target,
    ),
]
RuleOption = Annotated[
    list[str] | None,
    typer.Option(
        "--rule", help="check only this rule, or all that match ALL-*; repeat it, or write A,B"
    ),
]
ExcludeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude",
        help="do not judge this rule, broken on purpose; repeat it, or write A,B",
        callback=with_its_target,
    ),
]
ExtraRulesOption = Annotated[
    Path | None,
    typer.Option(
        "--extra-rules",
        help="Python file with rules of your own, judged in addition; the file is executed",
        callback=with_its_target,
    ),
]
CompareWithOption = Annotated[
    str | None,
    typer.Option(
        "--compare-with",
        help="compare each step with the model of this revision; none switches the comparison off "
        "(default: the model of --revision, if rule ALL-R07 applies to it)",
    ),
]
StepLimit = Annotated[
    float,
    typer.Option("--step-limit", help="seconds that a target may take for a step, at least 0.1"),
]
MemoryLimit = Annotated[
    int, typer.Option("--memory-limit", help="MiB that the target's process may use, at least 64")
]
Offline = Annotated[
    bool, typer.Option("--offline", help="do not install anything; fail if a release is missing")
]
CheckoutPath = Annotated[
    Path | None,
    typer.Option("--path", help=f"folder of a checkout of {', '.join(known_checkouts())}"),
]
ClassPath = Annotated[
    Path | None,
    typer.Option(
        "--path",
        help=f"folder of a checkout of {', '.join(known_checkouts())}, or of --scheduler-cls",
    ),
]
SchedulerClass = Annotated[
    str | None,
    typer.Option(
        "--scheduler-cls",
        help="judge this class instead of the release's own: PACKAGE.MODULE.CLASS or FILE.py:CLASS",
    ),
]
BaseOption = Annotated[
    str | None,
    typer.Option(
        "--base",
        help="report only what breaks on TARGET and not on this base: another target, or another "
        "revision of the checkout's repository",
    ),
]
AgainstBase = Annotated[
    bool,
    typer.Option(
        "--against-base",
        help="use the release's own class, which --scheduler-cls replaces, as the base",
    ),
]


BeyondStartUp = Annotated[
    bool,
    typer.Option(
        "--beyond-start-up",
        help="include configurations in which the release itself refuses to start",
    ),
]


def begin_time_limit(seconds: float | None) -> float | None:
    if seconds is not None:
        at_least("--time-limit", seconds, 1)
        interrupts.limit(seconds)
    return seconds


TimeLimit = Annotated[
    float | None,
    typer.Option(
        "--time-limit",
        help="seconds for the whole command, at least 1; it reports what it has by then",
        callback=begin_time_limit,
        expose_value=False,
    ),
]


def check_limits(step_limit: float, memory_limit: int) -> None:
    at_least("--step-limit", step_limit, 0.1)
    at_least("--memory-limit", memory_limit, MIN_MEMORY)
