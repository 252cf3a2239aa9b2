"""No step spends more than its budget: by lemmas, and on every run of a few requests."""

from itertools import product

import pytest
import z3

from schedproof.model.vllm import scheduler
from schedproof.model.vllm.config import VllmConfig
from schedproof.model.vllm.kv_cache import blocks_for
from schedproof.solver.smt.numbers import Numbers, value_in
from schedproof.solver.smt.obligation import decide, discharge
from schedproof.solver.vllm.budget_lemmas import obligations
from schedproof.solver.vllm.symbols import blocks, capped, clamp
from schedproof.tests.solver.every_run import moves
from schedproof.tests.solver.vllm.runs import CONFIGS, TRIPLES, model_with, requests


@pytest.mark.parametrize("block", [None, 1, 16])
def test_every_lemma_is_proven_and_guarded(block):
    found = {lemma.name: lemma.status for lemma in discharge(obligations(block))}
    assert found == dict.fromkeys(found, "proven")


def test_the_clamp_is_the_one_of_the_model():
    for behind, threshold, budget in product(range(1, 5), range(4), range(1, 5)):
        config = VllmConfig(long_prefill_token_threshold=threshold)
        numbers = [z3.IntVal(number) for number in (behind, threshold, budget)]
        said = z3.simplify(clamp(*numbers)), z3.simplify(capped(*numbers[:2]))
        assert said[0].as_long() == scheduler.clamp(config, behind, budget)
        assert said[1].as_long() == scheduler.capped(config, behind)


@pytest.mark.parametrize("tokens", [1, 15, 16, 17, 32])
def test_blocks_are_those_of_the_model(tokens):
    for block in (1, 2, 16):
        numbers = Numbers()
        said = blocks(numbers, block, z3.IntVal(tokens))
        _, found = decide(numbers.facts)
        assert value_in(found, said) == blocks_for(tokens, block)


def plans(name):
    """Every decision in this configuration, with the state that it is taken in."""
    model = model_with(name)
    for kinds in TRIPLES:
        for move in moves(model, requests(kinds), aborts=False):
            yield model, move, scheduler.schedule(model.config, move.before)


def out_of_balance(model, plan):
    """What is scheduled and what is left are not the budget together, or one has no token."""
    spent, budget = sum(plan.scheduled.values()), model.config.max_num_batched_tokens
    return spent + plan.budget != budget or plan.budget < 0 or 0 in plan.scheduled.values()


@pytest.mark.parametrize("name", CONFIGS)
def test_the_invariant_holds_in_every_decision(name):
    for model, move, plan in plans(name):
        assert not out_of_balance(model, plan)
        assert len(plan.running) <= model.config.max_num_seqs
        assert all(request.num_uncomputed_tokens >= 1 for request in move.after.running)
        whole = {request.id: request.num_tokens for request in move.before.waiting}
        if not model.config.enable_chunked_prefill:
            assert all(plan.scheduled[n] == whole[n] for n in plan.scheduled.keys() & whole.keys())


def test_a_victim_may_have_been_scheduled_before():
    """By priority one that stands in front may give way, and its share comes back."""
    assert any(
        set(plan.preempted)
        & {request.id for request in move.before.running[: len(move.before.running) - 1]}
        and plan.scheduled
        for _, move, plan in plans("priority")
    )


def test_a_share_that_does_not_come_back_is_noticed(monkeypatch):
    gives_back = scheduler.preempt

    def keeps(config, plan, victim):
        return gives_back(config, plan, victim)._replace(budget=plan.budget)

    monkeypatch.setattr(scheduler, "preempt", keeps)
    assert any(out_of_balance(model, plan) for model, _, plan in plans("priority"))
