"""`schedproof gate`: judge a scheduler, with a verdict per rule."""

import shlex
import subprocess
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ...model.errors import InputError
from ...model.faults import ConfigRefused, TargetCrashed
from ...model.systems import check_system
from ...spec.catalogue import load
from ...spec.systems import SYSTEMS
from ..compare.change import ChangeReporter, base_options, changes_of
from ..console import BROKEN, USAGE, output
from ..console.interrupts import why
from ..console.option_checks import check_no_entry, check_places, check_unicode, option
from ..corpus.folder import COUNTEREXAMPLE, entries
from ..files.disk import FileError, name_file_in_errors, write
from ..judging.context import MAX_FAILURES, GateOptions
from ..judging.coverage import PAGE
from ..judging.deviations import Deviations, read_deviations
from ..judging.judge import no_fields, run_gate
from ..judging.profiles import PROFILES
from ..judging.rule_choice import NO_LOCKSTEP, use_rules
from ..judging.verdict import Verdict, not_judged
from ..library.judging import gate_options
from ..processes.scratch import scratch_folder
from ..reports.options import (
    FileReport,
    ReportOptions,
    check_coverage_page,
    check_report_options,
    clear_reports,
    reporters,
)
from ..reports.outcome import UNTIL_THEN
from ..reports.terminal import Terminal
from ..targets.target_spec import MEMORY_LIMIT, TargetSpec, take_formula
from ..web.gate_page import coverage_page, gate_page
from . import options
from .options import (
    NO_TARGET,
    base_of,
    is_for_another_system,
    is_unset,
    named_target,
    option_for_target,
    rules_to_exclude,
)

BUDGETS = "; ".join(
    f"{name}, {profile.examples:,} runs or {profile.steps:,} steps"
    for name, profile in PROFILES.items()
)


def command(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            help="model, MODULE:FACTORY, 'cmd:COMMAND LINE' or a release (vllm==0.28.0)",
            show_default="model, if --system or --revision is given",
        ),
    ] = "model",
    system: options.SystemOption = None,
    revision: options.RevisionOption = None,
    rule: options.RuleOption = None,
    exclude: options.ExcludeOption = None,
    extra_rules: options.ExtraRulesOption = None,
    compare_with: options.CompareWithOption = None,
    profile: Annotated[str, typer.Option(help=f"how much to search per scale: {BUDGETS}")] = "ci",
    seed: Annotated[
        int, typer.Option(help="seed of the search, 0 or more; the same seed gives the same runs")
    ] = 0,
    max_failures: Annotated[
        int,
        typer.Option(help="how many broken rules to shrink per scale, at least 1"),
    ] = MAX_FAILURES,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="write the verdict to this file")
    ] = None,
    junit_file: Annotated[
        Path | None,
        typer.Option("--junit", help="write JUnit XML to this file, one test case per rule"),
    ] = None,
    sarif_file: Annotated[
        Path | None, typer.Option("--sarif", help="write SARIF 2.1.0 to this file")
    ] = None,
    ndjson_file: Annotated[
        Path | None,
        typer.Option(
            "--ndjson", help="write each event to this file as it happens, one JSON object per line"
        ),
    ] = None,
    html_file: Annotated[
        Path | None,
        typer.Option("--html", help="write a page with all faults and their causes to this file"),
    ] = None,
    markdown_file: Annotated[
        Path | None,
        typer.Option("--markdown", help="write a comment for a pull request to this file"),
    ] = None,
    github: Annotated[
        bool, typer.Option("--github", help="write GitHub annotations and a step summary")
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", help="print a line for every rule, including those that hold"),
    ] = False,
    open_page: Annotated[
        bool,
        typer.Option("--open", help="render the first fault as a page, and open it in a browser"),
    ] = False,
    out: Annotated[Path, typer.Option(help="folder for counterexamples")] = Path("schedproof-out"),
    corpus: Annotated[Path | None, typer.Option(help="folder of scenarios to replay first")] = None,
    deviations: Annotated[
        Path | None,
        typer.Option(
            help="TOML file of known failures and intended differences",
            callback=option_for_target,
        ),
    ] = None,
    step_limit: options.StepLimit = 10.0,
    memory_limit: options.MemoryLimit = MEMORY_LIMIT,
    time_limit: options.TimeLimit = None,
    offline: options.Offline = False,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            help="fix KEY in every configuration; repeat the option to add more keys. "
            "With target `model`, formula=NAME chooses the formula that admits requests",
        ),
    ] = None,
    scheduler_cls: options.SchedulerClass = None,
    path: options.ClassPath = None,
    base: options.BaseOption = None,
    against_base: options.AgainstBase = False,
    beyond_start_up: options.BeyondStartUp = False,
    jobs: Annotated[
        int,
        typer.Option(help="number of processes, at least 1; it does not change the verdict"),
    ] = 1,
    coverage: Annotated[
        bool,
        typer.Option(
            "--coverage/--no-coverage",
            help="report the lines and functions of the target's own modules that no run reached",
        ),
    ] = True,
) -> None:
    """Judge a scheduler: replay known scenarios, search for new ones, give a verdict per rule."""
    report_options = ReportOptions(
        *(json_file, junit_file, sarif_file, ndjson_file, github, verbose),
        markdown=markdown_file,
        html=html_file,
    )
    check_report_options(report_options, {"--deviations": deviations, "--extra-rules": extra_rules})
    for option_name, file in report_options.files().items():
        check_no_entry(option_name, file, corpus)
        if COUNTEREXAMPLE.fullmatch(file.name) and file.resolve().parent == out.resolve():
            problem = f"{file} has the name of a counterexample; valid: another name"
            raise InputError(option_name, problem)
    clear_reports(report_options)
    use_rules(extra_rules)
    spec = named_target(context, target, path, scheduler_cls, beyond_start_up)
    spec, changes = take_formula(spec, changes or ())
    check_unicode("TARGET", target)
    check_unicode("--out", str(out))
    check_places(json_file, out)
    coverage = coverage and spec.kind not in ("model", "command")  # their code cannot be measured
    if coverage:
        check_coverage_page(out / PAGE, report_options)
    system_named = system is not None
    system = spec.default_system if system is None else system
    with option("--system"):
        check_system(system)
    catalogue, known = load(system, revision or spec.default_revision() or ""), Deviations()
    if deviations is not None and not is_for_another_system(context, "deviations", system):
        known = read_deviations(deviations, system, catalogue, date.today())
    beside = base_of(spec, against_base, base)
    # With a base, the target is compared with the base instead of a model.
    model = NO_LOCKSTEP if beside is not None and compare_with is None else compare_with
    options = gate_options(
        spec,
        system=system,
        revision=revision,
        rules=rule,
        profile=profile,
        seed=seed,
        max_failures=max_failures,
        out=out,
        corpus=[entry.scenario for entry in entries(corpus)] if corpus else (),
        step_limit=step_limit,
        memory_limit=memory_limit,
        offline=offline,
        jobs=jobs,
        compare_with=model,
        changes=changes,
        exclude=rules_to_exclude(context, exclude, rule, system),
        by_design=known.by_design,
        extra_rules=extra_rules,
    )
    if is_unset(context, "target") and not system_named and revision is None:
        raise InputError("TARGET", NO_TARGET)
    if beside is not None:
        own = base_options(beside, options.system, options.revision)
        options = replace(options, base=own, compare_with=compare_with)
    console = output.make_console()
    printer = Terminal if beside is None else ChangeReporter
    page_of_all = FileReport(html_file, catalogue, gate_page) if html_file is not None else None
    finish = no_fields if beside is None else changes_of
    with (
        reporters(console, catalogue, report_options, printer, page_of_all) as fan_out,
        say_which_system(spec, system_named),
        with_coverage_folder(options, coverage) as options,
    ):
        verdict, results = run_gate(options, known, fan_out, output.notice(console), finish)
    if results.interrupted:
        output.fail(f"{why()}: {UNTIL_THEN}")
    if results.fault is not None:
        output.fail(results.fault.text)
        output.print_details(results.fault.details)
    for line in not_judged(verdict.engines):
        output.fail(f"the gate did not judge {line}")
    if verdict.coverage is not None:
        page = Path(verdict.coverage.page)
        try:
            with name_file_in_errors(page):
                page.parent.mkdir(parents=True, exist_ok=True)
            write(page, coverage_page(verdict.target, verdict.coverage).encode())
        except FileError as problem:
            fan_out.failed.append(problem)
    if open_page:
        _open_first(console, verdict, options)
    for error in fan_out.failed:
        output.fail(str(error))
    raise typer.Exit(USAGE if fan_out.failed else verdict.exit_code)


@contextmanager
def with_coverage_folder(options: GateOptions, wanted: bool) -> Iterator[GateOptions]:
    """Yield the options, with a folder for coverage data if coverage is wanted."""
    if not wanted:
        yield options
        return
    with scratch_folder() as folder:
        yield replace(options, spec=replace(options.spec, coverage=folder))


@contextmanager
def say_which_system(spec: TargetSpec, named: bool) -> Iterator[None]:
    try:
        yield
    except (ConfigRefused, TargetCrashed) as error:
        if named or spec.kind not in ("factory", "command"):
            raise
        others = ", ".join(name for name in SYSTEMS if name != spec.default_system)
        hint = f"it was started as {spec.default_system}; --system chooses another: {others}"
        if isinstance(error, ConfigRefused):
            raise ConfigRefused(f"{error}; {hint}") from None
        output.fail(str(error))
        output.print_details(error.details)
        output.fail(hint)
        raise typer.Exit(USAGE) from None


def _open_first(console: Console, verdict: Verdict, gate: GateOptions) -> None:
    if not verdict.faults:
        return
    first = verdict.faults[0]
    page = Path(first.scenario).with_suffix(".html")
    options = shlex.split(gate.replay_options_of([first.rule]))
    command = [sys.executable, "-P", "-m", "schedproof", "show", first.scenario]
    words = [*command, "-o", str(page), *options]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    if ran.returncode != BROKEN:
        output.fail(f"--open: {ran.stderr.strip() or 'the rule is not broken again'}")
        return
    output.say(console, f"{page}: {first.rule}")
    webbrowser.open(page.resolve().as_uri())
