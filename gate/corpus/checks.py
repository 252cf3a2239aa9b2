"""`schedproof corpus run`, `verify` and `prune`: replay and tidy the entries of a corpus."""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from ...model.target import ModelTarget, Target
from ...properties.shrinking.shrink import size
from ...spec.catalogue import load
from ..console import BROKEN, CONFORMS, INCONCLUSIVE, output
from ..files.scenario_file import FileError, file_name
from . import folder as corpus_folder
from .adding import expectation
from .folder import Entry
from .replay import EntryVerdict, judge, rules_for

Say = Callable[[str], None]
STYLES = {
    "as expected": "green",
    "NOT AS EXPECTED": "red",
    "not exercised": "yellow",
    "inconclusive": "yellow",
}


class Running(NamedTuple):
    """The target that replays entries, the rules, and the options of a replay command."""

    console: Console
    target: Target
    rules: Sequence[str]
    options: str
    stderr: Callable[[], str]


def run_entries(running: Running, entries: Sequence[Entry]) -> int:
    """Replay each entry, print a line for it with any unexpected failure, and return the exit
    code."""
    counts, refused = dict.fromkeys(STYLES, 0), 0
    for entry in entries:
        rules = rules_for(entry.scenario, running.rules)
        found_on = entry.origin.found_on
        judged = judge(running.target, entry.scenario, entry.rule, rules, found_on)
        counts[judged.status] += 1
        refused += judged.refused
        why = f": {output.one_line(judged.why)}" if judged.why else ""
        style = STYLES[judged.status]
        running.console.print(f"[{style}]{judged.status:<15}[/{style}] ", end="")
        output.say(running.console, f"{output.one_line(str(entry.path))}{why}")
        if judged.status == "NOT AS EXPECTED":
            _print_failure(running, entry, judged)
    reported = ", ".join(f"{count} {status.lower()}" for status, count in counts.items() if count)
    output.say(running.console, reported or "no entry to run")
    if counts["NOT AS EXPECTED"]:
        return BROKEN
    judged_all = not counts["inconclusive"] and not refused and counts["as expected"]
    return CONFORMS if judged_all else INCONCLUSIVE


def _print_failure(running: Running, entry: Entry, judged: EntryVerdict) -> None:
    if judged.outcome is None or judged.broken is None:
        command = f"schedproof replay {shlex.quote(str(entry.path))}{running.options}"
        output.say(running.console, f"  replay:   {command}")
        return
    first, outcome = judged.broken, judged.outcome
    rule = next(known for known in load(entry.scenario.system) if known.id == first.rule)
    output.print_failure(
        *(running.console, rule, entry.scenario, first, str(entry.path)),
        *(running.options, outcome.session.excerpt),
    )
    output.print_details(outcome.session.details or running.stderr(), running.console)


def problems(folder: Path, target: Target) -> tuple[int, list[str]]:
    """Return the number of files in a corpus, and a line for each problem."""
    faults: list[str] = []
    number = 0
    for path in corpus_folder.files(folder):
        number += 1
        try:
            entry = corpus_folder.read_entry(path)
        except FileError as error:
            faults.append(str(error))
            continue
        faults += _problems_of(entry, target)
    return number, faults


def _problems_of(entry: Entry, target: Target) -> list[str]:
    path, scenario = entry.path, entry.scenario
    catalogue = {rule.id for rule in load(scenario.system)}
    named = [("$.origin.rule", entry.rule)]
    violates = (scenario.expect and scenario.expect.violates) or ()
    named += [(f"$.expect.violates[{index}]", violated) for index, violated in enumerate(violates)]
    unknown = [
        f"{path}: {where}: {rule!r:.60} is not a rule of {scenario.system}; `schedproof rules "
        f"--system {scenario.system}` lists them"
        for where, rule in named
        if rule not in catalogue
    ]
    if unknown:
        return unknown
    own = file_name(scenario, entry.rule)
    wrong = (
        []
        if path.name == own
        else [f"{path}: this name does not fit its rule and content; valid: {own}"]
    )
    judged = judge(target, scenario, entry.rule, rules_for(scenario))
    if judged.status != "as expected":
        wrong.append(f"{path}: {expectation(scenario)}: {judged.status.lower()}: {judged.why}")
    return wrong


def prune(entries: Sequence[Entry], target: Target, say: Say, *, dry_run: bool) -> int:
    """Remove duplicates and entries that can no longer be replayed; return how many. An entry stays
    if it breaks a rule on the target, or if the reference model still accepts it."""
    removed = 0
    smallest: dict[tuple[str, ...], Entry] = {}
    for entry in sorted(entries, key=_preference):
        why = _why_not(entry, smallest)
        if why and judge(target, entry.scenario, entry.rule, rules_for(entry.scenario)).broken:
            say(f"{entry.path}: kept, because it still breaks a rule ({why})")
            why = ""
        smallest.setdefault(entry.failure, entry)
        if not why:
            continue
        if not dry_run:
            corpus_folder.remove(entry)
        removed += 1
        say(f"{entry.path}: {why}: {'would be ' * dry_run}removed")
    say(f"{removed} of {len(entries)} entries {'would be ' * dry_run}removed")
    return removed


def _preference(entry: Entry) -> tuple[tuple[int, int], bool, str]:
    misnamed = entry.path.name != file_name(entry.scenario, entry.rule)
    return size(entry.scenario), misnamed, entry.path.name


def _why_not(entry: Entry, smallest: dict[tuple[str, ...], Entry]) -> str:
    """Return why an entry may be deleted; empty if it may not."""
    if entry.failure in smallest:
        return f"the same failure as {smallest[entry.failure].path}, which is not larger"
    judged = judge(ModelTarget(), entry.scenario, entry.rule, rules_for(entry.scenario))
    return f"can no longer be replayed: {judged.why}" if judged.refused else ""
