"""`schedproof corpus add` and `minimize`: shrink scenarios and put them into a corpus."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from ...model.errors import InputError
from ...model.faults import ConfigRefused
from ...model.scenario import Scenario
from ...model.target import Target
from ...properties.checking.failure_signature import shape
from ...properties.checking.replay import Outcome, replay
from ...properties.rules.predicate import Broken
from ...properties.shrinking.shrink import shrink, size, stands_for
from ...spec.catalogue import CatalogueError, load, select
from ..files.scenario_file import FileError, file_name
from ..targets.target_spec import blame, parse_target
from . import folder as corpus_folder
from .folder import Entry, FoundOn, Origin, scenario_named
from .replay import expectation, failures_of_shape, rules_for, with_expectation

Expected = Literal["holds", "violates"]
Say = Callable[[str], None]
ATTEMPTS = 2_000  # replays
SECONDS = 30.0  # for each scenario; at production scale, one replay takes almost a second


@dataclass(frozen=True)
class Adding:
    """The options of `corpus add`, the opened target, and a function that prints a line."""

    folder: Path
    target: Target
    target_spec: str
    rules: Sequence[str]
    expected: Expected
    no_shrink: bool
    today: str
    say: Say


def add_files(adding: Adding, files: Sequence[Path]) -> dict[Path, str]:
    """Add each file. If a file cannot be added, continue with the next one. Return the reason for
    each file that was not added."""
    left_out = {}
    for file in files:
        try:
            add_file(adding, file)
        except (FileError, InputError) as error:
            left_out[file] = str(error)
    return left_out


def add_file(adding: Adding, file: Path) -> None:
    """Shrink a scenario. Add the result unless the corpus already has a scenario that has the same
    failure and is no larger."""
    read = scenario_named(str(file))
    steps = read.expect and read.expect.steps
    scenario = replace(read, expect=None)
    adding, outcome = _judge_by_own_rule(adding, file, scenario)
    if outcome.broken:
        first = blame(outcome.broken, parse_target(adding.target_spec))[0]
        if first.by_adapter:
            raise FileError(f"{file}: ADAPTER: {first.message}; correct the adapter first")
    if outcome.broken and steps and not adding.no_shrink:
        why = (
            "the file expects certain steps, which a smaller scenario would not show; valid: "
            "--no-shrink"
        )
        raise FileError(f"{file}: $.expect.steps: {why}")
    if outcome.broken:
        reported, origin, how = _failure(adding, file, scenario, outcome)
    else:
        reported, origin, how = _witness(adding, file, scenario, outcome)
    if steps and reported.expect:
        reported = replace(reported, expect=replace(reported.expect, steps=steps))
    _keep(adding, file, reported, origin, how)


def _judge_by_own_rule(adding: Adding, file: Path, scenario: Scenario) -> tuple[Adding, Outcome]:
    """Replay a scenario and judge it by the rule that its file names. If the run does not break
    that rule, judge it by the rules of `adding`."""
    rule = (scenario.origin or {}).get("rule")
    if not adding.rules and rule in {known.id for known in rules_for(scenario, ())}:
        alone = dataclasses.replace(adding, rules=[rule])
        outcome = run_of(adding.target, scenario, alone.rules, file)
        if outcome.broken:
            return alone, outcome
    return adding, run_of(adding.target, scenario, adding.rules, file)


def minimize_entry(target: Target, spec: str, entry: Entry, say: Say) -> bool:
    """Shrink an entry in place. Return False if it does not have its own failure on the target."""
    expect = entry.scenario.expect
    if expect is not None and expect.steps:
        say(
            f"{entry.path}: not changed, because it expects certain steps, which a smaller "
            "scenario would not show"
        )
        return True
    scenario = replace(entry.scenario, expect=None)
    own_rule = [entry.origin.rule]
    outcome = run_of(target, scenario, own_rule, entry.path)
    if not outcome.broken or outcome.broken[0].rule not in own_rule:
        where = f" (found on {entry.found_on})" if entry.found_on else ""
        others = "".join(f", but {failure.rule}" for failure in outcome.broken)
        why = f"because it does not break {entry.origin.rule} on {spec}{where}"
        say(f"{entry.path}: not changed, {why}{others}")
        return False
    if entry.shape not in ("", shape(outcome.broken[0], scenario.request_ids)):
        failure = outcome.broken[0].message
        say(f"{entry.path}: not changed, because it has another failure on {spec}: {failure}")
        return False
    smaller, how = minimize(target, scenario, outcome.broken[0], own_rule)
    if size(smaller) >= size(scenario) and smaller.config == scenario.config:
        say(f"{entry.path}: already minimal ({how})")
        return True
    broken = run_of(target, smaller, own_rule, entry.path).broken or outcome.broken
    violates = (
        [failure.rule for failure in broken] if expect is not None and expect.violates else None
    )
    own = shape(broken[0], smaller.request_ids)
    origin = Origin(broken[0].rule, own, entry.origin.found_on, entry.origin.found)
    path = corpus_folder.add(entry.path.parent, with_expectation(smaller, violates), origin)
    if path != entry.path:
        corpus_folder.remove(entry)
    say(f"{entry.path}: {in_words(scenario)} -> {in_words(smaller)} ({how}): {path.name}")
    return True


def minimize(
    target: Target, scenario: Scenario, first: Broken, ids: Sequence[str]
) -> tuple[Scenario, str]:
    """Return the smallest scenario found whose failure has the same shape, and the number of
    replays."""
    rules = rules_for(scenario, ids)
    own = shape(first, scenario.request_ids)
    began = time.monotonic()
    replay(target, scenario, rules, last_step=first.step)
    replays = 0
    affordable = int(SECONDS / max(time.monotonic() - began, 0.001))

    def still_fails(candidate: Scenario) -> bool:
        nonlocal replays
        replays += 1
        return bool(failures_of_shape(target, candidate, rules, own, first.step))

    smallest = shrink(scenario, still_fails, min(ATTEMPTS, max(affordable, 10)))
    return smallest, f"{replays} replays"


def run_of(target: Target, scenario: Scenario, ids: Sequence[str], file: Path) -> Outcome:
    rules = rules_for(scenario, ids)
    if not rules:
        wanted = ", ".join(ids)
        problem = f"{wanted} does not apply to {scenario.system} {scenario.revision} ({file})"
        raise InputError("--rule", problem)
    try:
        outcome = replay(target, scenario, rules)
    except (InputError, ConfigRefused) as error:
        raise FileError(f"{file}: {error}") from None
    if len(outcome.session.rejected) == len(scenario.requests) and not outcome.broken:
        name, why = next(iter(outcome.session.rejected.items()))
        raise FileError(f"{file}: the target refuses every request: {name}: {why}")
    return outcome


def in_words(scenario: Scenario) -> str:
    requests, numbers = size(scenario)
    return f"{requests} request{'s' * (requests != 1)}, {numbers:,} tokens and steps"


def _failure(
    adding: Adding, file: Path, scenario: Scenario, outcome: Outcome
) -> tuple[Scenario, Origin, str]:
    first = outcome.broken[0]
    how = "not shrunk"
    if not adding.no_shrink:
        large = scenario
        scenario, how = minimize(adding.target, scenario, first, adding.rules)
        outcome = run_of(adding.target, scenario, adding.rules, file)
        if not outcome.broken:
            scenario, how = large, "not shrunk: the smaller scenario did not fail again"
            outcome = run_of(adding.target, scenario, adding.rules, file)
            if not outcome.broken:
                raise FileError(
                    f"{file}: left out, because it broke {first.rule} once, but not again"
                )
        first = outcome.broken[0]
    broken = [failure.rule for failure in outcome.broken]
    reported = with_expectation(scenario, broken if adding.expected == "violates" else None)
    own = shape(first, scenario.request_ids)
    return reported, _origin(adding, first.rule, own, outcome), how


def _witness(
    adding: Adding, file: Path, scenario: Scenario, outcome: Outcome
) -> tuple[Scenario, Origin, str]:
    if adding.expected == "violates":
        raise FileError(f"{file}: breaks no rule on {adding.target_spec}; valid: --expect holds")
    if not outcome.finished:
        raise FileError(
            f"{file}: inconclusive, because the run had not finished after {outcome.steps} steps"
        )
    reported = (scenario.origin or {}).get("rule")
    rule = adding.rules[0] if adding.rules else reported
    if not isinstance(rule, str):
        raise FileError(
            f"{file}: breaks no rule on {adding.target_spec}; "
            "valid as a witness: name its rule with --rule"
        )
    try:
        select(load(scenario.system), [rule])
    except CatalogueError as error:
        raise FileError(f"{file}: $.origin.rule: {error}") from None
    if not outcome.exercised[rule]:
        raise FileError(
            f"{file}: {rule} is never exercised on {adding.target_spec}, so this is not a witness"
        )
    return with_expectation(scenario, None), _origin(adding, rule, "", outcome), "a witness"


def _origin(adding: Adding, rule: str, own: str, outcome: Outcome) -> Origin:
    started = outcome.session.started
    found_on = FoundOn(adding.target_spec, started.name, started.version)
    return Origin(rule, own, found_on, adding.today)


def _keep(adding: Adding, file: Path, scenario: Scenario, origin: Origin, how: str) -> None:
    """Write the entry, unless the corpus has an entry that has the same failure and is no larger.
    Remove the entries that it can replace."""
    entries = corpus_folder.entries(adding.folder) if adding.folder.exists() else []
    path = adding.folder / file_name(scenario, origin.rule)
    new = Entry(path, scenario, origin)
    same = [entry for entry in entries if entry.path == path]
    alike = [entry for entry in entries if entry.failure == new.failure and entry.path != path]
    if same:
        adding.say(f"{file}: {path} already exists and {expectation(same[0].scenario)}")
        return
    kept = next((entry for entry in alike if stands_for(entry.scenario, scenario)), None)
    if kept is not None:
        adding.say(
            f"{file}: not added, because {kept.path} has the same failure, is no larger, and "
            f"{expectation(kept.scenario)}"
        )
        return
    corpus_folder.add(adding.folder, scenario, origin)
    replaced = [entry for entry in alike if new.can_replace(entry)]
    for entry in replaced:
        corpus_folder.remove(entry)
    instead = f", instead of {', '.join(entry.path.name for entry in replaced)}" * bool(replaced)
    about = f"{in_words(scenario)}, {how}; {expectation(scenario)}"
    adding.say(f"{file}: added {path}{instead} ({about})")
