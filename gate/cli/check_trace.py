"""`schedproof check-trace`: judge a recorded run by the rules, and find the model that it
follows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ...model.errors import InputError
from ...model.systems import check_system, resolve_revision
from ...properties.rules.registry import LOCKSTEP
from ...spec.catalogue import load, selected
from ...spec.systems import SYSTEMS
from ..console import output
from ..console.interrupts import keep_results, why
from ..console.option_checks import (
    at_least,
    check_different,
    check_file,
    check_not_input,
    option,
    rule_words,
)
from ..files.disk import write
from ..judging.rule_choice import use_rules
from ..traces.judge import TraceJudge, TraceRun
from ..traces.perfetto import Recorded, check_perfetto, collect_runs, write_perfetto
from ..traces.report import TraceReporter, print_trace_verdict
from ..traces.trace_file import open_trace, read_trace
from ..traces.verdict import conclude
from .options import ExtraRulesOption, RuleOption, TimeLimit


def command(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="a trace (JSON Lines, or compressed); - for stdin"),
    ],
    system: Annotated[
        str | None, typer.Option(help="judge as this system  [default: as recorded]")
    ] = None,
    revision: Annotated[
        str | None, typer.Option(help="judge by this revision  [default: as recorded]")
    ] = None,
    rule: RuleOption = None,
    extra_rules: ExtraRulesOption = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="run the models alongside and report which one matches longest"
        ),
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="write the verdict to this file")
    ] = None,
    perfetto: Annotated[
        Path | None,
        typer.Option(
            "--perfetto", help="write the runs to this file, as trace events for Perfetto"
        ),
    ] = None,
    max_failures: Annotated[
        int,
        typer.Option(
            help="number of broken runs to show in full, 0 or more; the others are only counted"
        ),
    ] = 3,
    time_limit: TimeLimit = None,
) -> None:
    """Judge a recorded trace, with a verdict per rule. With --explain, also find the model that
    matches it."""
    use_rules(extra_rules)
    check_options(system, revision)
    chosen = check_rules(rule or [], system, explain)
    at_least("--max-failures", max_failures, 0)
    if json_file is not None:
        check_file("--json", json_file)
        check_not_input("--json", json_file, "the trace", Path(file))
    if perfetto is not None:
        check_perfetto(perfetto, Path(file))
        check_different({"--perfetto": perfetto} | ({"--json": json_file} if json_file else {}))
    console = output.make_console()
    interrupted, runs = False, list[Recorded]()
    with open_trace(file) as source:
        reporter = TraceReporter(console, source, max_failures)

        def over(run: TraceRun) -> None:
            reporter.over(run)
            count_matches(judge, run)

        def broke(run: TraceRun) -> None:
            reporter.broke(run)
            if runs:
                runs[-1].broken = run.broken

        judge = TraceJudge(source.name, chosen, explain, broke, over, reporter.notice)
        with reporter.progress(read_trace(source, system, revision)) as events:
            try:
                judge.follow(events if perfetto is None else collect_runs(events, runs))
            except KeyboardInterrupt:
                interrupted = True
        keep_results()
        name = source.name
    if judge.line == 0:
        raise InputError("FILE", f"{name} is empty; valid: a trace with one JSON object per line")
    judged = [*judge.judged.values()]
    cut = None if judge.cut is None else f"{name}: line {judge.cut.line}: {judge.cut.why}"
    verdict = conclude(
        name,
        judged,
        named=[rule for rule, in_full in chosen.items() if in_full],
        explained=explain,
        cut=cut,
        interrupted=interrupted,
    )
    if json_file is not None:
        write(json_file, output.as_json(verdict))
    if perfetto is not None:
        write_perfetto(perfetto, runs)
    print_trace_verdict(console, verdict, explain)
    if interrupted:
        output.fail(f"{why()}: the verdict covers only the lines before line {judge.line + 2}")
    raise typer.Exit(verdict.exit_code)


def count_matches(judge: TraceJudge, run: TraceRun) -> None:
    if run.explainer is None:
        return
    judged = judge.judged[run.begun.system, run.begun.revision]
    for match in run.explainer.matches:
        if match.departed is None:
            judged.matched[match.revision] += 1


def check_options(system: str | None, revision: str | None) -> None:
    """Raise InputError if the system or the revision is invalid. Without a system, the revision may
    belong to any system."""
    if system is not None:
        with option("--system"):
            check_system(system)
    if revision is None:
        return
    if system is not None:
        with option("--revision"):
            resolve_revision(system, revision)
    elif all(revision not in known.revisions for known in SYSTEMS.values()):
        valid = "; ".join(
            f"{known.name}: {', '.join(known.revisions)}" for known in SYSTEMS.values()
        )
        raise InputError("--revision", f"{revision!r:.60} is not a revision; valid: {valid}")


def check_rules(words: Sequence[str], system: str | None, explain: bool) -> dict[str, bool]:
    """Map each rule id that --rule selects to whether the user named it in full. Without a
    `system`, rules of every system are valid."""
    systems = SYSTEMS if system is None else (system,)
    known = {rule.id: rule for name in systems for rule in load(name)}
    ids = selected([*known.values()], rule_words("--rule", words))
    if ids.get(LOCKSTEP) and not explain:
        raise InputError(
            "--rule", f"{LOCKSTEP} compares with the model; valid only together with --explain"
        )
    return {rule: in_full for rule, in_full in ids.items() if explain or rule != LOCKSTEP}
