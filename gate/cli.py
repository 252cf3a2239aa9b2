"""The command line. Exit codes: 0 conforms, 1 a rule is broken, 2 usage, 3 inconclusive."""

import io
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import __version__
from ..model.errors import InputError
from ..model.faults import ConfigRefused, TargetCrashed, TargetFault, TargetNotStarted
from ..model.observation import Step
from ..model.systems import check_system, make_model, resolve_revision
from ..model.target import ModelTarget
from ..properties.predicate import Broken
from ..properties.replay import replay as run_replay
from ..properties.rules import LOCKSTEP
from ..spec.catalogue import SYSTEMS, CatalogueError, Rule, load, select
from ..spec.shared import topics
from . import (
    bench_command,
    catalogue_rules,
    check_trace_command,
    compare_command,
    corpus_command,
    diff_command,
    doctor_command,
    explore_command,
    frontier_command,
    recompute_command,
    report,
    show_command,
    step_command,
)
from .campaign import command as campaign_command
from .checkouts import with_path
from .corpus_folder import entries
from .deviations import Deviations, read_deviations
from .exits import BROKEN, CONFORMS, INCONCLUSIVE, USAGE
from .hypothesis_home import set_hypothesis_home
from .judge import run_gate
from .options import (
    at_least,
    check_applies,
    check_different,
    check_places,
    check_unicode,
    option,
    picked,
)
from .perfetto import check_perfetto, run_of, write_perfetto
from .profiles import PROFILES
from .published import ReleaseError
from .reports.asked import AskedReports, check_asked, reporters
from .reports.outcome import INTERRUPTED
from .scenario_file import FileError, read_scenario
from .shared_options import (
    CheckoutPath,
    MemoryLimit,
    Offline,
    RevisionOption,
    RuleOption,
    StepLimit,
    SystemOption,
    TargetOption,
)
from .state import Gate
from .step_lines import StepLines
from .targets.jsonl import serve as serve_lines
from .targets.opening import (
    UnknownTargetError,
    default_revision,
    default_system,
    make_target,
    opened,
)
from .targets.pipe import LEAST_MEMORY, MEMORY_LIMIT
from .targets.recorder import check_trace_file, recorded

# Typer brings its own copy of click and names only the leaves of its errors: this is the root.
COMMAND_LINE_ERROR: type[Exception] = typer.BadParameter.__mro__[2]
TYPER_INTERRUPTED = 130  # what Typer makes of Ctrl-C in a command

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Model-based checks for the schedulers of LLM inference engines.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"schedproof {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="show the version, and exit"
        ),
    ] = False,
) -> None:
    """Options of the command line as a whole."""


@app.command()
def gate(
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
    at_least("--step-limit", step_limit, 0.1)
    at_least("--memory-limit", memory_limit, LEAST_MEMORY)
    check_unicode("TARGET", target)
    check_unicode("--out", str(out))
    check_places(json_file, out)
    asked = AskedReports(json_file, junit_file, sarif_file, ndjson_file, github)
    check_asked(asked)
    catalogue = load(system)
    rules = _rules(catalogue, rule, resolved, target)
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


@app.command()
def replay(
    scenario: Annotated[Path, typer.Argument(help="a scenario file")],
    target: TargetOption = "model",
    rule: RuleOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="no line per step")] = False,
    fold: Annotated[
        bool, typer.Option("--fold", help="one line for decode steps in a row that are alike")
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", help="record the run to this file, for check-trace (.gz: packed)"),
    ] = None,
    perfetto: Annotated[
        Path | None,
        typer.Option("--perfetto", help="draw the run to this file, trace events for Perfetto"),
    ] = None,
    step_limit: StepLimit = 10.0,
    memory_limit: MemoryLimit = MEMORY_LIMIT,
    offline: Offline = False,
    path: CheckoutPath = None,
) -> None:
    """Run one scenario on a target, show every step, and judge it."""
    target = with_path(target, path)
    at_least("--step-limit", step_limit, 0.1)
    at_least("--memory-limit", memory_limit, LEAST_MEMORY)
    read = read_scenario(scenario)
    catalogue = load(read.system)
    rules = _rules(catalogue, rule, read.revision or "", target)
    _check_expected_rules(scenario, read, catalogue)
    if trace is not None:
        check_trace_file(trace, scenario)
        # The model in a recorder is still the model: lockstep with itself says nothing.
        rules = [one for one in rules if one.id != LOCKSTEP or target.partition(":")[0] != "model"]
    if perfetto is not None:
        check_perfetto(perfetto, scenario)
        check_different({"--perfetto": perfetto} | ({"--trace": trace} if trace else {}))
    console = report.make_console()
    lines, steps = StepLines(console.print, read.config, fold=fold), []

    def watch(number: int, step: Step) -> None:
        if not quiet:
            lines(number, step)
        if perfetto is not None:
            steps.append(step)

    notice = report.notice(console)
    with opened(
        target, step_limit=step_limit, memory_limit=memory_limit, offline=offline, report=notice
    ) as open_target:
        try:
            with recorded(open_target.target, trace) as asked:
                outcome = run_replay(asked, read, rules, watch)
        except (InputError, ConfigRefused) as error:
            raise FileError(f"{scenario}: {error}") from None
        finally:
            lines.close()
        stderr = open_target.stderr()
    if perfetto is not None:
        write_perfetto(perfetto, [run_of(read, outcome, steps)])
    for name, why in outcome.session.rejected.items():
        report.say(console, f"{name} refused at the door: {why}")
    by_id = {entry.id: entry for entry in catalogue}
    if outcome.broken:
        first: Broken = outcome.broken[0]
        ids = rule and [one.id for one in rules]
        options = report.replay_options(target, ids, step_limit, memory_limit)
        report.print_failure(
            console, by_id[first.rule], read, first, str(scenario), options, outcome.session
        )
        for other in outcome.broken[1:]:
            report.say(console, f"  in the same step {other.rule}: {other.message}")
        report.print_details(outcome.session.details or stderr, console)
    for line in outcome.unmet:
        report.say(console, f"not as expected: {line}")
    raise typer.Exit(_conclude(console, read, outcome, rules if rule else ()))


@app.command()
def search(
    rule: Annotated[
        str,
        typer.Argument(help="the rule to decide; Z3 knows SPY-R07, R41, R50, P01, R19 and more"),
    ],
    engine: Annotated[
        str,
        typer.Option(
            help="z3 decides; for any checked rule hypothesis samples, explore exhausts small "
            "scopes; all; lanes: thousands of runs at once for SPY-R07 and SPY-R35"
        ),
    ] = "z3",
    revision: Annotated[
        str | None, typer.Option(help="the behaviour that is asked about  [default: sound]")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="KEY=VALUE: a length in tokens, a formula, or early_eos=true"),
    ] = None,
    prove: Annotated[
        bool,
        typer.Option(
            "--prove", help="for every number of requests; --set block_size=any: of blocks, too"
        ),
    ] = False,
    maximize: Annotated[
        str | None,
        typer.Option(help="the worst volume, overshoot or waste of --set requests=N  [default: 5]"),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="replay the counterexample on this target, too")
    ] = None,
    out: Annotated[Path, typer.Option(help="folder for counterexamples")] = Path("schedproof-out"),
    time_limit: Annotated[
        float, typer.Option(help="seconds until the answer is inconclusive, at least 1")
    ] = 300.0,
) -> None:
    """Decide a rule: a counterexample, a proof, or inconclusive."""
    at_least("--time-limit", time_limit, 1)
    check_places(None, out)
    from . import deciding  # Z3 takes a while to import

    question = deciding.Question(
        *(rule, engine, revision, changes or [], prove, maximize, target, out, time_limit)
    )
    raise typer.Exit(deciding.run(report.make_console(), question))


app.command("explore")(explore_command.command)
app.command("step")(step_command.command)
app.command("campaign")(campaign_command.command)
app.command("frontier")(frontier_command.command)
app.command("recompute")(recompute_command.command)
app.command("compare")(compare_command.command)
app.add_typer(corpus_command.app, name="corpus")
app.command("doctor")(doctor_command.command)
app.command("diff")(diff_command.command)
app.command("check-trace")(check_trace_command.command)
app.command("show")(show_command.command)
app.command("bench")(bench_command.command)


@app.command()
def selfcheck(
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="witnesses, mutants or agreement; may be repeated"),
    ] = None,
    jobs: Annotated[int, typer.Option(help="processes, at least 1")] = 2,
    quick: Annotated[
        bool, typer.Option("--quick", help="one engine that answers is enough; half the time")
    ] = False,
) -> None:
    """Check the suite itself: every witness occurs, every mutant is killed, the engines agree."""
    from . import selfcheck_command  # Z3 takes a while to import

    parts = selfcheck_command.check_parts(only or [], jobs)
    raise typer.Exit(selfcheck_command.run(report.make_console(), parts, jobs, quick))


@app.command()
def check(
    what: Annotated[str, typer.Argument(help="contracts: of the model's arithmetic, by CrossHair")],
    only: Annotated[
        list[str] | None, typer.Option("--only", help="check only this contract; may be repeated")
    ] = None,
    profile: Annotated[
        str, typer.Option(help="ci, or nightly: then through Hypothesis as well")
    ] = "ci",
    time_limit: Annotated[
        float, typer.Option(help="seconds per contract until it is inconclusive, at least 1")
    ] = 20.0,
) -> None:
    """Prove the arithmetic of the model: a verdict per contract."""
    if what != "contracts":
        raise InputError("WHAT", f"{what!r}; valid: contracts")
    at_least("--time-limit", time_limit, 1)
    from . import contracts

    code = contracts.run_contracts(report.make_console(), only or [], profile, time_limit)
    raise typer.Exit(code)


@app.command()
def rules(
    system: Annotated[
        str | None, typer.Option(help="the system whose rules to list  [default: spyre]")
    ] = None,
    rule: Annotated[str | None, typer.Argument(help="show this rule in full")] = None,
    matrix: Annotated[
        bool, typer.Option("--matrix", help="rule x revision, engine, witness, mutant")
    ] = False,
    shared: Annotated[
        bool, typer.Option("--shared", help="what systems have in common, and where they differ")
    ] = False,
) -> None:
    """List the rules: what they say, where it is written, and what checks them."""
    system = system or (_system_of(rule) if rule else SYSTEMS[0])
    with option("--system"):
        check_system(system)
    catalogue = load(system)
    console = report.make_console()
    if shared:
        catalogue_rules.show_shared(console, topics())
    elif rule is not None:
        catalogue_rules.show_rule(console, select(catalogue, [rule])[0])
    elif matrix:
        catalogue_rules.show_matrix(console, catalogue, system)
    else:
        catalogue_rules.show_list(console, catalogue)


def _system_of(rule: str) -> str:
    """The first system that has a rule of this id, or the first one."""
    having = (system for system in SYSTEMS if rule in {one.id for one in load(system)})
    return next(having, SYSTEMS[0])


@app.command()
def serve(
    target: Annotated[str, typer.Argument(help="model, or MODULE:FACTORY")],
) -> None:
    """Host a Python target on stdin and stdout (JSON Lines, the target protocol)."""
    serve_lines(ModelTarget() if target == "model" else make_target(target))


def main() -> None:
    """Run the command line; every error is one line, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # "×" where there is only ASCII
    try:
        code = app(standalone_mode=False)
        if code == TYPER_INTERRUPTED:
            raise KeyboardInterrupt
    except COMMAND_LINE_ERROR as error:
        _explain_usage(error)
        code = USAGE
    except (typer.Abort, KeyboardInterrupt):
        report.fail("interrupted")
        code = INCONCLUSIVE
    except (InputError, FileError, CatalogueError, UnknownTargetError, ReleaseError) as error:
        report.fail(str(error))
        code = USAGE
    except (ConfigRefused, TargetNotStarted) as error:
        report.fail(str(error))
        code = USAGE
    except TargetCrashed as error:  # at its first start: later ones are findings
        report.fail(str(error))
        report.print_details(error.details)
        code = USAGE
    except TargetFault as error:
        report.fail(str(error))
        code = INCONCLUSIVE
    sys.exit(code or 0)


def _explain_usage(error: Any) -> None:
    """One line that ends with where to look; the help itself where nothing was asked for."""
    message = getattr(error, "format_message", error.__str__)()
    if type(error).__name__ == "NoArgsIsHelpError":
        print(message, file=sys.stderr)
        return
    context = getattr(error, "ctx", None)
    hint = f"; {context.command_path} --help shows what is valid" if context else ""
    report.fail(message.rstrip(".") + hint)


def _rules(
    catalogue: Sequence[Rule], words: list[str] | None, revision: str, target: str
) -> Sequence[Rule]:
    """The rules that --rule names (`A,B` means A and B), else all of the catalogue.

    Raises:
        InputError, CatalogueError: one that cannot be checked here at all.
    """
    if not words:
        return catalogue
    chosen = picked(catalogue, words)
    for rule in chosen:
        check_applies(rule, revision)
        if rule.id == LOCKSTEP and target == "model":
            raise InputError(
                "--rule", f"{rule.id} compares a target with the model; valid: any other target"
            )
    return chosen


def _check_expected_rules(path: Path, scenario: Any, catalogue: Sequence[Rule]) -> None:
    try:
        select(catalogue, (scenario.expect and scenario.expect.violates) or ())
    except CatalogueError as error:
        raise FileError(f"{path}: $.expect.violates: {error}") from None


def _conclude(console: Any, scenario: Any, outcome: Any, chosen: Sequence[Rule]) -> int:
    if outcome.broken:
        if not outcome.unmet and scenario.expect is not None and scenario.expect.violates:
            console.print(f"as expected: {', '.join(one.rule for one in outcome.broken)} broke")
        return BROKEN
    if outcome.unmet:
        return BROKEN
    if not outcome.finished:
        console.print(f"not finished after {outcome.steps} steps: no verdict")
        return INCONCLUSIVE
    exercised = [rule.id for rule in outcome.session.checked if outcome.at_stake[rule.id]]
    idle = [rule.id for rule in chosen if rule.id not in exercised]
    if idle or not exercised:
        what = f"never at stake: {', '.join(idle)}" if idle else "no rule was at stake"
        console.print(f"{what}; no verdict")
        return INCONCLUSIVE
    console.print(
        f"no rule is broken in {outcome.steps} steps "
        f"({len(exercised)} of {len(outcome.session.checked)} rules were at stake)"
    )
    return CONFORMS
