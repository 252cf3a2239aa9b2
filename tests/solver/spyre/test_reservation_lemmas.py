"""No more blocks are promised than are free: by lemmas, and on every run of a few requests."""

from dataclasses import replace
from itertools import product

import pytest

from schedproof.model.pool import blocks_for, free_blocks
from schedproof.model.scenario import Request
from schedproof.model.spyre import blocks
from schedproof.model.spyre.model import REVISIONS
from schedproof.model.spyre.sound import SOUND
from schedproof.model.systems import make_model
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.solver.smt.obligation import discharge
from schedproof.solver.spyre.reservation_lemmas import never_admitted, obligations
from schedproof.spec.catalogue import load
from schedproof.tests.solver.every_run import moves

# Prompts that share a block or more, one of them with what another has generated: the segments of
# the prompt, max_tokens, and tokens until it ends.
KINDS = {
    "short": ((("p", 3),), 4, 4),
    "prefix": ((("p", 4),), 4, 3),
    "fork": ((("p", 2), ("q", 2)), 3, 3),
    "goes on": ((("p", 3), ("out:r0", 2)), 3, 2),
    "other": ((("q", 4),), 4, 4),
}
PAIRS = list(product(["short", "prefix", "fork", "goes on"], repeat=2))
# In the last one a hit may be on blocks that no request holds, while another has a promise.
TRIPLES = [*product(["short", "prefix"], repeat=3), ("prefix", "other", "prefix")]


def requests(kinds):
    return [
        Request(id=f"r{number}", arrival=0, prompt=prompt, max_tokens=tokens, output_len=ends)
        for number, (prompt, tokens, ends) in enumerate(KINDS[kind] for kind in kinds)
    ]


def pooled(revision, pool):
    config = {"block_size": 2, "chunk_size": 2, "max_num_seqs": 3, "max_model_len": 8}
    config |= {"max_batch_tkv": 24, "interleave": False}
    return make_model("spyre", revision, {**config, "num_blocks": pool, "prefix_caching": True})


def slack(state, model):
    """Blocks that are free and promised to no request."""
    return free_blocks(state.pool) - blocks.reserved(model.config, model.revision, state)


@pytest.mark.parametrize("block", [None, 1, 64])
def test_every_lemma_is_proven_and_guarded(block):
    found = {lemma.name: lemma.status for lemma in discharge(obligations(block))}
    assert found == dict.fromkeys(found, "proven")


@pytest.mark.slow
@pytest.mark.parametrize("pool", [6])
@pytest.mark.parametrize("revision", ["sound", "2.5.2"])
def test_the_invariant_holds_whoever_arrives_leaves_or_shares(revision, pool):
    model = pooled(revision, pool)
    shared = binds = False
    for kinds in PAIRS + TRIPLES:
        for _, _, state in moves(model, requests(kinds)):
            held = [block for request in state.admitted for block in request.blocks]
            shared = shared or len(set(held)) < len(held)
            binds = binds or slack(state, model) == 0
            assert slack(state, model) >= 0
            assert len(set(held)) + free_blocks(state.pool) == pool
            for request in state.admitted:
                assert len(request.blocks) <= model.revision.blocks_at_end(model.config, request)
                assert len(request.blocks) >= blocks_for(request.computed, 2)
    assert shared
    assert binds


def test_exploring_finds_who_takes_all_hits_off_the_need(monkeypatch):
    def careless(config, revision, state, newcomer):
        hits = len(blocks.prefix_hit(config, state, newcomer))
        needed = revision.blocks_at_end(config, newcomer) - hits
        promised = blocks.reserved(config, revision, state)
        return needed <= free_blocks(state.pool) - promised

    monkeypatch.setitem(REVISIONS, "sound", replace(SOUND, fits_pool=careless))
    model = pooled("sound", 7)
    assert any(slack(state, model) < 0 for _, _, state in moves(model, requests(TRIPLES[-1])))


@pytest.mark.parametrize("scale", [(1, 2, 1), (64, 512, 512)])
def test_a_request_that_fills_the_pool_is_never_admitted_by_the_model_of_the_release(scale):
    scenario = never_admitted(*scale)
    outcome = replay(ModelTarget(), scenario, load("spyre"))
    assert [violation.rule for violation in outcome.broken] == ["SPY-R38", "SPY-R35"]
    model = make_model("spyre", "2.5.2", scenario.config)
    state, _ = model.step(model.arrive(model.initial(), scenario.requests[0]))
    assert model.step(state)[0] == state
