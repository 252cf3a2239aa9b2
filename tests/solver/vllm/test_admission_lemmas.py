"""No request is admitted who could not finish alone, and no request that could is kept out: by
lemmas, and on every run of a few requests."""

from itertools import product

import pytest
import z3
from msgspec.structs import replace

from schedproof.model.pool import Pool, free_blocks
from schedproof.model.target import ModelTarget
from schedproof.model.vllm import kv_cache
from schedproof.model.vllm.config import VllmConfig
from schedproof.model.vllm.kv_cache import blocks_for
from schedproof.model.vllm.state import Sequence
from schedproof.properties.checking.replay import replay
from schedproof.properties.shrinking.shrink import simpler_requests
from schedproof.solver.smt.numbers import Numbers, value_in
from schedproof.solver.smt.obligation import decide, discharge
from schedproof.solver.vllm.admission_lemmas import gate, obligations
from schedproof.solver.vllm.anomalies import KNOBS, Lengths, anomaly, shares
from schedproof.tests.solver.every_run import moves
from schedproof.tests.solver.vllm.runs import CONFIGS, TRIPLES, model_with, requests


@pytest.mark.slow
@pytest.mark.parametrize("block", [None, 1, 16])
def test_every_lemma_is_proven_and_guarded(block):
    found = {lemma.name: lemma.status for lemma in discharge(obligations(block))}
    assert found == dict.fromkeys(found, "proven")


def asked_of_the_model(known, hit, idle, free, tokens, whole):
    """Blocks left after the admission of a request with `known` tokens, None if it is refused.

    Blocks have two tokens, one block is kept back, and `free` blocks are free, `idle` of the `hit`
    cached ones among them.
    """
    content = (("p", known),)
    cached = {(("p", 2 * number),): (100 + number,) for number in range(1, hit + 1)}
    tail = [(blocks[0], content) for content, blocks in cached.items()][:idle]
    fresh = free - idle
    pool = Pool(fresh, (), 1, tuple(tail), cached)
    config = VllmConfig(block_size=2, num_blocks=10, watermark=0.1, reserve_full_isl=whole)
    request = Sequence("r", known, 9, 9, content=content)
    blocks = tuple(block for (block,) in cached.values())
    found = kv_cache.admit(config, pool, request, blocks, tokens, True)
    return None if found is None else free_blocks(found[1])


def asked_of_z3(known, hit, idle, free, tokens, whole):
    numbers = Numbers()
    it = gate(numbers, 2, z3.BoolVal(whole))
    given = (
        it.request.prompt == known,
        it.request.generated == 0,
        it.free == free,
        it.reserve == 1,
    )
    given += (it.hit == hit, it.idle == idle, it.tokens == tokens)
    _, found = decide([*numbers.facts, *given])
    assert found is not None
    return value_in(found, it.left) if z3.is_true(found.eval(it.passes)) else None


@pytest.mark.slow
@pytest.mark.parametrize("whole", [True, False])
def test_the_gate_is_the_one_of_the_model(whole):
    refused = 0
    for known, hit, free, tokens in product((1, 3, 4, 6), range(3), range(5), range(1, 4)):
        if 2 * hit + tokens > known:
            continue
        for idle in range(min(hit, free) + 1):
            asked = (known, hit, idle, free, tokens, whole)
            assert asked_of_z3(*asked) == asked_of_the_model(*asked), asked
            refused += asked_of_z3(*asked) is None
    assert refused


@pytest.mark.parametrize("name", CONFIGS)
def test_nobody_holds_more_than_the_door_asked_for_and_nobody_is_stuck(name):
    model = model_with(name)
    alone = blocked = 0
    for kinds in TRIPLES:
        for before, seen, after in moves(model, requests(kinds), aborts=False):
            for request in after.running:
                assert len(request.blocks) <= blocks_for(request.prompt + request.max_tokens - 1, 2)
            if len(before.running) == 1:
                alone += 1
                assert before.running[0].id in seen["scheduled"]
            if before.waiting and not before.running:
                blocked += 1
                assert before.waiting[0].id in seen["scheduled"]
    assert alone
    assert blocked


@pytest.mark.parametrize("name", ["watermark", "cache"])
def test_admissions_beside_others_leave_the_reserve_and_room_for_the_rest(name):
    model = model_with(name, pool=6)
    reserve, checked = model.config.watermark_blocks, 0
    for kinds in TRIPLES:
        for before, seen, after in moves(model, requests(kinds), aborts=False):
            ran = {request.id for request in before.running}
            new = [request for request in after.running if request.id not in ran]
            if ran and len(new) == 1 and not seen["finished"]:
                rest = blocks_for(new[0].num_tokens, 2) - len(new[0].blocks)
                checked += 1
                # A token that it has emitted since may need a block of its own.
                emitted = seen["emitted"].get(new[0].id, 0)
                assert free_blocks(after.pool) >= reserve + rest - emitted
    assert checked


CASES = {
    "max_num_seqs": (((1, 1), (1, 3), (1, 2)), 4, (3, 2)),
    "max_num_batched_tokens": (((1, 2), (2, 1)), 3, (3, 2)),
    "watermark": (((2, 1), (1, 2), (1, 2)), 3, (0.0, 0.375)),
}


@pytest.fixture(scope="module", params=KNOBS)
def found(request):
    return request.param, anomaly(request.param)


def preemptions(scenario):
    """How often a request is preempted in a run that ends, seen by the requests' client."""
    outcome = replay(ModelTarget(), scenario, ())
    assert outcome.finished
    assert not outcome.session.rejected
    return sum(request.preemptions for request in outcome.session.monitor.history.requests.values())


def test_the_knob_alone_differs_and_the_second_run_preempts_more(found):
    knob, (few, more) = found
    asked, blocks, values = CASES[knob]
    assert few.requests == more.requests
    assert tuple((request.prompt_len, request.max_tokens) for request in few.requests) == asked
    assert [request.config[knob] for request in (few, more)] == list(values)
    assert few.config == {**more.config, knob: few.config[knob], "num_blocks": blocks}
    assert (preemptions(few), preemptions(more)) == (0, 1)


def test_nothing_simpler_shows_the_same(found):
    _, pair = found
    requests = pair.few.requests
    candidates = [requests[:n] + requests[n + 1 :] for n in range(len(requests))]
    for n, request in enumerate(requests):
        for plainer in simpler_requests(request, 1):
            candidates.append((*requests[:n], plainer, *requests[n + 1 :]))
    for simpler in candidates:
        counts = [preemptions(replace(number, requests=simpler)) for number in pair if simpler]
        assert counts[0] >= counts[1]


def test_every_way_to_share_tokens_comes_once():
    ways = list(shares(5, 2))
    assert len(set(ways)) == len(ways) == 4
    assert all(sum(map(sum, way)) == 5 for way in ways)
    assert list(shares(3, 1)) == [(Lengths(1, 2),), (Lengths(2, 1),)]
    assert list(shares(3, 2)) == []
