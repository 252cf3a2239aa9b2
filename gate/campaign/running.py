"""One item, run: the engines of `gate`, `search` and `explore`, bounded in counts, not in seconds.

So an item gives the same result wherever and however often it runs. Two things are outside of
that: a target that is not deterministic, and Z3, which may leave a lemma unknown on a machine that
is too slow for it.
"""

import atexit
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, singledispatch

from hypothesis.database import ExampleDatabase

from ...model.errors import InputError
from ...model.scenario import Scenario
from ...model.systems import full_config
from ...model.target import ModelTarget, Target
from ...properties.checking.failure_signature import shape
from ...properties.checking.replay import replay
from ...properties.rules.predicate import Broken
from ...properties.rules.registry import LOCKSTEP, NEVER_HANGS, applies
from ...properties.search.run import run_search
from ...properties.search.state import Hooks, Search, SearchOptions, StopSearch
from ...solver.exploration.exploration import Exploration, ExploreOptions
from ...solver.systems import space_of
from ...spec.catalogue import Rule, load
from ..judging.engines import not_deterministic
from ..processes.kept import run_kept
from ..targets.factory import opened
from ..targets.target_spec import parse_target
from .examples import Shelf
from .items import Exploring, Item, Proving, Sample, Shrinking, canonical
from .margins import Watched
from .results import Failure, Result, result_of
from .shrinking import shrunk

KNOWN = "known"  # no rule has this id


def run_item(item: Item, database: ExampleDatabase | None = None) -> Result:
    """Run an item; an engine that raises gives a result that says so."""
    try:
        return _run(item, database)
    except Exception as error:
        return Result(failed=f"{type(error).__name__}: {error}".splitlines()[0], complete=False)


@cache
def rules_of(
    system: str, revision: str, ids: tuple[str, ...] = (), target: str = "model"
) -> tuple[Rule, ...]:
    """The rules that runs of the target are judged by: of those of the revision the chosen ones,
    or all."""
    is_model = parse_target(target).is_model
    return tuple(
        rule
        for rule in load(system)
        if rule.checked
        and applies(rule, revision)
        and (not ids or rule.id in ids)
        and not (is_model and rule.id == LOCKSTEP)
    )


@cache
def target_of(spec: str) -> Target:
    """The target of this name, opened once in a process, and closed when that ends.

    Raises:
        UnknownTargetError, ReleaseError: `spec` names none.
    """
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(opened(parse_target(spec), offline=True)).target


def failure_of(scenario: Scenario, broken: Broken) -> Failure:
    """The failure as a ledger has it."""
    own = shape(broken, [one.id for one in scenario.requests])
    return Failure(rule=broken.rule, shape=own, message=broken.message, scenario=scenario)


@singledispatch
def _run(item: Item, database: ExampleDatabase | None) -> Result:
    raise TypeError(item)


@_run.register
def _sample(item: Sample, database: ExampleDatabase | None) -> Result:
    """Search again and again while there is something new, as a gate does."""
    if item.config is not None:
        try:  # a limit that was moved may be one that no scheduler can have
            full_config(item.system, item.revision, item.config)
        except InputError as error:
            return Result(says={"configuration": f"impossible: {error}"}, complete=False)
    target = Watched(target_of(item.target))
    rules = rules_of(item.system, item.revision, item.rules, item.target)
    exercised: Counter[str] = Counter()
    failures: list[Failure] = []
    known = set(item.known)
    shelf = Shelf(database, f"{item.system} {item.revision} {item.scale}") if database else None
    left, seed, scenarios, steps, refused = item.examples, item.seed, 0, 0, 0
    hung, failed = False, ""

    def new(broken: list[Broken], scenario: Scenario) -> list[Broken]:
        """A failure that is known ends the run, whatever its numbers are."""
        nonlocal hung
        hung = hung or any(one.rule == NEVER_HANGS for one in broken)
        if broken and failure_of(scenario, broken[0]).shape in known:
            return [broken[0]._replace(rule=KNOWN)]
        return broken

    def watch(_: Search) -> None:
        """A target that hangs is searched no more: each such run takes the time limit of a step."""
        if hung:
            raise StopSearch

    while left > 0:
        options = SearchOptions(
            *(target, item.system, item.revision, rules, item.scale, frozenset({KNOWN})),
            config=item.config,
            fixed=item.fixed,
        )
        search = Search(options, Hooks(new, watch))
        reuse = item.first and not failures
        broke = run_search(search, left, seed, 0, shelf, reuse)
        exercised.update(search.exercised)
        refused += search.refused.total()
        scenarios, steps = scenarios + search.runs, steps + search.steps
        if not broke or search.failure is None:
            ended_early = search.refused.total() < search.runs < left
            failed = str(not_deterministic(search.runs, left)) if ended_early and not hung else ""
            break
        scenario, (first, *_) = search.failure
        failures.append(failure_of(scenario, first))
        known.add(failures[-1].shape)
        left, seed = left - search.runs_to_failure, seed + 1
        if hung:
            break
    return Result(
        scenarios=scenarios - refused,
        steps=steps,
        exercised=_seen(exercised, rules),
        near=target.near,
        failures=tuple(failures),
        complete=refused < scenarios and not (hung or failed),
        failed=failed,
    )


@_run.register
def _explore(item: Exploring, _: ExampleDatabase | None) -> Result:
    """Explore breadth first; each counterexample is replayed, and the first of its shape kept."""
    rules = rules_of(item.system, item.revision, item.rules)
    [scope] = [one for one in space_of(item.system).scopes if one.name == item.scope]
    run = Exploration(ExploreOptions(item.revision, replace(scope, requests=item.requests)), rules)
    for state in run.search.run():
        if state.transitions > item.transitions:
            break
    explored = run.result()
    failures: dict[str, Failure] = {}
    for one in explored.counterexamples:
        asked = [rule for rule in rules if rule.id == one.rule]
        for broken in replay(ModelTarget(), one.scenario, asked).broken[:1]:
            failure = failure_of(one.scenario, broken)
            failures.setdefault(failure.shape, failure)
    return Result(
        scenarios=explored.states,
        steps=explored.transitions,
        exercised={rule: len(limits) for rule, limits in explored.exercised.items() if limits},
        failures=tuple(failures.values()),
        complete=explored.complete,
    )


@_run.register
def _shrink(item: Shrinking, _: ExampleDatabase | None) -> Result:
    """What is left of a failure; no failure where it does not come again."""
    about = item.failure.scenario
    rules = rules_of(about.system, about.revision or "", item.rules, item.target)
    small = shrunk(item, target_of(item.target), rules)
    return Result(scenarios=1, failures=(small,) if small else (), complete=small is not None)


@_run.register
def _prove(item: Proving, _: ExampleDatabase | None) -> Result:
    """Ask Z3 in a process of its own: which solution it gives depends on what it was asked before.

    Raises:
        CalledProcessError: the process died.
    """
    asked = run_kept(
        [sys.executable, "-m", "schedproof.gate.campaign.proving"],
        canonical(item),
        stderr=subprocess.PIPE,
    )
    asked.check_returncode()
    return result_of(asked.stdout)


def _seen(exercised: Counter[str], rules: Sequence[Rule]) -> dict[str, int]:
    """Rules whose witness occurred."""
    return {rule.id: exercised[rule.id] for rule in rules if exercised[rule.id]}
