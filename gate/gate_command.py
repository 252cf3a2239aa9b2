"""`schedproof gate`: a scheduler is judged, a verdict per rule."""

from datetime import date
from pathlib import Path
from typing import Annotated

import typer

from ..model.errors import InputError
from ..model.systems import check_system, make_model, resolve_revision
from ..spec.catalogue import load
from . import report
from .checkouts import with_path
from .corpus_folder import entries
from .deviations import Deviations, read_deviations
from .exits import USAGE
from .hypothesis_home import set_hypothesis_home
from .judge import run_gate
from .options import at_least, check_places, check_unicode, judged_by, option
from .profiles import PROFILES
from .reports.asked import AskedReports, check_asked, reporters
from .reports.outcome import INTERRUPTED
from .shared_options import (
    CheckoutPath,
    MemoryLimit,
    Offline,
    RevisionOption,
    RuleOption,
    StepLimit,
    SystemOption,
    check_limits,
)
from .state import Gate
from .targets.child import MEMORY_LIMIT
from .targets.opening import default_revision, default_system, opened


def command(
    target: Annotated[
        str,
        typer.Argument(
            help="model, MODULE:FACTORY, 'cmd:COMMAND LINE' or a release (vllm==0.28.0)"
        ),
    ] = "model",
    system: SystemOption = None,
    revision: RevisionOption = None,
    rule: RuleOption = None,
    profile: Annotated[str, typer.Option(help=f"one of {', '.join(PROFILES)}")] = "ci",
    seed: Annotated[
        int, typer.Option(help="the same seed gives the same runs; from 0 upwards")
    ] = 0,
    max_failures: Annotated[
        int, typer.Option(help="broken rules to look for per scale, at least 1")
    ] = 3,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="write the verdict to this file")
    ] = None,
    junit_file: Annotated[
        Path | None, typer.Option("--junit", help="write JUnit XML to this file, a case per rule")
    ] = None,
    sarif_file: Annotated[
        Path | None, typer.Option("--sarif", help="write SARIF 2.1.0 to this file")
    ] = None,
    ndjson_file: Annotated[
        Path | None, typer.Option("--ndjson", help="write a line per event to this file, at once")
    ] = None,
    github: Annotated[
        bool, typer.Option("--github", help="GitHub annotations, and a step summary")
    ] = False,
    out: Annotated[Path, typer.Option(help="folder for counterexamples")] = Path("schedproof-out"),
    corpus: Annotated[
        Path | None, typer.Option(help="a folder of scenarios that are replayed first")
    ] = None,
    deviations: Annotated[
        Path | None,
        typer.Option(help="failures that are known, a TOML file of [[known]] entries"),
    ] = None,
    step_limit: StepLimit = 10.0,
    memory_limit: MemoryLimit = MEMORY_LIMIT,
    offline: Offline = False,
    path: CheckoutPath = None,
) -> None:
    """Judge a scheduler: replay known scenarios, search for new ones, give a verdict per rule."""
    target = with_path(target, path)
    system = default_system(target) if system is None else system
    with option("--system"):
        check_system(system)
    if revision is None:
        revision = default_revision(target)
    with option("--revision"):
        resolved = resolve_revision(system, revision)
        if target == "model":
            make_model(system, resolved, {})
    if profile not in PROFILES:
        raise InputError("--profile", f"{profile!r}; valid: {', '.join(PROFILES)}")
    at_least("--seed", seed, 0)
    at_least("--max-failures", max_failures, 1)
    check_limits(step_limit, memory_limit)
    check_unicode("TARGET", target)
    check_unicode("--out", str(out))
    check_places(json_file, out)
    asked = AskedReports(json_file, junit_file, sarif_file, ndjson_file, github)
    check_asked(asked)
    catalogue = load(system)
    rules = judged_by(catalogue, rule, resolved, target)
    known = (
        read_deviations(deviations, system, catalogue, date.today()) if deviations else Deviations()
    )
    own = [one.scenario for one in entries(corpus)] if corpus else []
    set_hypothesis_home()
    console = report.make_console()
    notice = report.notice(console)
    with (
        opened(
            target,
            step_limit=step_limit,
            memory_limit=memory_limit,
            offline=offline,
            report=notice,
        ) as open_target,
        reporters(console, catalogue, asked) as together,
    ):
        judged = Gate(
            target=open_target.target,
            target_spec=target,
            system=system,
            revision=resolved,
            rules=rules,
            chosen=bool(rule),
            profile_name=profile,
            seed=seed,
            max_failures=max_failures,
            out=out,
            report=together,
            stderr=open_target.stderr,
            corpus=[scenario for scenario in own if scenario.system == system],
            deviations=known,
            replay_options=report.replay_options(
                target, rule and [one.id for one in rules], step_limit, memory_limit
            ),
        )
        verdict = run_gate(judged)
        stderr = open_target.stderr()
    if judged.interrupted:
        report.fail(INTERRUPTED)
    if judged.fault is not None:
        report.fail(str(judged.fault))
        report.print_details(getattr(judged.fault, "details", "") or stderr)
    for error in together.failed:
        report.fail(str(error))
    raise typer.Exit(USAGE if together.failed else verdict.exit_code)
