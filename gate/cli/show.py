"""`schedproof show`: render the run of a scenario on a target, or a recorded trace, as one HTML
page."""

import os
import re
import shlex
from pathlib import Path
from typing import Annotated

import typer

from ...model.errors import InputError
from ...model.faults import ConfigRefused
from ..console import BROKEN, CONFORMS, INCONCLUSIVE, output
from ..console.option_checks import check_file, check_not_input, check_own, check_unicode
from ..corpus.folder import scenario_named
from ..files.disk import check_regular, write
from ..files.scenario_file import FileError
from ..judging.rule_choice import lockstep_revision, rules_to_judge, use_rules
from ..targets.factory import opened
from ..targets.target_spec import MEMORY_LIMIT, STEP_LIMIT, replay_options
from ..traces.trace_file import GZIP, open_trace
from ..web.show.page import page
from ..web.show.recording import record_run, record_trace
from . import options
from .check_trace import check_rules
from .options import from_project, named_target, rules_to_exclude

SUFFIX = ".html"
# Every line of a trace has one of these keys; scenarios have none of them.
OPERATION = re.compile(rb'\s*\{.*"(op|ok)"\s*:')
LARGE = 3_000_000  # bytes


def command(
    context: typer.Context,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="a scenario (a file or a built-in one) or a trace; - reads a trace from stdin",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            metavar="PAGE",
            help="the page to write  [default: FILE's name with .html, in this folder]",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="for a scenario: the target, named as for gate  [default: model]"),
    ] = None,
    rule: options.RuleOption = None,
    exclude: options.ExcludeOption = None,
    extra_rules: options.ExtraRulesOption = None,
    compare_with: options.CompareWithOption = None,
    step_limit: options.StepLimit = STEP_LIMIT,
    memory_limit: options.MemoryLimit = MEMORY_LIMIT,
    time_limit: options.TimeLimit = None,
    offline: options.Offline = False,
    path: options.CheckoutPath = None,
    beyond_start_up: options.BeyondStartUp = False,
) -> None:
    """Render a run as one HTML page: every step, the rules, and which of them were broken.

    The exit code is 1 if a rule is broken, 3 if only the adapter can be to blame, and 0 otherwise,
    even without a verdict.
    """
    use_rules(extra_rules)
    page_file = out or Path(page_name(file))
    check_page(page_file, file)
    if out is None:
        check_own("-o", page_file, "page", b'<meta name="generator" content="schedproof">')
    console = output.make_console()
    if is_trace(file):
        target_option = None if from_project(context, "target") else target
        check_no_target(file, target_option, path, compare_with)
        ids = [*check_rules(rule or [], None, True)]
        with open_trace(file) as source:
            run = record_trace(source, rules=ids)
        run.replay = f"schedproof check-trace {shlex.quote(file)} --explain"
    else:
        spec = named_target(context, target or "model", path, beyond_start_up=beyond_start_up)
        scenario = scenario_named(file)
        exclude = [*rules_to_exclude(context, exclude, rule, scenario.system)]
        beside = lockstep_revision(scenario, rule, spec, compare_with, output.notice(console))
        rules = rules_to_judge(
            scenario.system, rule, scenario.revision or "", spec, beside, exclude
        )
        notice = output.notice(console)
        with (
            output.busy(console, "drawing"),
            opened(
                spec,
                step_limit=step_limit,
                memory_limit=memory_limit,
                offline=offline,
                report=notice,
            ) as open_target,
        ):
            try:
                title = scenario.name or Path(page_name(file)).stem
                run = record_run(scenario, open_target.target, rules, spec, name=title)
            except (InputError, ConfigRefused) as error:
                raise FileError(f"{file}: {error}") from None
            run.details = run.details or (open_target.stderr() if run.broken else "")
        ids = [judged_rule.id for judged_rule in rules] if rule else []
        options = replay_options(
            spec, ids, step_limit, memory_limit, compare_with, exclude, extra_rules
        )
        run.replay = f"schedproof replay {shlex.quote(file)}{options}"
    with output.busy(console, "drawing"):
        data = page(run).encode("utf-8", "backslashreplace")
        write(page_file, data)
    output.say(console, f"{page_file}: {run.ended}{size_remark(len(data))}")
    if run.broken and run.broken[0].by_adapter:
        raise typer.Exit(INCONCLUSIVE)
    raise typer.Exit(BROKEN if run.broken else CONFORMS)


def size_remark(size: int) -> str:
    if size <= LARGE:
        return ""
    return f" (a page of {size / 1e6:.1f} MB, which may open slowly)"


def page_name(file: str) -> str:
    if file == "-":
        return f"stdin{SUFFIX}"
    name = Path(file).name.removesuffix(".gz")
    return f"{Path(name).stem}{SUFFIX}"


def check_page(page_file: Path, file: str) -> None:
    check_unicode("-o", str(page_file))
    check_file("-o", page_file)
    check_not_input("-o", page_file, "the file", Path(file))


def check_no_target(
    file: str, target: str | None, path: Path | None, compare_with: str | None
) -> None:
    for name, value in (("--target", target), ("--path", path), ("--compare-with", compare_with)):
        if value is not None:
            raise InputError(
                name,
                f"{value}: {file} is a recorded trace, which is not run again; valid: a scenario",
            )


def is_trace(file: str) -> bool:
    if file == "-":
        return True
    if not os.path.lexists(file) and Path(file).name == file and "\0" not in file:
        return False  # the name of a built-in scenario
    check_regular(Path(file))
    try:
        with open(file, "rb") as opened_file:
            first = next((line for line in opened_file if line.strip()), b"")
    except OSError as error:
        raise FileError(f"{file}: cannot be read ({error.strerror})") from None
    except ValueError as error:  # a NUL in the path
        raise FileError(f"{file!a}: {error}") from None
    return first.startswith(GZIP) or bool(OPERATION.match(first))
