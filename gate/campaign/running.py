"""Run a campaign: hand out the planned items and record their results.

An item is either a Hypothesis search or the shrinking of a failure. Counts limit both, not time, so
an item gives the same result on every machine, provided that the target is deterministic.
"""

import atexit
import os
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache
from itertools import islice

from ...model.scenario import Scenario
from ...model.target import Target
from ...properties.checking.failure_signature import shape
from ...properties.rules.predicate import Broken
from ...properties.rules.registry import LOCKSTEP, NEVER_HANGS, applies
from ...properties.search.run import run_search
from ...properties.search.state import Hooks, Search, SearchOptions, StopSearch
from ...properties.shrinking.shrink import HANG_ATTEMPTS, shrink
from ...spec.catalogue import Rule, load
from ..corpus.replay import failures_of_shape, with_expectation
from ..judging.engines import not_deterministic
from ..judging.profiles import set_hypothesis_home
from ..processes.executors import DEATHS, Executor, TaskResult, run_tasks
from ..targets.factory import opened
from ..targets.target_spec import blame, parse_target
from .items import Failure, Item, Result, Sample, Shrinking, digest_of, plan
from .ledger import Done, Ledger

KNOWN = "known"  # stands for the rule of a known failure; no rule has this id
ATTEMPTS = 400  # replays; with a time limit, different machines would find different scenarios
SLOW_ATTEMPTS = 60  # replays on a target other than the model, which takes a hundred times longer
ONE_AT_A_TIME = threading.Lock()  # the engines must not run in several threads of a Dask worker


def work(item: Item) -> tuple[Result, float]:
    """Run an item in this worker process. Return its result and the CPU time in seconds."""
    with ONE_AT_A_TIME, warnings.catch_warnings():
        # Other threads of a Dask worker use `random` while Hypothesis draws; Hypothesis would blame
        # the strategies for it.
        warnings.filterwarnings("ignore", "Do not use the `random` module", category=Warning)
        set_hypothesis_home()
        began = _cpu_seconds()
        result = run_item(item)
        return result, _cpu_seconds() - began


def run_item(item: Item) -> Result:
    """Run an item. If the engine raises an exception, the result contains its message."""
    try:
        return _sample(item) if isinstance(item, Sample) else _shrink(item)
    except Exception as error:
        return Result(failed=f"{type(error).__name__}: {error}".splitlines()[0], complete=False)


@cache
def rules_of(
    system: str, revision: str, ids: tuple[str, ...] = (), target: str = "model"
) -> tuple[Rule, ...]:
    """Return the rules that judge the target's runs: the rules with these ids, or all rules if
    `ids` is empty."""
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
    """Return the target with this name. Each process opens it once and closes it at exit."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(opened(parse_target(spec), offline=True)).target


def _sample(item: Sample) -> Result:
    # As in a gate, search again as long as each search finds a new failure. A known failure ends
    # its run but is not reported again.
    kind = item.kind
    target = target_of(item.target)
    rules = rules_of(kind.system, kind.revision, item.rules, item.target)
    exercised: Counter[str] = Counter()
    failures: dict[str, Failure] = {}
    remaining, seed, scenarios, steps, refused = item.examples, item.seed, 0, 0, 0
    hung, failed = False, ""

    def new(broken: list[Broken], scenario: Scenario) -> list[Broken]:
        nonlocal hung
        hung = hung or any(breach.rule == NEVER_HANGS for breach in broken)
        if broken and shape(broken[0], scenario.request_ids) in failures:
            return [broken[0]._replace(rule=KNOWN)]
        return broken

    def watch(_: Search) -> None:
        # Stop if the target hangs: each further run could take as long as the time limit of a step.
        if hung:
            raise StopSearch

    while remaining > 0 and not hung:
        options = SearchOptions(
            *(target, kind.system, kind.revision, rules, kind.scale, frozenset({KNOWN})),
            fixed=kind.fixed,
            avoid=frozenset(kind.avoid),
        )
        search = Search(options, Hooks(lambda: new, watch))
        broke = run_search(search, remaining, seed, 0)
        exercised.update(search.exercised)
        refused += search.refused.total()
        scenarios, steps = scenarios + search.runs, steps + search.steps
        if not broke or search.failure is None:
            ended_early = search.refused.total() < search.runs < remaining - search.empty
            failed = (
                str(not_deterministic(search.runs, remaining)) if ended_early and not hung else ""
            )
            break
        scenario, (first, *_) = search.failure
        failure = failure_of(scenario, first, item.target)
        failures[failure.shape] = failure
        remaining, seed = remaining - search.runs_to_failure, seed + 1
    return Result(
        scenarios=scenarios - refused,
        steps=steps,
        exercised={rule.id: exercised[rule.id] for rule in rules if exercised[rule.id]},
        failures=tuple(failures.values()),
        complete=refused < scenarios and not (hung or failed),
        failed=failed,
    )


def failure_of(scenario: Scenario, broken: Broken, target: str) -> Failure:
    [broken] = blame([broken], parse_target(target))
    return Failure(
        rule=broken.rule,
        shape=shape(broken, scenario.request_ids),
        message=broken.message,
        scenario=scenario,
        by_adapter=broken.by_adapter,
    )


def _shrink(item: Shrinking) -> Result:
    """Replay a failure, shrink it, and replay the result. If the failure does not occur when all
    rules judge the run, try again with the failure's own rule alone."""
    failure, target = item.failure, target_of(item.target)
    scenario = failure.scenario
    rules: Sequence[Rule] = rules_of(
        scenario.system, scenario.revision or "", item.rules, item.target
    )
    first = failures_of_shape(target, scenario, rules, failure.shape, None)
    if not first:
        rules = [rule for rule in rules if rule.id == failure.rule]
        first = failures_of_shape(target, scenario, rules, failure.shape, None)
    if not first:
        return Result(scenarios=1, complete=False)
    last_step = first[0].step

    def still_fails(candidate: Scenario) -> bool:
        return bool(failures_of_shape(target, candidate, rules, failure.shape, last_step))

    attempts = ATTEMPTS if item.target == "model" else SLOW_ATTEMPTS
    if failure.rule == NEVER_HANGS:
        attempts = HANG_ATTEMPTS
    small = shrink(scenario, still_fails, attempts)
    broken = failures_of_shape(target, small, rules, failure.shape, None) or first
    shrunk = Failure(
        rule=failure.rule,
        shape=failure.shape,
        message=broken[0].message,
        scenario=with_expectation(small, [breach.rule for breach in broken]),
        by_adapter=failure.by_adapter,
    )
    return Result(scenarios=1, failures=(shrunk,))


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def run_campaign(
    ledger: Ledger,
    executor: Executor,
    *,
    items: int | None,
    ends: float,
    report: Callable[[str], None],
    progress: Callable[[int], None],
) -> None:
    """Run the planned items that are not in the ledger yet, then shrink the failures.

    `items` limits the total number of items, and no item starts after `ends` (a time from
    `time.monotonic`). `report` receives a line for each new failure and for each item without a
    result. `progress` receives the number of items that have run. Raise ClusterError if the cluster
    can no longer be reached; the results so far are in the ledger.
    """
    planned = (item for item in islice(plan(ledger.settings), items) if item not in ledger)
    for number, (item, ran) in enumerate(run_tasks(executor, planned, ends), 1):
        done = _done(item, ran)
        for failure in done.result.failures:
            if ledger.is_new(failure):
                scenario = f"{failure.scenario.system} {failure.scenario.revision}"
                word = "ADAPTER: " * failure.by_adapter
                report(f"found: {word}{failure.rule} on {scenario}: {failure.message}")
        if done.result.failed:
            report(f"item {digest_of(item)} failed: {done.result.failed}")
        ledger.write(done)
        progress(number)
    # Shrinking has no time limit: it takes only seconds, and the findings are worth it.
    questions = [
        question for question in ledger.failures_to_shrink().values() if question not in ledger
    ]
    if questions:
        report(f"shrinking {len(questions)} finding{'s' * (len(questions) != 1)}")
    for question, ran in run_tasks(executor, questions):
        done = _done(question, ran)
        if not done.result.failed:
            ledger.write(done)


def _done(item: Item, ran: TaskResult | None) -> Done:
    if ran is None:
        failed = f"its worker died {DEATHS} times"
        return Done(item, Result(failed=failed, complete=False), 0.0, "")
    result, seconds = ran.result
    return Done(item, result, seconds, ran.worker)
