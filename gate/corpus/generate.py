"""`schedproof corpus generate`: scenarios in which a rule is exercised, before there is a bug.

Of each rule, in this order: the run of the smallest witness exactly at the limit that the rule is
about, one below it and one above what is possible; runs that break the rule on a mutant of the
model; the smallest witness itself; a sample. Only what holds on the model is kept, and only where
the rule was exercised.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from ...model.errors import InputError
from ...model.faults import ConfigRefused
from ...model.observation import Step
from ...model.scenario import Request, Scenario
from ...model.target import ModelTarget
from ...properties.checking.replay import Outcome, replay
from ...properties.mutants.systems import mutants_of
from ...properties.rules.predicate import Predicate
from ...properties.rules.registry import LOCKSTEP, applies, predicates_of
from ...properties.search.boundary_cases import LIMIT_OF, Near, is_near, near_misses
from ...properties.search.run import run_search
from ...properties.search.state import Hooks, Search, SearchOptions
from ...properties.search.witness_search import witness_predicates
from ...solver.exploration.exploration import Exploration, ExploreOptions
from ...solver.exploration.scheduler_space import BOUNDED_WAIT, COMPLETION
from ...solver.systems import space_of
from ...spec.catalogue import Rule, load
from ..console import interrupts
from ..files.scenario_file import file_name
from . import folder as corpus_folder
from .folder import FoundOn, Origin
from .replay import expecting

# Bounds in what is counted, not in seconds: the same seed gives the same scenarios everywhere.
MAX_TRANSITIONS = 4_000  # of one scope
EXAMPLES = 150
SHRINK_RUNS = 60
Say = Callable[[str], None]


@dataclass(frozen=True)
class Generating:
    """What is generated, and where it goes."""

    system: str
    revision: str
    folder: Path
    per_rule: int
    seed: int
    today: str
    say: Say
    catalogue: list[Rule] = field(default_factory=list)


class Candidate(NamedTuple):
    """A candidate scenario, the engine that found it, and what it is in words."""

    scenario: Scenario
    engine: str
    says: str
    near: Near | None = None


def generate(asked: Generating, rules: Sequence[Rule]) -> list[str]:
    """Write scenarios for each rule, a line a rule; the rules for which there is none.

    Raises:
        FileError: the folder cannot be written to.
    """
    without: list[str] = []
    for rule in rules:
        if rule.id == LOCKSTEP:
            asked.say(f"{rule.id}: compares a target with the model: every scenario is one for it")
            continue
        kept = list(_kept(asked, rule))
        if kept:
            asked.say(f"{rule.id}: {len(kept)}: {'; '.join(kept)}")
        else:
            asked.say(f"{rule.id}: none found, neither by the explorer nor by Hypothesis")
            without.append(rule.id)
    return without


def rules_to_generate(system: str, revision: str, ids: Sequence[str]) -> list[Rule]:
    """The rules of a revision that are checked, or those of them that are named.

    Raises:
        InputError: one that is named is not checked in this revision.
    """
    there = [one for one in load(system) if one.checked and applies(one, revision)]
    unknown = [one for one in ids if one not in {rule.id for rule in there}]
    if unknown:
        problem = f"{unknown[0]} is not checked on {system} {revision}"
        raise InputError("--rules", f"{problem}; `schedproof rules` says what is")
    return [one for one in there if not ids or one.id in ids]


def _kept(asked: Generating, rule: Rule) -> Iterator[str]:
    """Write the first few candidates that do; each in words."""
    names: set[str] = set()
    for candidate in _candidates(asked, rule):
        if len(names) == asked.per_rule:
            return
        name = file_name(candidate.scenario, rule.id)
        if name in names or not _does(asked, rule, candidate):
            continue
        names.add(name)
        note = f"{rule.id}: {candidate.says}"
        origin = {"engine": candidate.engine, "note": note, "seed": asked.seed}
        reported = replace(candidate.scenario, name=note, origin=origin)
        found_on = FoundOn("model", f"schedproof model of {asked.system}", asked.revision)
        about = Origin(rule.id, "", found_on, asked.today)
        corpus_folder.add(asked.folder, expecting(reported, None), about)
        yield f"{candidate.engine}, {candidate.says}"


def _does(asked: Generating, rule: Rule, candidate: Candidate) -> bool:
    """Every rule holds on the model, this one was exercised, and a near miss is as near as it
    says."""
    run = _run(asked, candidate.scenario)
    if run is None:
        return False
    outcome, steps = run
    holds = outcome.finished and not outcome.broken and bool(outcome.exercised[rule.id])
    return holds and (candidate.near is None or is_near(candidate.near, steps))


def _run(asked: Generating, scenario: Scenario) -> tuple[Outcome, list[Step]] | None:
    """A replay on the model with its steps; None where the configuration is impossible."""
    steps: list[Step] = []
    try:
        outcome = replay(
            ModelTarget(), scenario, asked.catalogue, lambda _, step: steps.append(step)
        )
    except (InputError, ConfigRefused):
        return None
    return outcome, steps


def _candidates(asked: Generating, rule: Rule) -> Iterator[Candidate]:
    """What may do, the closest first."""
    witness = _witness(asked, rule)
    if rule.id == "SPY-R07":
        yield from _solved(asked)
    key = LIMIT_OF.get(rule.id)
    if key is not None and witness is not None:
        run = _run(asked, witness.scenario)
        for near in near_misses(witness.scenario, key, run[1]) if run else ():
            yield Candidate(near.scenario, witness.engine, near.says, near)
    yield from _killers(asked, rule)
    if witness is not None:
        yield witness
    for seed in range(asked.seed + 1, asked.seed + 1 + asked.per_rule):
        sample = _sampled(asked, rule.id, seed)
        if sample is not None:
            yield sample


def _witness(asked: Generating, rule: Rule) -> Candidate | None:
    """The smallest run in which the rule is exercised: explored, or else sampled."""
    # Whatever runs can crash or hang: the smallest run that ends will do.
    wanted = rule.id if rule.id in predicates_of(asked.system) else "ALL-R04"
    predicates = witness_predicates(asked.system, wanted)
    for name, scenario in _explored(asked, wanted, predicates=predicates):
        return Candidate(scenario, "explore", f"smallest witness (scope {name})")
    return _sampled(asked, wanted, asked.seed)


def _killers(asked: Generating, rule: Rule) -> Iterator[Candidate]:
    """Runs that break the rule on a mutant of the model."""
    for mutant in mutants_of(asked.system):
        same = (mutant.rule, mutant.revision) == (rule.id, asked.revision)
        if not same or mutant.target is not ModelTarget:
            continue
        for _, scenario in _explored(asked, rule.id, planted=mutant.planted()):
            yield Candidate(scenario, "explore", f"kills mutant {mutant.name!r}")


def _explored(
    asked: Generating,
    rule: str,
    predicates: Mapping[str, Predicate] | None = None,
    planted: AbstractContextManager[Any] | None = None,
) -> Iterator[tuple[str, Scenario]]:
    """The shortest run that breaks the rule, with its scope's name: by these predicates, or while
    a mutant is planted."""
    if rule in (BOUNDED_WAIT, COMPLETION):
        return  # the explorer knows of waiting by itself, and asks no predicate
    rules = [one for one in asked.catalogue if one.id == rule]
    found: tuple[str, Scenario] | None = None
    with planted or nullcontext():
        for scope in space_of(asked.system).checkup:
            if not scope.belongs_to(asked.revision):
                continue
            run = Exploration(
                ExploreOptions(asked.revision, scope, first_only=True), rules, predicates=predicates
            )
            if not run.checked:
                continue
            for one in run.search.run():
                interrupts.check()
                if one.transitions > MAX_TRANSITIONS:
                    break
            explored = [one for one in run.result().counterexamples if one.rule == rule]
            if explored:
                found = scope.name, explored[0].scenario
                break
    if found is not None:
        yield found


def _sampled(asked: Generating, rule: str, seed: int) -> Candidate | None:
    """The smallest run that Hypothesis comes to in which the rule is exercised."""
    if rule not in predicates_of(asked.system):
        return None
    rules = [one for one in asked.catalogue if one.id == rule]
    options = SearchOptions(
        *(ModelTarget(), asked.system, asked.revision, rules, "small"),
        predicates=witness_predicates(asked.system, rule),
    )
    search = Search(options, Hooks(watch=lambda _: interrupts.check()))
    with interrupts.instead():
        run_search(search, EXAMPLES, seed, SHRINK_RUNS)
    if search.failure is None:
        return None
    return Candidate(search.failure[0], "hypothesis", f"sample (seed {seed})")


def _solved(asked: Generating) -> Iterator[Candidate]:
    """Z3's batches that use the limit to the last token, and all but one; one more waits."""
    from ...solver.spyre.admission_sequences import FORMULA_OF_REVISION, Setting
    from ...solver.spyre.worst_case import using  # Z3 takes a while to import

    formula = FORMULA_OF_REVISION.get(asked.revision)
    if formula is None:
        return
    for limit, margin, says in (
        (96, 0, "exactly at the limit"),
        (97, 1, "one below the limit"),
    ):
        setting = Setting(formula, 0, block=4, chunk=8, limit=limit, max_model_len=32)
        found = using(setting, limit - margin, asked.revision, 10.0)
        for scenario in _with_one_more(asked, found) if found else ():
            near = Near(f"{says}: max_batch_tkv {limit}", scenario, "max_batch_tkv", margin)
            candidate = Candidate(scenario, "z3", near.says, near)
            [rule] = [one for one in asked.catalogue if one.id == "SPY-R07"]
            if _does(asked, rule, candidate):
                yield candidate
                break


def _with_one_more(asked: Generating, scenario: Scenario) -> Iterator[Scenario]:
    """The run with a request more, at each of its steps: with it they would be beyond the limit."""
    run = _run(asked, scenario)
    length = int(scenario.config["max_model_len"])
    for arrival in range(run[0].steps if run else 0):
        name = f"r{len(scenario.requests)}"
        late = Request(id=name, arrival=arrival, prompt=((name, 1),), max_tokens=length // 2)
        yield replace(scenario, requests=(*scenario.requests, late))
