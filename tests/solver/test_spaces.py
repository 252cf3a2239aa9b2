"""Every system explored: the reductions change no verdict, limits explored together are the limits
one by one, the number of states is what it was, and a fault in the model is found."""

from dataclasses import replace
from functools import cache, lru_cache
from unittest import mock

import pytest

from schedproof.model.systems import make_model
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.solver.exploration.exploration import Exploration, ExploreOptions
from schedproof.solver.exploration.scheduler_space import SchedulerSpace
from schedproof.solver.exploration.search import numbers
from schedproof.solver.systems import space_of
from schedproof.spec.catalogue import load, select
from schedproof.spec.systems import SYSTEMS
from schedproof.tests.mutants.checkups import checkup

from .llmservingsim.space_cases import CASES as LLMSERVINGSIM
from .nano_vllm.space_cases import CASES as NANO_VLLM
from .space_cases import scope_named
from .spyre.space_cases import CASES as SPYRE
from .vllm.space_cases import CASES as VLLM

CASES = {"spyre": SPYRE, "vllm": VLLM, "nano_vllm": NANO_VLLM, "llmservingsim": LLMSERVINGSIM}
rules = cache(lambda system: [rule for rule in load(system) if rule.checked])
# Of vLLM only the oldest and the newest: what a revision between them does differently, the newest
# does, too. Nothing of that is about loads and stages, whose scopes take longest.
REVISIONS = {name: system.revisions for name, system in SYSTEMS.items()}
REVISIONS["vllm"] = SYSTEMS["vllm"].revisions[:: len(SYSTEMS["vllm"].revisions) - 1]
ALIKE = {("0.33", name) for name in ("loads", "three loads", "loads ahead", "stages")}
EVERY = [
    (system, revision, scope)
    for system, cases in CASES.items()
    for revision in REVISIONS[system]
    for scope in cases.small
    if scope.belongs_to(revision) and (revision, scope.name) not in ALIKE
]
each_system = pytest.mark.parametrize("system", CASES)


def each(rows):
    """A test for each (system, revision, scope)."""
    return pytest.mark.parametrize(
        ("system", "revision", "scope"),
        [pytest.param(*row, id=f"{row[0]}-{row[1]}-{row[2].name}") for row in rows],
    )


def explored(revision, scope, **options):
    run = Exploration(ExploreOptions(revision, scope, **options), rules(scope.system))
    for _ in run.search.run():
        pass
    return run.result()


def verdicts(result):
    """Which rule breaks, and which was exercised, at which limits."""
    broken = {(found.rule, limit) for found in result.counterexamples for limit in found.limits}
    exercised = {(rule, limit) for rule, limits in result.exercised.items() for limit in limits}
    return broken, exercised


def steps_seen(revision, scope, reduced=True):
    """An exploration, and every step that it saw."""
    seen = set()
    judged = SchedulerSpace._judged
    shown = CASES[scope.system].shown

    def note(space, history, step, wait, members):
        for number in numbers(members):
            seen.add((scope.limits[number], step.kind, shown(step, history)))
        return judged(space, history, step, wait, members)

    with mock.patch.object(SchedulerSpace, "_judged", note):
        result = explored(revision, scope, reduced=reduced)
    assert result.complete
    return result, seen


@lru_cache(maxsize=8)
def as_it_is(revision, scope):
    return steps_seen(revision, scope)


def replays(found, revision, system):
    """The model breaks the rule, and no other, at each limit of a counterexample."""
    for limit in found.limits:
        config = {**found.scenario.config, space_of(system).limit_key: limit}
        scenario = type(found.scenario)(
            system=system, revision=revision, config=config, requests=found.scenario.requests
        )
        broken = replay(ModelTarget(), scenario, select(rules(system), [found.rule])).broken
        assert [judged.rule for judged in broken] == [found.rule]


def as_pinned(result, system, revision, scope):
    """Assert that the states and the verdicts are those of before."""
    cases = CASES[system]
    assert result.complete
    pinned = cases.pinned.get((revision, scope.name))
    assert pinned in (None, (result.states, result.transitions, result.depth))
    for found in result.counterexamples:
        replays(found, revision, system)
    if cases.breaks is not None:
        expected = cases.breaks.get((revision, scope.name), set())
        assert {found.rule for found in result.counterexamples} == expected
        assert result.livelocks == 0


# Full graphs that take 5 s and more.
LONG = {"three loads", "stages", "loads ahead"}
# The full graphs of the other revisions are explored at night. Of Spyre's releases, one remembers a
# tkv, and one pauses requests.
BY_DAY = {
    "spyre": ("2.1.2", "2.5.2"),
    "vllm": ("documented",),
    "nano_vllm": ("documented",),
    "llmservingsim": ("head",),
}


def at_night(system, revision, scope):
    others = BY_DAY[system]
    return scope.name in LONG or (revision not in others and any(map(scope.belongs_to, others)))


by_day = [row for row in EVERY if not at_night(*row)]
by_night = [row for row in EVERY if at_night(*row)]


@pytest.mark.slow
@each(by_night)
def test_the_graph_is_what_it_was(system, revision, scope):
    reduced, _ = as_it_is(revision, scope)
    as_pinned(reduced, system, revision, scope)


@pytest.mark.slow
@each(by_day)
def test_the_graph_is_what_it_was_and_the_full_graph_agrees(system, revision, scope):
    reduced, _ = as_it_is(revision, scope)
    as_pinned(reduced, system, revision, scope)
    assert_full_graph_agrees(system, revision, scope)


@pytest.mark.nightly
@each(by_night)
def test_the_full_graph_of_every_revision_agrees(system, revision, scope):
    assert_full_graph_agrees(system, revision, scope)


def assert_full_graph_agrees(system, revision, scope):
    """In the full graph nothing is chosen late, and no two states are taken for the same."""
    cases = CASES[system]

    def as_it_stands(models, state, history):
        cached = frozenset(state.pool.cached.items())
        accounts = tuple(
            tuple(getattr(request, name) for name in cases.account.split())
            for request in history.requests.values()
        )
        rest = cases.rest(state, history)
        state = state._replace(pool=state.pool._replace(cached=()), **cases.forgotten)
        return state, cached, accounts, tuple(history.live), rest

    reduced, steps = as_it_is(revision, scope)
    with mock.patch.object(cases.models, "key", as_it_stands):
        full, all_steps = steps_seen(revision, scope, reduced=False)
    assert verdicts(reduced) == verdicts(full)
    assert steps == all_steps


@pytest.mark.slow
@pytest.mark.parametrize("system", [system for system in CASES if CASES[system].smaller])
def test_the_reduced_graph_is_smaller(system):
    cases = CASES[system]
    reduced, full = (
        explored("documented", cases.small[0], reduced=reduced) for reduced in (True, False)
    )
    assert reduced.transitions < cases.smaller * full.transitions


@pytest.mark.slow
@pytest.mark.parametrize(
    ("system", "name"), [(system, name) for system in CASES for name in CASES[system].wrong]
)
def test_a_wrong_reduction_is_noticed(system, name):
    revision, scope, place, attribute, wrap = CASES[system].wrong[name]
    right, steps = as_it_is(revision, scope)
    with mock.patch.object(place, attribute, wrap(getattr(place, attribute))):
        wrong, others = steps_seen(revision, scope)
    assert (verdicts(wrong), others) != (verdicts(right), steps)


@pytest.mark.slow
@each([(system, *case) for system in CASES for case in CASES[system].in_one_go])
def test_limits_explored_in_one_go_are_those_explored_one_by_one(system, revision, scope):
    together = explored(revision, scope)
    broken, exercised = verdicts(together)
    for limit in scope.limits:
        alone = explored(revision, replace(scope, limits=(limit,)))
        assert alone.states == together.states_by_limit[limit]
        assert verdicts(alone)[0] == {entry for entry in broken if entry[1] == limit}
        assert verdicts(alone)[1] == {entry for entry in exercised if entry[1] == limit}


@pytest.mark.slow
@each_system
@pytest.mark.parametrize("order", ["depth", "deepening"])
def test_every_order_comes_to_the_same_verdicts(system, order):
    cases = CASES[system]
    revision, limit = cases.order
    scope = replace(cases.small[0], limits=(limit,))
    first, other = explored(revision, scope), explored(revision, scope, order=order)
    assert other.complete
    assert verdicts(other) == verdicts(first)
    assert other.states == first.states or not cases.same_states


@each([row for row in EVERY if row[2].name == "lengths"])
def test_an_exploration_has_the_states_and_the_verdicts_that_it_had(system, revision, scope):
    as_pinned(explored(revision, scope), system, revision, scope)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("system", "name"), [(system, name) for system in CASES for name in CASES[system].faults]
)
def test_a_planted_fault_is_found_and_its_counterexample_replays(system, name):
    place, attribute, wrap, revision, scope, rule = CASES[system].faults[name]
    with mock.patch.object(place, attribute, wrap(getattr(place, attribute))):
        result = explored(revision, scope_named(CASES[system].small, scope))
        found = next(found for found in result.counterexamples if found.rule == rule)
        replays(found, revision, system)


@each_system
def test_every_scope_has_a_name_of_its_own_and_a_configuration_that_exists(system):
    space = space_of(system)
    for scopes in (space.scopes, checkup(system)):
        if system != "spyre" or scopes is space.scopes:  # its checkup has two of a name
            assert len({scope.name for scope in scopes}) == len(scopes)
        for scope in scopes:
            for revision in SYSTEMS[system].revisions:
                for limit in scope.limits if scope.belongs_to(revision) else ():
                    make_model(system, revision, {**scope.full_config, space.limit_key: limit})
