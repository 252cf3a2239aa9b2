"""`schedproof corpus`: manage regression scenarios in a folder of the user's repository."""

import datetime
import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ...model.errors import InputError
from ..console import BROKEN, CONFORMS, INCONCLUSIVE, USAGE, output
from ..console.option_checks import check_choice, check_file, check_no_entry
from ..corpus import adding as corpus_adding
from ..corpus import export as corpus_export
from ..corpus import folder as corpus_folder
from ..corpus import replay as corpus_replay
from ..corpus.folder import DEFAULT_FOLDER, builtin_lines, check_rule, count_in_words, row
from ..corpus.folder import line as entry_line
from ..corpus.replay import ids_named, rule_ids
from ..files.disk import write
from ..files.scenario_file import FileError
from ..judging.profiles import set_hypothesis_home
from ..judging.rule_choice import use_rules
from ..targets.factory import opened
from ..targets.target_spec import parse_target, replay_options
from .groups import SETTINGS, Command
from .options import (
    CheckoutPath,
    ExtraRulesOption,
    Offline,
    StepLimit,
    TargetOption,
    TimeLimit,
    named_target,
)

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Regression scenarios: add, run, list, minimize, prune, verify, export.",
)

Corpus = Annotated[Path, typer.Option("--corpus", help="the folder of the corpus")]
RuleOption = Annotated[
    list[str] | None,
    typer.Option("--rule", help="use only this rule; repeat the option or write A,B to add more"),
]
EXPECTATIONS = ("holds", "violates")


@app.command(
    cls=Command,
    context_settings=SETTINGS,
    short_help="shrink and add scenarios that break a rule, or add scenarios that exercise one",
)
def add(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="scenario files")],
    corpus: Corpus = DEFAULT_FOLDER,
    target: TargetOption = "model",
    expect: Annotated[
        str,
        typer.Option(
            help=(
                "holds: the rule must not be broken again; violates: this scenario is known to "
                "break the rule"
            )
        ),
    ] = "holds",
    rule: RuleOption = None,
    no_shrink: Annotated[
        bool, typer.Option("--no-shrink", help="add the scenario without shrinking it")
    ] = False,
    found: Annotated[
        str | None,
        typer.Option(help="date on which the failure was found, YYYY-MM-DD  [default: today]"),
    ] = None,
    step_limit: StepLimit = 10.0,
    offline: Offline = False,
    path: CheckoutPath = None,
    extra_rules: ExtraRulesOption = None,
) -> None:
    """Add scenarios that break a rule, or that exercise it. Scenarios that break it are shrunk
    first; duplicates are left out.

    If a file cannot be added, the others are added anyway, and the exit code is 2.
    """
    use_rules(extra_rules)
    check_choice("--expect", expect, EXPECTATIONS)
    ids = rule_ids(rule)
    today = _date(found)
    _check_place(corpus)
    spec = parse_target(target, path)
    set_hypothesis_home()
    console = output.make_console()
    notice = output.notice(console)
    with opened(spec, step_limit=step_limit, offline=offline, report=notice) as open_target:
        adding = corpus_adding.Adding(
            folder=corpus,
            target=open_target.target,
            target_spec=spec.text,
            rules=ids,
            expected="holds" if expect == "holds" else "violates",
            no_shrink=no_shrink,
            today=today,
            say=partial(output.say, console),
        )
        left_out = corpus_adding.add_files(adding, files)
    for why in left_out.values():
        output.fail(why)
    if left_out and len(files) > 1:
        names = ", ".join(str(file) for file in left_out)
        output.fail(f"{len(left_out)} of {len(files)} files left out: {names}")
    if left_out:
        raise typer.Exit(USAGE)


@app.command(cls=Command, context_settings=SETTINGS, short_help="replay the entries on a target")
def run(
    context: typer.Context,
    corpus: Corpus = DEFAULT_FOLDER,
    target: TargetOption = "model",
    rule: RuleOption = None,
    step_limit: StepLimit = 10.0,
    time_limit: TimeLimit = None,
    offline: Offline = False,
    path: CheckoutPath = None,
    extra_rules: ExtraRulesOption = None,
) -> None:
    """Replay all entries, or only those of the rules that --rule names. Each entry is judged only
    by its own rule."""
    use_rules(extra_rules)
    named = ids_named(rule)
    ids = [*named]
    spec = named_target(context, target, path)
    entries = [entry for entry in corpus_folder.entries(corpus) if not ids or entry.rule in ids]
    console = output.make_console()
    options = replay_options(spec, ids, step_limit, extra_rules=extra_rules)
    notice = output.notice(console)
    with opened(spec, step_limit=step_limit, offline=offline, report=notice) as open_target:
        running = corpus_replay.Running(
            *(console, open_target.target, spec, ids, options, open_target.stderr),
            named=[rule_id for rule_id, in_full in named.items() if in_full],
        )
        code = corpus_replay.run_entries(running, entries)
    raise typer.Exit(code)


@app.command(
    "list",
    cls=Command,
    context_settings=SETTINGS,
    short_help="list the entries, or the built-in scenarios",
)
def list_entries(
    corpus: Corpus = DEFAULT_FOLDER,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="write the list to this file")
    ] = None,
    builtin: Annotated[
        bool,
        typer.Option(
            "--builtin",
            help="list the scenarios built into schedproof; their names work wherever a file does",
        ),
    ] = False,
) -> None:
    """List a corpus, or the built-in scenarios."""
    if json_file is not None:
        check_file("--json", json_file)
        check_no_entry("--json", json_file, corpus)
    if builtin:
        _list_builtin(json_file)
        return
    entries = corpus_folder.entries(corpus)
    console = output.make_console()
    say = partial(output.say, console)
    for entry in entries:
        say(entry_line(entry))
        say(f"    {entry.shape or 'a witness: no rule is broken'}")
    say(count_in_words(len(entries)))
    if json_file is not None:
        rows = [row(entry) for entry in entries]
        data = {"format": "schedproof/corpus@1", "entries": rows}
        write(json_file, output.as_json(data))


def _list_builtin(json_file: Path | None) -> None:
    if json_file is not None:
        raise InputError("--json", f"{json_file}: contradicts --builtin; valid: one of the two")
    for text in builtin_lines():
        typer.echo(text)


@app.command(
    cls=Command,
    context_settings=SETTINGS,
    short_help="shrink entries without changing the failure",
)
def minimize(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="files of a corpus")],
    target: TargetOption = "model",
    step_limit: StepLimit = 10.0,
    time_limit: TimeLimit = None,
    offline: Offline = False,
    path: CheckoutPath = None,
    extra_rules: ExtraRulesOption = None,
) -> None:
    """Shrink entries without changing the failure.

    If an entry does not have its own failure on the target, it is kept unchanged and the exit code
    is 3.
    """
    use_rules(extra_rules)
    spec = parse_target(target, path)
    set_hypothesis_home()
    entries = [corpus_folder.read_entry(file) for file in files]
    for entry in entries:
        check_rule(entry)
    console = output.make_console()
    notice = output.notice(console)
    with opened(spec, step_limit=step_limit, offline=offline, report=notice) as open_target:
        done = [
            corpus_adding.minimize_entry(
                open_target.target, target, entry, partial(output.say, console)
            )
            for entry in entries
        ]
    raise typer.Exit(CONFORMS if all(done) else INCONCLUSIVE)


@app.command(
    cls=Command,
    context_settings=SETTINGS,
    short_help="remove duplicates and entries that can no longer be replayed",
)
def prune(
    corpus: Corpus = DEFAULT_FOLDER,
    target: TargetOption = "model",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="print what would change, and change nothing")
    ] = False,
    step_limit: StepLimit = 10.0,
    time_limit: TimeLimit = None,
    offline: Offline = False,
    path: CheckoutPath = None,
    extra_rules: ExtraRulesOption = None,
) -> None:
    """Remove duplicates and entries that can no longer be replayed. Keep every entry that breaks
    a rule on the target."""
    use_rules(extra_rules)
    spec = parse_target(target, path)
    entries = corpus_folder.entries(corpus)
    console = output.make_console()
    notice = output.notice(console)
    with opened(spec, step_limit=step_limit, offline=offline, report=notice) as open_target:
        corpus_replay.prune(
            entries, open_target.target, partial(output.say, console), dry_run=dry_run
        )


@app.command(
    cls=Command,
    context_settings=SETTINGS,
    short_help="check every file, and that its run ends as the file expects",
)
def verify(
    corpus: Corpus = DEFAULT_FOLDER,
    target: TargetOption = "model",
    step_limit: StepLimit = 10.0,
    time_limit: TimeLimit = None,
    offline: Offline = False,
    path: CheckoutPath = None,
    extra_rules: ExtraRulesOption = None,
) -> None:
    """Check that every file can be read, has the name that its content determines and a rule that
    exists, and that its run ends as the file expects."""
    use_rules(extra_rules)
    spec = parse_target(target, path)
    console = output.make_console()
    notice = output.notice(console)
    with opened(spec, step_limit=step_limit, offline=offline, report=notice) as open_target:
        number, faults = corpus_replay.problems(corpus, open_target.target)
    say = partial(output.say, console)
    for line in faults:
        say(line)
    say(f"{count_in_words(number)}, {len(faults)} problem{'s' * (len(faults) != 1)}")
    if faults:
        raise typer.Exit(BROKEN)
    raise typer.Exit(CONFORMS if number else INCONCLUSIVE)


@app.command(
    cls=Command, context_settings=SETTINGS, short_help="write all entries as one file, or as tests"
)
def export(
    kind: Annotated[str, typer.Option("--as", help=f"one of {', '.join(corpus_export.KINDS)}")],
    corpus: Corpus = DEFAULT_FOLDER,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="file to write  [default: stdout]"),
    ] = None,
    rule: RuleOption = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="target for the tests of --as pytest (default: the target of each entry)"
        ),
    ] = None,
    extra_rules: ExtraRulesOption = None,
) -> None:
    """Write the corpus as one self-contained file: scenarios, tests that use schedproof, or tests
    for the target's own repository.

    If an entry cannot be expressed as a test, the others are still written, and the exit code is 2.
    """
    use_rules(extra_rules)
    check_choice("--as", kind, corpus_export.KINDS)
    if target is not None:
        parse_target(target)
    if out is not None:
        check_file("--out", out)
        check_no_entry("--out", out, corpus)
    ids = rule_ids(rule)
    entries = [kept for kept in corpus_folder.entries(corpus) if not ids or kept.rule in ids]
    for entry in entries:
        check_rule(entry)
    if not entries:
        raise FileError(f"{corpus}: no entry to export")
    entries, left_out = corpus_export.expressible(kind, entries)
    text = corpus_export.export_text(kind, entries, target)
    if out is None:
        typer.echo(text, nl=False)
    else:
        write(out, text.encode())
        output.say(output.make_console(), f"{out}: {count_in_words(len(entries))}")
    for why in left_out:
        output.fail(f"left out: {why}")
    if left_out:
        raise typer.Exit(USAGE)


def _check_place(corpus: Path) -> None:
    existing = next(place for place in (corpus, *corpus.absolute().parents) if place.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise InputError("--corpus", f"{corpus}: {existing} is not a folder that can be written to")


def _date(date: str | None) -> str:
    if date is None:
        return datetime.date.today().isoformat()
    try:
        return datetime.date.fromisoformat(date).isoformat()
    except ValueError:
        raise InputError("--found", f"{date!r:.60}; valid: a date, YYYY-MM-DD") from None
