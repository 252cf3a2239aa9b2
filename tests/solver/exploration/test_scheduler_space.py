"""Configurations are grouped by their decision, and a step creates no cyclic garbage."""

import gc
from dataclasses import replace

from schedproof.solver.exploration.exploration import Exploration, ExploreOptions
from schedproof.solver.exploration.models import Stepped
from schedproof.solver.exploration.scheduler_space import alike
from schedproof.solver.spyre.scopes import SCOPES
from schedproof.spec.catalogue import load, select


def test_configurations_that_decide_alike_are_together():
    asked: list[int] = []

    def at(member: int) -> Stepped:
        asked.append(member)
        return Stepped(None, {"fits": member >= 5}, True)

    assert [*alike(tuple(range(8)), at)] == [(0, 1, 2, 3), (4,), (5,), (6, 7)]
    assert asked.count(2) == 0


def test_configurations_that_do_not_read_the_limit_are_asked_once():
    asked: list[int] = []

    def at(member: int) -> Stepped:
        asked.append(member)
        return Stepped(None, {}, False)

    assert [*alike((3, 4, 5), at)] == [(3, 4, 5)]
    assert asked == [3]


def test_a_step_leaves_nothing_for_the_garbage_collector():
    scope = replace(SCOPES[0], requests=2, limits=tuple(range(6, 41)))
    run = Exploration(ExploreOptions("2.1.2", scope), select(load("spyre"), ["SPY-R07"]))
    gc.collect()
    gc.disable()
    try:
        for _ in run.search.run():
            pass
        garbage = gc.collect()
    finally:
        gc.enable()
    assert run.search.transitions > 1_000
    assert garbage < run.search.transitions / 100
