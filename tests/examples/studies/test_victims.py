"""Victim policies: what a rebuild would cost, who is picked, and that every request ends."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.examples.studies.recompute_model import run
from schedproof.examples.studies.victims import POLICIES, cheapest, rebuild_cold, rebuild_warm
from schedproof.examples.studies.workloads import ENGINE, WORKLOADS, workload
from schedproof.model.scenario import Request
from schedproof.model.vllm.config import VllmConfig
from schedproof.model.vllm.model import VllmModel
from schedproof.model.vllm.queue import Plan

BLOCK = 16
COLD = next(policy for policy in POLICIES if policy.name == "cold")


def plan_of(*prompts, config=ENGINE):
    """All of these run and have emitted a token."""
    model = VllmModel(config)
    state = model.initial()
    for number, prompt in enumerate(prompts):
        state = model.arrive(
            state, Request(id=f"r{number}", arrival=0, prompt=prompt, max_tokens=99)
        )
    state, _ = model.step(state)
    return Plan(state.running, state.waiting, state.pool, 0, {})


def costs(rebuild, plan, config=ENGINE):
    return [rebuild(config, plan, sequence) for sequence in plan.running]


SHARED = plan_of(
    (("system", 32), ("r0", 8)),  # 41 tokens, two blocks of them r2's as well
    (("r1", 20),),  # 21 tokens, one full block
    (("system", 32), ("r2", 9)),  # 42 tokens
)


def test_cold_counts_what_nobody_else_holds():
    assert costs(rebuild_cold, SHARED) == [41 - 32, 21, 42 - 32]


def test_warm_counts_what_no_full_block_has():
    assert costs(rebuild_warm, SHARED) == [41 - 32, 21 - 16, 42 - 32]


def test_without_a_prefix_cache_everything_is_rebuilt():
    config = VllmConfig(num_blocks=400, enable_prefix_caching=False)
    plan = plan_of((("system", 40),), (("system", 20),), config=config)
    assert costs(rebuild_cold, plan, config) == costs(rebuild_warm, plan, config) == [41, 21]


def test_the_last_token_is_rebuilt_even_where_all_blocks_are_cached():
    # 31 tokens of the prompt and the one emitted fill two blocks; the second is not computed yet.
    plan = plan_of((("r0", 31),))
    assert costs(rebuild_warm, plan) == [16]


def test_the_cheapest_is_picked():
    assert cheapest(rebuild_cold)(ENGINE, SHARED).id == "r2"
    assert cheapest(rebuild_warm)(ENGINE, SHARED).id == "r1"


def test_where_it_is_a_tie_the_tail_goes():
    plan = plan_of(*([((f"own{n}", 20),) for n in range(4)]))
    assert cheapest(rebuild_cold)(ENGINE, plan).id == "r3"


def test_the_eldest_stays_though_it_is_the_cheapest_wherever_it_stands():
    plan = plan_of((("r0", 5),), (("r1", 50),), (("r2", 40),))
    for running in (plan.running, plan.running[::-1]):
        assert cheapest(rebuild_cold)(ENGINE, plan._replace(running=running)).id == "r2"


def test_the_eldest_goes_when_it_is_alone():
    plan = plan_of((("r0", 5),))
    assert cheapest(rebuild_cold)(ENGINE, plan) is plan.running[0]


def watched(policy, look):
    """The policy, with a look at each plan and victim."""

    def pick(config, plan):
        victim = policy.pick(config, plan)
        look(config, plan, victim)
        return victim

    return policy._replace(pick=pick)


SMALL = VllmConfig(block_size=4, num_blocks=12, max_num_seqs=8, max_num_batched_tokens=16)
REQUESTS = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 12), st.integers(1, 15), st.integers(1, 20)),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("policy", POLICIES, ids=[policy.name for policy in POLICIES])
@given(requested=REQUESTS)
def test_under_every_policy_every_request_ends_with_all_its_tokens(policy, requested):
    picks: Counter[str] = Counter()

    def look(config, plan, victim):
        picks[victim.id] += 1
        assert picks.total() < 1000, "nothing progresses"
        if policy.name in ("warm", "cold"):
            eldest = min(sequence.arrival for sequence in plan.running)
            assert victim.arrival > eldest or len(plan.running) == 1

    load = workload(
        "random",
        "",
        [
            (arrival, (*((("system", shared),) if shared else ()), (f"own{n}", own)), output)
            for n, (arrival, shared, own, output) in enumerate(sorted(requested))
        ],
    )
    steps = run(SMALL, load, watched(policy, look))
    emitted: Counter[str] = Counter()
    for seen in steps:
        emitted.update(seen["emitted"])
    assert emitted == {request.id: request.max_tokens for request in load.requests}
    assert sum(len(seen["preempted"]) for seen in steps) == picks.total()


def test_what_a_decode_frees_is_what_it_rebuilds_but_for_a_block():
    # By the cold reckoning no request is a bargain: one that is cheap to rebuild frees as little.
    seen = []

    def look(config, plan, victim):
        for sequence in plan.running:
            if sequence.num_uncomputed_tokens == 1 and sequence.id not in plan.scheduled:
                kept = {b for other in plan.running if other is not sequence for b in other.blocks}
                freed = sum(block not in kept for block in sequence.blocks)
                again = rebuild_cold(config, plan, sequence) - 1
                assert 0 <= BLOCK * freed - again < BLOCK
                seen.append(freed)

    for load in WORKLOADS:
        if load.name == "half-shared":
            run(ENGINE, load, watched(COLD, look))
    assert len(set(seen)) > 20
