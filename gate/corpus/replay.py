"""Replay the scenarios of a corpus, and compare the results with what the scenarios expect.
Remove entries that are no longer useful."""

import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace
from rich.console import Console

from ...model.errors import InputError
from ...model.faults import ConfigRefused, TargetFault, TargetNotStarted
from ...model.scenario import Expectation, Scenario
from ...model.target import ModelTarget, Target
from ...properties.checking.failure_signature import shape
from ...properties.checking.replay import Outcome, replay
from ...properties.rules.predicate import Broken
from ...properties.rules.registry import NEVER_CRASHES, NEVER_HANGS, applies
from ...properties.shrinking.shrink import size
from ...spec.catalogue import Rule, load, selected
from ...spec.systems import SYSTEMS
from ..console import BROKEN, CONFORMS, INCONCLUSIVE, output
from ..console.option_checks import rule_words
from ..files.scenario_file import FileError, file_name, scenario_of
from ..targets.factory import opened
from ..targets.target_spec import TargetSpec, blame, parse_target
from . import folder as corpus_folder
from .folder import Entry, FoundOn, origin_of

Status = Literal["as expected", "NOT AS EXPECTED", "not exercised", "inconclusive"]


class EntryVerdict(NamedTuple):
    """The result of a replay, compared with what the scenario expects.

    `why` is set if the result is unexpected or inconclusive. If only the adapter can be to blame
    for a failure, the result is inconclusive. `outcome` is None if the target did not run the
    scenario. `refused` means that the target refuses the configuration or every request.
    """

    status: Status
    why: str
    outcome: Outcome | None = None
    refused: bool = False

    @property
    def broken(self) -> Broken | None:
        return self.outcome.broken[0] if self.outcome and self.outcome.broken else None


def judge(
    target: Target,
    scenario: Scenario,
    rule: str,
    rules: Sequence[Rule],
    found_on: FoundOn | None = None,
    spec: TargetSpec | None = None,
) -> EntryVerdict:
    """Replay a scenario about `rule`, judge it by `rules`, and compare the result with what the
    scenario expects.

    If the scenario states no expectation, every rule must hold. On a target other than `found_on`,
    only `rule` must hold. If the scenario expects some rules to be broken, other rules may be
    broken before them. `spec` is needed to tell whether only the adapter can be to blame for a
    failure.
    """
    verdict = _compare(target, scenario, rule, rules, found_on)
    if verdict.status == "NOT AS EXPECTED" and (first := verdict.broken) is not None:
        [first] = blame([first], spec) if spec else [first]
        if first.by_adapter:
            return verdict._replace(status="inconclusive", why=f"ADAPTER: {first.message}")
    return verdict


def _compare(
    target: Target,
    scenario: Scenario,
    rule: str,
    rules: Sequence[Rule],
    found_on: FoundOn | None,
) -> EntryVerdict:
    if scenario.expect is None:
        scenario = with_expectation(scenario, None)
    try:
        outcome = replay(target, scenario, rules)
    except TargetNotStarted:
        raise
    except (ConfigRefused, InputError) as error:
        why = f"the target refuses the configuration: {error}"
        return EntryVerdict("not exercised", why, refused=True)
    except TargetFault as fault:
        return EntryVerdict("inconclusive", str(fault))
    if scenario.expect and scenario.expect.holds and outcome.broken:
        own = [own_rule for own_rule in rules if own_rule.id == rule]
        if own and rule not in [failure.rule for failure in outcome.broken]:
            return _of_its_own_rule(target, scenario, own, outcome, found_on)
    violates = (scenario.expect and scenario.expect.violates) or ()
    if violates and not outcome.broken and (why := not_at_stake(outcome, violates)):
        everything = len(outcome.session.rejected) == len(scenario.requests)
        return EntryVerdict("not exercised", why, outcome, refused=everything)
    if outcome.unmet:
        expected = [own_rule for own_rule in rules if own_rule.id in violates]
        alone = replay(target, scenario, expected) if outcome.broken and expected else None
        if alone is not None and not alone.unmet:
            others = ", ".join(failure.rule for failure in outcome.broken)
            return EntryVerdict(
                "as expected",
                f"{others} {'break' if len(outcome.broken) > 1 else 'breaks'} first",
                alone,
            )
        return EntryVerdict("NOT AS EXPECTED", "; ".join(outcome.unmet), outcome)
    if len(outcome.session.rejected) == len(scenario.requests):
        why = "the target refuses every request"
        return EntryVerdict("not exercised", why, outcome, refused=True)
    broken = [failure.rule for failure in outcome.broken]
    missed = not {*violates} & {*broken}
    # If only steps are expected, other rules may be broken, but not the entry's own.
    if missed and {rule, NEVER_CRASHES, NEVER_HANGS} & {*broken}:
        return EntryVerdict("NOT AS EXPECTED", f"the run breaks {', '.join(broken)}", outcome)
    if violates and missed:
        why = f"the run breaks {', '.join(broken) or 'no rule'}; expected {', '.join(violates)}"
        checked = {known.id for known in outcome.session.checked}
        unseen = ", ".join(violation for violation in violates if violation not in checked)
        if unseen:
            return EntryVerdict("not exercised", f"{unseen} cannot be checked here", outcome)
        return EntryVerdict("NOT AS EXPECTED", why, outcome)
    if not outcome.broken and not outcome.finished:
        return EntryVerdict("inconclusive", f"not finished after {outcome.steps} steps", outcome)
    if rule not in {known.id for known in outcome.session.checked}:
        return EntryVerdict("not exercised", f"{rule} cannot be checked here", outcome)
    if not outcome.broken and not outcome.exercised[rule]:
        return EntryVerdict("not exercised", never_exercised(rule), outcome)
    return EntryVerdict("as expected", "", outcome)


def not_at_stake(outcome: Outcome, violates: Collection[str]) -> str:
    """Return why a run that breaks no rule does not show that the rules `violates` hold, or ""."""
    for name, why in outcome.session.rejected.items():
        return f"the target refuses {name}: {why}"
    if not any(outcome.exercised[rule] for rule in violates):
        return never_exercised(", ".join(violates))
    return ""


def never_exercised(rule: str) -> str:
    return f"{rule} is never exercised on this target, or cannot be checked there"


def _of_its_own_rule(
    target: Target,
    scenario: Scenario,
    own: Sequence[Rule],
    outcome: Outcome,
    found_on: FoundOn | None,
) -> EntryVerdict:
    rule, started = own[0].id, outcome.session.started
    here = " ".join(word for word in (started.name, started.version) if word)
    others = ", ".join(failure.rule for failure in outcome.broken)
    beside = f"another rule is broken there: {others}"
    alone = replay(target, scenario, own)
    if alone.broken and alone.broken[0].rule == rule:
        return EntryVerdict("NOT AS EXPECTED", f"{rule} is broken on {here}; {beside}", alone)
    if not alone.exercised[rule]:
        why = f"{rule} is never exercised on {here}, or cannot be checked there; {beside}"
        return EntryVerdict("NOT AS EXPECTED", why, outcome)
    if not alone.finished:
        why = f"{rule} is not judged to the end on {here}, because the run ends early; {beside}"
        return EntryVerdict("NOT AS EXPECTED", why, outcome)
    if found_on is None or not found_on.name or found_on.name == started.name:
        return EntryVerdict("NOT AS EXPECTED", f"{rule} holds on {here}; {beside}", outcome)
    only = f"it was broken only on {found_on}"
    return EntryVerdict("as expected", f"{rule} holds on {here} ({only}); {beside}", outcome)


def with_expectation(scenario: Scenario, violates: Sequence[str] | None) -> Scenario:
    """Return the scenario with an expectation: one step breaks these rules or, if `violates` is
    empty, every rule holds."""
    reported = Expectation(violates=tuple(violates)) if violates else Expectation(holds=True)
    return replace(scenario, expect=reported)


def expectation(scenario: Scenario) -> str:
    expect = scenario.expect
    if expect is not None and expect.violates:
        return f"expects that {', '.join(expect.violates)} is broken"
    if expect is not None and expect.steps and not expect.holds:
        return f"expects {len(expect.steps)} steps"
    return "expects that every rule holds"


def rules_for(scenario: Scenario, ids: Sequence[str] = ()) -> list[Rule]:
    catalogue = load(scenario.system, scenario.revision or "")
    return [
        rule
        for rule in catalogue
        if applies(rule, scenario.revision or "") and (not ids or rule.id in ids)
    ]


def failures_of_shape(
    target: Target, scenario: Scenario, rules: Sequence[Rule], own: str, last_step: int | None
) -> Sequence[Broken]:
    """Replay a scenario. If its first failure has the shape `own`, return its failures, otherwise
    an empty list."""
    try:
        broken = replay(target, scenario, rules, last_step=last_step).broken
    except (InputError, ConfigRefused):
        return []
    return broken if broken and shape(broken[0], scenario.request_ids) == own else []


def rule_ids(words: Sequence[str] | None) -> list[str]:
    """Return the rule ids given to --rule. `A,B` stands for A and B."""
    return list(ids_named(words))


def ids_named(words: Sequence[str] | None) -> dict[str, bool]:
    """Map each rule id that --rule selects to whether the user named it in full."""
    every = {rule.id: rule for system in SYSTEMS for rule in load(system)}
    return selected([*every.values()], rule_words("--rule", words or ()))


@contextmanager
def opened_target(spec: str) -> Iterator[Target]:
    with opened(parse_target(spec)) as open_target:
        yield open_target.target


def check(data: dict[str, Any], target: Target) -> str:
    """Replay the scenario of an exported test. Return "" if it ends as expected, and otherwise
    the reason."""
    name = "the exported scenario"
    scenario = scenario_of(data, name)
    entry = Entry(Path(name), scenario, origin_of(scenario, name))
    corpus_folder.check_rule(entry)
    rule = entry.rule
    judged = judge(target, scenario, rule, rules_for(scenario))
    if judged.status == "as expected":
        return ""
    numbers = f" ({judged.broken.message})" if judged.broken else ""
    return output.one_line(f"{judged.status}: {judged.why}{numbers}")


Say = Callable[[str], None]
STYLES = {
    "as expected": "green",
    "NOT AS EXPECTED": "red",
    "not exercised": "yellow",
    "inconclusive": "yellow",
}


class Running(NamedTuple):
    """The target, its spec and the rules for replaying entries, and the options that printed replay
    commands need. At least one entry must exercise each rule in `named`."""

    console: Console
    target: Target
    spec: TargetSpec
    rules: Sequence[str]
    options: str
    stderr: Callable[[], str]
    named: Collection[str] = ()


def run_entries(running: Running, entries: Sequence[Entry]) -> int:
    """Replay each entry, print a line for it, and return the exit code."""
    counts, refused = dict.fromkeys(STYLES, 0), 0
    unexercised = {*running.named}
    for entry in entries:
        rules = rules_for(entry.scenario, running.rules)
        found_on = entry.origin.found_on
        judged = judge(running.target, entry.scenario, entry.rule, rules, found_on, running.spec)
        counts[judged.status] += 1
        refused += judged.refused
        unexercised -= {entry.rule} if judged.status == "as expected" else set()
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
    incomplete = counts["inconclusive"] or refused or unexercised
    judged_all = counts["as expected"] and not incomplete
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
    """Return the number of files in a corpus, and one line per problem."""
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
        else [f"{path}: the file's name does not match its rule and content; valid: {own}"]
    )
    judged = judge(target, scenario, entry.rule, rules_for(scenario))
    if judged.status != "as expected":
        wrong.append(f"{path}: {expectation(scenario)}: {judged.status.lower()}: {judged.why}")
    return wrong


def prune(entries: Sequence[Entry], target: Target, say: Say, *, dry_run: bool) -> int:
    """Remove duplicates, and entries that both the model and the target refuse. Keep an entry if it
    breaks a rule on the target. Return the number of removed entries."""
    removed = 0
    kept: list[Entry] = []
    for entry in sorted(entries, key=_preference):
        why = _why_not(entry, kept, target)
        if why and judge(target, entry.scenario, entry.rule, rules_for(entry.scenario)).broken:
            say(f"{entry.path}: kept, because it still breaks a rule ({why})")
            why = ""
        if not why:
            kept.append(entry)
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


def _why_not(entry: Entry, kept: Sequence[Entry], target: Target) -> str:
    for other in kept:
        if other.can_replace(entry):
            return f"the same failure as {other.path}, which is no larger"
    # A target refuses the entries of other systems as well, so ask the model of the entry first.
    for asked in (ModelTarget(), target):
        judged = judge(asked, entry.scenario, entry.rule, rules_for(entry.scenario))
        if not judged.refused:
            return ""
    return f"can no longer be replayed: {judged.why}"
