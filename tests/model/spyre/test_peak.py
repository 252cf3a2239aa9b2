"""The exact check is the largest volume of any step, and nothing published is below it."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.model.spyre import documented
from schedproof.model.spyre.peak import (
    accepts_exactly,
    accepts_rounded,
    peak_volume,
    rounded_volume,
)
from schedproof.model.spyre.volumetric import FORMULAS, Decoding, Newcomer, accepts


def by_steps(decoding, newcomer, block):
    """Every decode step of the newcomer, one after the other."""
    all_requests = [(sequence.computed, sequence.remaining) for sequence in decoding]
    all_requests.append((newcomer.prompt, newcomer.remaining))
    largest = 0
    for step in range(1, newcomer.remaining + 1):
        lengths = [tokens + step for tokens, remaining in all_requests if remaining >= step]
        largest = max(largest, len(lengths) * documented.max_tkv(lengths, block))
    return largest


def batch(seed, block):
    chance = random.Random(seed)
    members = [
        Decoding(chance.randint(1, 5 * block), chance.randint(1, 4 * block), 0)
        for _ in range(chance.randint(0, 6))
    ]
    return members, Newcomer(chance.randint(1, 5 * block), chance.randint(1, 4 * block + 1))


@pytest.mark.parametrize("block", [1, 2, 3, 4, 8, 64])
def test_the_peak_is_the_largest_volume_of_any_step(block):
    for seed in range(300):
        decoding, newcomer = batch(seed, block)
        assert peak_volume(decoding, newcomer, block) == by_steps(decoding, newcomer, block), seed


@given(
    decoding=st.lists(
        st.builds(Decoding, st.integers(1, 300), st.integers(0, 300), st.just(0)), max_size=8
    ),
    newcomer=st.builds(Newcomer, st.integers(1, 300), st.integers(1, 300)),
    block=st.sampled_from([1, 2, 4, 16, 64]),
)
def test_the_peak_is_the_largest_volume_for_any_batch(decoding, newcomer, block):
    assert peak_volume(decoding, newcomer, block) == by_steps(decoding, newcomer, block)


def test_who_never_decodes_has_no_peak():
    assert peak_volume([Decoding(100, 50, 100)], Newcomer(100, 1), 64) == 0


def test_the_limit_itself_is_accepted_and_one_token_less_is_not():
    decoding, newcomer = [Decoding(100, 50, 100)], Newcomer(60, 30)
    peak = peak_volume(decoding, newcomer, 64)
    assert accepts_exactly(decoding, newcomer, 64, peak)
    assert not accepts_exactly(decoding, newcomer, 64, peak - 1)


@pytest.mark.parametrize("name", ["common_base", "2.1.2"])
def test_a_sound_formula_accepts_no_more_than_fits_and_refuses_some_that_do(name):
    needless = 0
    for seed in range(400):
        decoding, newcomer = batch(seed, 8)
        # The limit is kept before the newcomer joins: what it adds is asked.
        alone = newcomer.prompt + newcomer.remaining
        limit = max(by_steps(decoding, newcomer, 8) - seed % 24, alone)
        current = documented.max_tkv([sequence.computed for sequence in decoding], 8)
        yes = accepts(FORMULAS[name](current, decoding, newcomer, 8), limit)
        fits = accepts_exactly(decoding, newcomer, 8, limit)
        assert fits or not yes, (seed, limit)
        needless += fits and not yes
    assert needless > 0


@pytest.mark.parametrize("block", [1, 2, 8, 64])
def test_rounding_to_blocks_adds_less_than_a_block_for_each(block):
    rounded_up = 0
    for seed in range(300):
        decoding, newcomer = batch(seed, block)
        peak = peak_volume(decoding, newcomer, block)
        above = rounded_volume(decoding, newcomer, block) - peak
        assert 0 <= above < (len(decoding) + 1) * block, seed
        rounded_up += above > 0
    assert rounded_up > 0 or block == 1


def test_rounding_accepts_from_its_own_volume_on():
    # 130 and 80 tokens after 30 steps: three blocks of 64 for both; then 150 alone.
    decoding, newcomer = [Decoding(100, 50, 100)], Newcomer(50, 31)
    assert rounded_volume(decoding, newcomer, 64) == 384
    assert accepts_rounded(decoding, newcomer, 64, 384)
    assert accepts_rounded(decoding, newcomer, 64, 500)
    assert not accepts_rounded(decoding, newcomer, 64, 383)
    assert rounded_volume(decoding, Newcomer(50, 1), 64) == 0
