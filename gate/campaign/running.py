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
from ...properties.machine import Enough, Search, search
from ...properties.predicate import Broken
from ...properties.replay import replay
from ...properties.rules import LOCKSTEP, NEVER_HANGS, applies
from ...properties.shape import shape
from ...solver.explored import Asked, Run
from ...solver.systems import SCOPES
from ...spec.catalogue import Rule, load
from ..engines import not_deterministic
from ..targets.opening import opened
from .examples import Shelf
from .items import Exploring, Item, Proving, Sample, Shrinking, canonical
from .margins import Watched
from .results import Failure, Result, result_of
from .shrinking import shrunk

KNOWN = "known"  # no rule has this id
STEP_LIMIT = 10.0  # seconds, for a target that is not the model


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
    is_model = target.partition(":")[0] == "model"
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
    if spec == "model":
        return ModelTarget()
    stack = ExitStack()
    atexit.register(stack.close)
    asked = opened(spec, step_limit=STEP_LIMIT, offline=True, report=lambda _: None)
    return stack.enter_context(asked).target


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
    at_stake: Counter[str] = Counter()
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

    def watch() -> None:
        """A target that hangs is searched no more: each such run takes the time limit of a step."""
        if hung:
            raise Enough

    while left > 0:
        hunt = Search(target, item.system, item.revision, rules, item.scale, frozenset({KNOWN}))
        hunt.config, hunt.fixed, hunt.new, hunt.watch = item.config, item.fixed, new, watch
        reuse = item.first and not failures
        broke = search(hunt, left, seed, 0, shelf, reuse)
        at_stake.update(hunt.at_stake)
        refused += hunt.refused.total()
        scenarios, steps = scenarios + hunt.runs, steps + hunt.steps
        if not broke or hunt.failure is None:
            ended_early = hunt.refused.total() < hunt.runs < left
            failed = str(not_deterministic(hunt.runs, left)) if ended_early and not hung else ""
            break
        scenario, (first, *_) = hunt.failure
        failures.append(failure_of(scenario, first))
        known.add(failures[-1].shape)
        left, seed = left - hunt.runs_to_failure, seed + 1
        if hung:
            break
    return Result(
        scenarios=scenarios - refused,
        steps=steps,
        at_stake=_seen(at_stake, rules),
        near=target.near,
        failures=tuple(failures),
        complete=refused < scenarios and not (hung or failed),
        failed=failed,
    )


@_run.register
def _explore(item: Exploring, _: ExampleDatabase | None) -> Result:
    """Explore breadth first; each counterexample is replayed, and the first of its shape kept."""
    rules = rules_of(item.system, item.revision, item.rules)
    [scope] = [one for one in SCOPES[item.system] if one.name == item.scope]
    run = Run(Asked(item.revision, replace(scope, requests=item.requests)), rules)
    for state in run.exploration.run():
        if state.transitions > item.transitions:
            break
    explored = run.explored()
    failures: dict[str, Failure] = {}
    for one in explored.found:
        asked = [rule for rule in rules if rule.id == one.rule]
        for broken in replay(ModelTarget(), one.scenario, asked).broken[:1]:
            failure = failure_of(one.scenario, broken)
            failures.setdefault(failure.shape, failure)
    return Result(
        scenarios=explored.states,
        steps=explored.transitions,
        at_stake={rule: len(limits) for rule, limits in explored.at_stake.items() if limits},
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
    asked = subprocess.run(
        [sys.executable, "-m", "schedproof.gate.campaign.proving"],
        input=canonical(item),
        capture_output=True,
        check=True,
    )
    return result_of(asked.stdout)


def _seen(at_stake: Counter[str], rules: Sequence[Rule]) -> dict[str, int]:
    """Rules whose witness occurred."""
    return {rule.id: at_stake[rule.id] for rule in rules if at_stake[rule.id]}
