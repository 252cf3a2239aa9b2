"""Every chunk plan is right for any prompt, hit, block and chunk; what counts ahead is told."""

import random

import pytest
import z3

from schedproof.model.spyre import documented
from schedproof.model.spyre.config import SpyreConfig
from schedproof.model.spyre.model import REVISIONS
from schedproof.model.spyre.state import Sequence
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.solver.smt.numbers import Numbers, value_in
from schedproof.solver.smt.obligation import discharge
from schedproof.solver.spyre import chunk_lemmas
from schedproof.solver.spyre.chunk_lemmas import hit_on_uncomputed, obligations
from schedproof.spec.catalogue import load

SIZES = [(None, None), (64, 8), (64, None), (None, 8), (1, 1)]


def solved(numbers):
    solver = z3.Solver()
    solver.add(numbers.facts)
    assert solver.check() == z3.sat
    return solver.model()


def symbolic_plan(block, chunk_blocks, prompt, computed):
    numbers = Numbers()
    sizes = (z3.IntVal(block), z3.IntVal(chunk_blocks))
    return numbers, chunk_lemmas.plan(numbers, sizes, z3.IntVal(prompt), z3.IntVal(computed))


@pytest.mark.slow
@pytest.mark.parametrize(("block", "chunk_blocks"), SIZES)
def test_every_lemma_is_proven_and_guarded(block, chunk_blocks):
    found = {lemma.name: lemma.status for lemma in discharge(obligations(block, chunk_blocks))}
    assert found == dict.fromkeys(found, "proven")
    assert len(found) == len(obligations())


@pytest.mark.slow
def test_a_plan_is_the_one_of_the_model():
    for seed in range(60):
        chance = random.Random(seed)
        block, blocks = chance.randint(1, 5), chance.randint(1, 4)
        prompt = chance.randint(1, 12 * block)
        hit = chance.randint(0, (prompt - 1) // block)
        numbers, plan = symbolic_plan(block, blocks, prompt, hit * block)
        left = documented.left_padding_blocks(prompt, block * blocks, block)
        count = documented.chunk_count(prompt, block * blocks)
        usable = chunk_lemmas.usable_blocks(
            numbers, plan.padding, z3.IntVal(hit), plan.chunks, blocks
        )
        model = solved(numbers)
        assert value_in(model, plan.padding) == left
        assert value_in(model, plan.chunks) == count
        assert value_in(model, usable) == documented.usable_blocks(left, hit, count, blocks)
        assert (value_in(model, plan.start), value_in(model, plan.end)) == documented.next_chunk(
            prompt, hit * block, block * blocks, block
        )


@pytest.mark.slow
@pytest.mark.parametrize("release", ["2.1.2", "2.5.2"])
def test_what_is_counted_ahead_is_what_the_model_counts(release):
    revision = REVISIONS[release]
    for seed in range(60):
        chance = random.Random(seed)
        block, blocks = chance.randint(1, 5), chance.randint(1, 4)
        prompt = chance.randint(1, 12 * block)
        computed = chance.randint(0, (prompt - 1) // block) * block
        hit = chance.choice([computed, chance.randint(0, computed // block) * block])
        numbers, plan = symbolic_plan(block, blocks, prompt, computed)
        counted = chunk_lemmas.progress(plan, z3.IntVal(hit), release == "2.1.2")
        model = solved(numbers)
        config = SpyreConfig(block_size=block, chunk_size=block * blocks)
        sequence = Sequence("r0", prompt, 1, 1, computed=computed, prefix_hit=hit)
        expected = revision.progress(config, sequence, value_in(model, plan.end))
        assert tuple(value_in(model, number) for number in counted) == expected


@pytest.mark.slow
def test_a_plan_whose_padding_is_a_block_short_fails(monkeypatch):
    whole = chunk_lemmas.plan

    def short(numbers, sizes, prompt, computed, padding_more=0):
        return whole(numbers, sizes, prompt, computed, padding_more - 1)

    monkeypatch.setattr(chunk_lemmas, "plan", short)
    failed = {lemma.name for lemma in discharge(obligations(64, 8)) if lemma.status == "refuted"}
    assert "padding_is_less_than_a_chunk" in failed


@pytest.mark.parametrize(("block", "chunk_blocks"), [(1, 2), (64, 8)])
@pytest.mark.parametrize("release", ["2.1.2", "2.5.2"])
def test_blocks_that_were_counted_and_not_computed_are_hit(release, block, chunk_blocks):
    outcome = replay(ModelTarget(), hit_on_uncomputed(block, chunk_blocks, release), load("spyre"))
    assert outcome.broken[0].rule == "ALL-R08"
    hit, computed = (2 * chunk_blocks - 1) * block, chunk_blocks * block
    assert f"{hit} tokens from the cache, of which only {computed}" in outcome.broken[0].message


def test_the_revision_that_counts_what_it_computes_is_not_hit_ahead():
    outcome = replay(ModelTarget(), hit_on_uncomputed(64, 8, "sound"), load("spyre"))
    assert outcome.finished
    assert outcome.broken == []
