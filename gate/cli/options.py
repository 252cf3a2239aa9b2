"""The options that several commands have, declared once."""

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
        help="the system whose rules apply (default: by the target)", callback=with_its_target
    ),
]
RevisionOption = Annotated[
    str | None,
    typer.Option(
        help="the published behaviour that is meant (default: by the target)",
        callback=with_its_target,
    ),
]
RuleOption = Annotated[
    list[str] | None,
    typer.Option(
        "--rule", help="check only this rule, or those that match (ALL-*); may be repeated, or A,B"
    ),
]
ExcludeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude",
        help="a rule that is broken on purpose, which is not judged; may be repeated, or A,B",
        callback=with_its_target,
    ),
]
ExtraRulesOption = Annotated[
    Path | None,
    typer.Option(
        "--extra-rules",
        help="judge by the rules of this Python file, too, which is run",
        callback=with_its_target,
    ),
]
CompareWithOption = Annotated[
    str | None,
    typer.Option(
        "--compare-with",
        help="compare each step with the model of this revision; none: with no model "
        "(default: with that of --revision, where rule ALL-R07 names it)",
    ),
]
StepLimit = Annotated[
    float,
    typer.Option("--step-limit", help="seconds that a target may take for a step, at least 0.1"),
]
MemoryLimit = Annotated[
    int, typer.Option("--memory-limit", help="MiB that a target's process may use, at least 64")
]
Offline = Annotated[bool, typer.Option("--offline", help="install nothing")]
CheckoutPath = Annotated[
    Path | None, typer.Option("--path", help=f"the checkout of {', '.join(known_checkouts())}")
]
ClassPath = Annotated[
    Path | None,
    typer.Option(
        "--path",
        help=f"the checkout of {', '.join(known_checkouts())}, "
        "or the folder that has --scheduler-cls",
    ),
]
SchedulerClass = Annotated[
    str | None,
    typer.Option(
        "--scheduler-cls",
        help="in the place of the release's own: PACKAGE.MODULE.CLASS or FILE.py:CLASS",
    ),
]
BaseOption = Annotated[
    str | None,
    typer.Option(
        "--base",
        help="count only what this target keeps in the same scenarios: a target, or of a checkout "
        "another revision of its repository",
    ),
]
AgainstBase = Annotated[
    bool,
    typer.Option(
        "--against-base",
        help="--base is the release's own class, from which --scheduler-cls is derived",
    ),
]


BeyondStartUp = Annotated[
    bool,
    typer.Option(
        "--beyond-start-up",
        help="also take configurations that the release itself does not start with",
    ),
]


def begin_time_limit(seconds: float | None) -> float | None:
    """Raise InputError where --time-limit is less than it may be; else the time runs from here."""
    if seconds is not None:
        at_least("--time-limit", seconds, 1)
        interrupts.limit(seconds)
    return seconds


TimeLimit = Annotated[
    float | None,
    typer.Option(
        "--time-limit",
        help="seconds for everything, at least 1; it ends with what it has",
        callback=begin_time_limit,
        expose_value=False,
    ),
]


def check_limits(step_limit: float, memory_limit: int) -> None:
    """Raise InputError where --step-limit or --memory-limit is less than it may be."""
    at_least("--step-limit", step_limit, 0.1)
    at_least("--memory-limit", memory_limit, MIN_MEMORY)
