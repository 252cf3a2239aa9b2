"""Paths become scenarios."""

import gc
from dataclasses import replace

import pytest

from schedproof.model.observation import Step
from schedproof.model.scenario import Request
from schedproof.model.systems import full_config, make_model, resolve_revision
from schedproof.properties.history.run_history import RunHistory
from schedproof.solver.exploration.exploration import Exploration, ExploreOptions, scenario_of
from schedproof.solver.exploration.models import Stepped
from schedproof.solver.exploration.scheduler_space import (
    WASTE_IN_LINE,
    SchedulerSpace,
    Wait,
    group_by_step,
    never_ends,
    waits_too_long,
)
from schedproof.solver.exploration.scope import lengths, menu_of
from schedproof.solver.exploration.undecided import OWN, RequestMenu
from schedproof.solver.spyre.space import SCOPES
from schedproof.solver.systems import explored_systems, proofs_of, space_of
from schedproof.spec.catalogue import load, select
from schedproof.tests.mutants.checkups import checkup

ITEMS = [
    Request(id="a", arrival=0, prompt=((OWN, 3),), max_tokens=2),
    Request(id="b", arrival=0, prompt=((OWN, 3),), max_tokens=5),
    Request(id="c", arrival=0, prompt=((OWN, 9),), max_tokens=5),
]


def scenario(path, member=0, accepted=(0b11, 0b11, 0b10)):
    menu = RequestMenu(ITEMS, accepted)
    return scenario_of(path, menu, member, "spyre", "sound", {"max_batch_tkv": 40})


def test_requests_arrive_before_the_step_that_follows():
    path = [("arrive", "r0", 1), ("step", None, ()), ("step", None, ()), ("arrive", "r1", 2)]
    assert [(request.id, request.arrival) for request in scenario(path).requests] == [
        ("r0", 0),
        ("r1", 2),
    ]


def test_what_was_chosen_is_what_the_request_has():
    path = [("arrive", "r0", 0b111), ("choose", "r0", 0b011), ("choose", "r0", 0b010)]
    [request] = scenario(path).requests
    assert (request.prompt, request.max_tokens, request.output_len) == ((("r0", 3),), 5, 5)


def test_who_ends_early_has_generated_what_the_path_shows():
    path = [
        ("arrive", "r0", 0b010),
        ("step", None, (("r0", 0b010, False),)),
        ("step", None, (("r0", 0b010, True),)),
    ]
    [request] = scenario(path).requests
    assert (request.max_tokens, request.output_len) == (5, 2)


def test_aborts_are_in_their_step():
    path = [
        ("arrive", "r0", 1),
        ("arrive", "r1", 1),
        ("arrive", "r2", 1),
        ("step", ("r0", True), ()),
        ("step", ("r1", False), ()),
        ("give up", "r2"),
    ]
    aborted = [(request.abort_at, request.abort_inside) for request in scenario(path).requests]
    assert aborted == [(0, True), (1, False), (2, False)]


def test_what_nobody_looked_at_is_something_that_the_configuration_takes():
    path = [("arrive", "r0", 0b110)]
    assert scenario(path, 0, (0b11, 0b10, 0b01)).requests[0].prompt_len == 9
    assert scenario(path, 1, (0b11, 0b10, 0b01)).requests[0].prompt_len == 3


def test_a_request_is_as_important_as_the_menu_says():
    menu = RequestMenu(
        [Request(id="a", arrival=0, prompt=((OWN, 1),), max_tokens=1, priority=3)], [1]
    )
    found = scenario_of([("arrive", "r0", 1)], menu, 0, "vllm", "documented", {})
    assert [request.priority for request in found.requests] == [3]


def test_configurations_that_decide_alike_are_together():
    asked: list[int] = []

    def at(member):
        asked.append(member)
        return Stepped(None, {"fits": member >= 5}, True)

    assert [*group_by_step(tuple(range(8)), at)] == [(0, 1, 2, 3), (4,), (5,), (6, 7)]
    assert asked.count(2) == 0


def test_configurations_that_do_not_read_the_limit_are_asked_once():
    asked: list[int] = []

    def at(member):
        asked.append(member)
        return Stepped(None, {}, False)

    assert [*group_by_step((3, 4, 5), at)] == [(3, 4, 5)]
    assert asked == [3]


def garbage_of(exploration: Exploration) -> int:
    """Number of unreachable objects that only the garbage collector frees after `exploration`."""
    gc.collect()
    gc.disable()
    try:
        for _ in exploration.search.run():
            pass
        return gc.collect()
    finally:
        gc.enable()


@pytest.mark.slow
def test_a_step_leaves_nothing_for_the_garbage_collector():
    scope = replace(SCOPES[0], requests=2, limits=tuple(range(6, 41)))
    garbage = []
    for _ in range(2):  # the first may drop what an earlier test left in a cache
        run = Exploration(ExploreOptions("2.1.2", scope), select(load("spyre"), ["SPY-R07"]))
        garbage.append(garbage_of(run))
    assert run.search.transitions > 1_000
    assert min(garbage) < run.search.transitions / 100


SYSTEMS = explored_systems()


def test_every_length_comes_with_every_answer():
    assert lengths((1, 3), (2, 5)) == [
        (((OWN, 1),), 2),
        (((OWN, 1),), 5),
        (((OWN, 3),), 2),
        (((OWN, 3),), 5),
    ]


def test_a_menu_knows_who_is_taken_where_and_how_important_it_is():
    models = [make_model("vllm", "documented", {"num_blocks": blocks}) for blocks in (1, 2)]
    menu = menu_of([(((OWN, 16),), 1), (((OWN, 17),), 1, -1)], models)
    assert menu.accepted == (0b11, 0b10)
    assert [item.priority for item in menu.items] == [0, -1]
    assert [part.priority for part in menu.everything.split("priority")] == [0, -1]
    assert menu.everything.priority is None


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_has_what_the_engines_ask_for(system):
    assert isinstance(proofs_of(system), dict)
    assert space_of(system).limit_key in full_config(system, resolve_revision(system, None), {})
    assert space_of(system).limit_name
    for scope in (*space_of(system).scopes, *checkup(system)):
        assert scope.system == system
        assert space_of(system).limit_key not in scope.full_config
        assert list(scope.limits) == sorted(set(scope.limits))


@pytest.mark.parametrize("system", SYSTEMS)
def test_configurations_begin_together_if_their_first_states_are_equal(system):
    scope = space_of(system).scopes[0]
    revision = resolve_revision(system, None)
    models = space_of(system).models(revision, scope.full_config, scope.limits, None)
    space = SchedulerSpace(models, models.menu(scope.menu), 1, {}, revision)
    roots = space.roots()
    together = [members for _, members in roots]
    if system == "spyre":
        assert together == [(1 << len(scope.limits)) - 1]
    else:
        assert together == [1 << number for number in range(len(scope.limits))]
    assert all(node.history.system == system for node, _ in roots)
    first = models.configs[0][space_of(system).limit_key]
    assert roots[0][0].history.config[space_of(system).limit_key] == first


ORDER = {"r0": 0, "r1": 1, "r2": 2}
IDLE = Step(kind="idle", scheduled={})


@pytest.fixture
def history():
    """r0 decodes; r1 and r2 wait."""
    history = RunHistory(full_config("spyre", "sound", {}), "sound", "spyre")
    for name in ORDER:
        history.accept(Request(id=name, arrival=0, prompt=((name, 3),), max_tokens=4))
    history.observe(Step(kind="prefill", scheduled={"r0": 3}, emitted={"r0": 1}))
    return history


def test_a_step_that_computes_something_for_who_came_before_is_not_wasted(history):
    step = Step(kind="decode", scheduled={"r0": 1})
    assert Wait("r1", 2, 1).after(history, step, ORDER) == Wait("r1", 2, 1)


def test_an_idle_step_is_wasted_for_all(history):
    assert Wait("r1", 2, 1).after(history, IDLE, ORDER) == Wait("r1", 3, 2)


def test_a_step_for_who_came_later_is_wasted_for_the_first_in_line(history):
    step = Step(kind="prefill", scheduled={"r2": 3})
    assert Wait("r1", 0, 0).after(history, step, ORDER) == Wait("r1", 1, 0)


def test_who_is_scheduled_waits_no_longer(history):
    step = Step(kind="prefill", scheduled={"r1": 3})
    assert Wait("r1", 3, 1).after(history, step, ORDER) == Wait(None, 0, 1)


def test_another_head_begins_anew(history):
    assert Wait("r0", 3, 0).after(history, IDLE, ORDER) == Wait("r1", 1, 1)


def test_nothing_is_wasted_on_nobody():
    history = RunHistory(full_config("spyre", "sound", {}), "sound", "spyre")
    assert Wait().after(history, IDLE, {}) == Wait()


def test_the_bounds_of_waiting():
    assert waits_too_long(Wait("r1", WASTE_IN_LINE - 1, 0)) is None
    assert "r1" in waits_too_long(Wait("r1", WASTE_IN_LINE, 0))
    assert never_ends(Wait(None, 0, 7), 3) is None
    assert "8 steps" in never_ends(Wait(None, 0, 8), 3)
