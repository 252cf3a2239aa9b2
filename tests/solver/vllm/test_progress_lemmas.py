"""Requests never block each other forever: by lemmas, and on every run of a few requests."""

from itertools import product

import pytest
import z3

from schedproof.model.vllm import queue
from schedproof.model.vllm.config import VllmConfig
from schedproof.model.vllm.state import Sequence
from schedproof.solver.smt.obligation import discharge
from schedproof.solver.vllm.progress_lemmas import before, obligations, rank
from schedproof.tests.solver.every_run import moves
from schedproof.tests.solver.vllm.runs import CONFIGS, TRIPLES, model_with, requests


@pytest.mark.parametrize("block", [None, 1, 16])
def test_every_lemma_is_proven_and_guarded(block):
    found = {lemma.name: lemma.status for lemma in discharge(obligations(block))}
    assert found == dict.fromkeys(found, "proven")


def test_the_order_is_the_one_of_the_model():
    config = VllmConfig(policy="priority")
    for first, second in product(product((0, 1), (0, 1, 2)), repeat=2):
        if first[1] == second[1]:
            continue  # no two arrive at the same place
        members = [
            Sequence(name, 1, 1, 1, priority=priority, arrival=arrival)
            for name, (priority, arrival) in (("a", first), ("b", second))
        ]
        terms = [tuple(z3.IntVal(number) for number in item) for item in (first, second)]
        last = queue.victim(config, tuple(members)).id
        assert z3.is_true(z3.simplify(before(*terms))) == (last == "b")


@pytest.mark.parametrize("name", CONFIGS)
def test_whoever_is_first_computes_and_nobody_comes_before_another(name):
    model = model_with(name)
    by_priority = model.config.policy == "priority"
    for kinds in TRIPLES:
        for earlier, seen, later in moves(model, requests(kinds), aborts=False):
            if not earlier.running and not earlier.waiting:
                continue
            assert by_priority or seen["scheduled"]
            if not earlier.running:
                continue
            first = earlier.running[0].id
            assert (first in seen["scheduled"]) != (first in seen["preempted"])
            most = min(earlier.running, key=queue.importance)
            kept = most if by_priority else earlier.running[0]
            assert kept.id not in seen["preempted"]
            ran = [request.id for request in earlier.running]
            runs = [request.id for request in later.running]
            still = [name for name in ran if name in runs]
            assert runs[: len(still)] == still


@pytest.mark.parametrize("name", [name for name, given in CONFIGS.items() if "policy" not in given])
def test_each_step_lowers_the_rank_of_every_request_that_goes_on_waiting(name):
    model = model_with(name)
    falls = 0
    for kinds in TRIPLES:
        for earlier, seen, later in moves(model, requests(kinds), aborts=True):
            places = {request.id: place for place, request in enumerate(later.waiting)}
            for place, request in enumerate(earlier.waiting):
                if request.id in places and request.id not in seen["scheduled"]:
                    assert rank(later, places[request.id]) < rank(earlier, place)
                    falls += 1
    assert falls


def test_a_step_in_which_the_first_is_its_own_victim_computes_nothing_and_the_next_one_does():
    model = model_with("priority", pool=3)
    idle = 0
    for _, seen, after in moves(model, requests(["lowly", "short"]), aborts=False):
        if seen["preempted"] and not seen["scheduled"]:
            idle += 1
            assert seen["preempted"] == ["r0"]
            assert [request.id for request in after.running] == ["r1"]
            assert model.step(after)[1]["scheduled"]
    assert idle
