"""Blocks of requests: found in the cache, promised, held, given back. Block 4 throughout."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.model.errors import ReleaseEnded
from schedproof.model.pool import Pool
from schedproof.model.spyre import blocks
from schedproof.model.spyre.release_2_1_2 import RELEASE_2_1_2
from schedproof.model.spyre.release_2_5_2 import RELEASE_2_5_2
from schedproof.model.spyre.sound import SOUND
from schedproof.model.spyre.state import State

from .build import batch, config, decoding, waiting

CACHING = config(prefix_caching=True)
S4, S8 = (("s", 4),), (("s", 8),)


def test_a_release_ends_where_no_block_is_free():
    sequence = decoding("a", 4, 2, blocks=(1,))
    with pytest.raises(ReleaseEnded, match="no block is free for token 5 of a"):
        blocks.hold(config(), sequence, 5, Pool(1, (), 2))


def test_a_prompt_hits_what_is_cached_where_caching_is_on():
    state = State(pool=Pool(fresh=3, cached={S4: (2,), S8: (1,)}))
    newcomer = waiting(9, content=(("s", 9),))
    assert blocks.prefix_hit(CACHING, state, newcomer) == (2, 1)
    assert blocks.prefix_hit(config(), state, newcomer) == ()


def test_admitted_with_a_hit_a_request_holds_these_blocks_and_need_not_compute_them():
    pool = Pool(4, (), 5, ((3, None), (2, S4), (4, None)), {S4: (2,), S8: (1,)})
    newcomer = waiting(9, content=(("s", 9),))
    admitted, rest = blocks.admit(CACHING, State(pool=pool), newcomer)
    assert admitted == newcomer._replace(computed=8, prefix_hit=8, blocks=(2, 1), published=2)
    assert rest == pool._replace(tail=((3, None), (4, None)))


def test_admitted_without_a_hit_a_request_holds_nothing_yet():
    pool = Pool(4, (), 5, ((2, S4),), {S4: (2,)})
    newcomer = waiting(9)
    assert blocks.admit(CACHING, State(pool=pool), newcomer) == (newcomer, pool)


def test_blocks_in_use_are_those_of_running_and_paused_requests_shared_ones_once():
    state = State(
        waiting=(waiting(5),),
        running=(decoding("a", 5, 1, blocks=(1, 2)), decoding("b", 5, 1, blocks=(1, 4))),
        paused=(decoding("c", 5, 1, blocks=(5,)),),
    )
    assert blocks.in_use(state) == {1, 2, 4, 5}


@pytest.mark.parametrize(
    ("held", "covered", "expected"),
    [
        ((), 1, (1,)),
        ((), 4, (1,)),
        ((), 5, (1, 2)),
        ((9,), 4, (9,)),
        ((9,), 5, (9, 1)),
        ((9, 8), 3, (9, 8)),
    ],
)
def test_a_request_holds_blocks_for_the_tokens_covered(held, covered, expected):
    sequence, pool = blocks.hold(config(), waiting(20, blocks=held), covered, Pool())
    assert sequence == waiting(20, blocks=expected)
    assert pool == Pool(fresh=1 + len(expected) - len(held))


def test_blocks_that_fill_up_are_published_by_the_prefix_that_ends_with_them():
    prompt = waiting(14, content=(("s", 6), ("t", 8)))
    sequence, pool = blocks.hold(CACHING, prompt, 11, Pool())
    assert (sequence.blocks, sequence.published) == ((1, 2, 3), 2)
    s6t2 = (("s", 6), ("t", 2))
    assert pool == Pool(fresh=4, cached={S4: (1,), s6t2: (2,)})
    # The third block fills up; the fourth is begun.
    more, pool = blocks.hold(CACHING, sequence, 14, pool)
    assert (more.blocks, more.published) == ((1, 2, 3, 4), 3)
    s6t6 = (("s", 6), ("t", 6))
    assert pool == Pool(fresh=5, cached={S4: (1,), s6t2: (2,), s6t6: (3,)})


def test_a_block_is_published_once():
    sequence, pool = blocks.hold(CACHING, waiting(9, content=(("s", 9),)), 8, Pool())
    assert blocks.hold(CACHING, sequence, 8, pool) == (sequence, pool)
    more, pool = blocks.hold(CACHING, sequence, 9, pool)
    assert (more.published, pool.cached) == (2, {S4: (1,), S8: (2,)})


def test_what_was_published_stays_so_where_fewer_tokens_are_covered():
    sequence, pool = blocks.hold(CACHING, waiting(9, content=(("s", 9),)), 8, Pool())
    assert blocks.hold(CACHING, sequence, 4, pool) == (sequence, pool)


def test_a_block_filled_while_decoding_holds_the_tokens_generated_by_then():
    """Prompt 3 and the first token: four, when the second is computed a fifth is still to come."""
    sequence = decoding("a", 3, 9, content=(("s", 3),), blocks=(1,))
    full, pool = blocks.hold(CACHING, sequence, 4, Pool(fresh=2))
    assert full.published == 1
    assert pool.cached == {(("s", 3), ("out:a", 1)): (1,)}


def test_without_caching_nothing_is_published():
    sequence, pool = blocks.hold(config(), waiting(8), 8, Pool())
    assert (sequence.published, pool.cached) == (0, {})


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "computed_ones", "all_tokens"),
    [(5, 1, 2, 2), (5, 3, 2, 2), (5, 4, 2, 3), (5, 5, 3, 3), (8, 1, 2, 3), (1, 4, 1, 2)],
)
def test_at_the_end_a_request_holds_all_but_its_last_token_which_2_5_2_counts_too(
    prompt, max_tokens, computed_ones, all_tokens
):
    sequence = waiting(prompt, max_tokens)
    assert SOUND.blocks_at_end(config(), sequence) == computed_ones
    assert RELEASE_2_5_2.blocks_at_end(config(), sequence) == all_tokens


@given(st.integers(1, 40), st.integers(1, 24), st.integers(1, 5))
def test_the_blocks_at_the_end_are_those_that_a_run_to_the_end_takes(prompt, max_tokens, block):
    """The prompt, then a token in each of max_tokens - 1 decode steps."""
    sizes = config(block_size=block, chunk_size=block)
    sequence, pool = blocks.hold(sizes, waiting(prompt, max_tokens), prompt, Pool())
    for step in range(1, max_tokens):
        sequence, pool = blocks.hold(sizes, sequence, prompt + step, pool)
    assert blocks.blocks_at_end(sizes, sequence) == len(sequence.blocks) == pool.fresh - 1


def test_reserved_are_the_blocks_promised_to_the_admitted_and_not_held_yet():
    """5 + 8 tokens, the last never computed: 3 blocks, of which 2 are held; 3 + 2: 1, held."""
    running = (decoding("a", 5, 7, blocks=(1, 2)), decoding("b", 3, 1, blocks=(3,)))
    state = batch(*running)._replace(waiting=(waiting(30),))
    assert blocks.reserved(config(), SOUND, state) == 1
    # The last token counts: 4 blocks and 2.
    assert blocks.reserved(config(), RELEASE_2_5_2, state) == 3
    # A request that is paused keeps what was promised; what is lost stays so.
    paused = state._replace(running=running[1:], paused=running[:1], lost_blocks=5)
    assert blocks.reserved(config(), SOUND, paused) == 1 + 5


@pytest.mark.parametrize(("size", "fits"), [(6, False), (7, True)])
def test_a_newcomer_needs_free_blocks_that_are_not_promised(size, fits):
    """2 blocks held and 2 more promised; 6 + 4 - 1 = 9 tokens need 3."""
    state = batch(decoding("old", 5, 10, blocks=(1, 2)), pool=Pool(size, fresh=3))
    newcomer = waiting(6, 4)
    assert blocks.fits_pool(config(num_blocks=size), SOUND, state, newcomer) is fits
    unreserved = replace(SOUND, fits_pool=RELEASE_2_1_2.fits_pool)
    assert unreserved.fits_pool(config(num_blocks=size), unreserved, state, newcomer)
    endless = state._replace(pool=Pool(fresh=3))
    assert blocks.fits_pool(config(num_blocks=None), SOUND, endless, newcomer)


@pytest.mark.parametrize(("size", "lost", "fits"), [(7, 0, False), (8, 0, True), (8, 1, False)])
def test_what_is_promised_to_someone_who_is_paused_or_gone_is_not_free(size, lost, fits):
    """Paused: 2 blocks held and 2 promised; running: 1 held. Wanted: 3."""
    a, b = decoding("a", 3, 1, blocks=(3,)), decoding("b", 5, 10, blocks=(1, 2))
    state = State(running=(a,), paused=(b,), pool=Pool(size, fresh=4), lost_blocks=lost)
    assert blocks.fits_pool(config(num_blocks=size), SOUND, state, waiting(6, 4)) is fits


def test_cached_blocks_that_others_hold_are_not_needed_again_free_ones_are():
    """12 + 1 - 1 tokens: 3 blocks, the first two of them cached."""
    cached = {S4: (1,), S8: (2,)}
    newcomer = waiting(12, 1, content=(("s", 12),))
    sizes = config(prefix_caching=True, num_blocks=3)
    both = decoding("a", 8, 0, content=S8, blocks=(1, 2), published=2)
    shared = batch(both, pool=Pool(3, fresh=3, cached=cached))
    assert blocks.fits_pool(sizes, SOUND, shared, newcomer)
    # The second is free: with it and the third, two are needed of two.
    first = decoding("a", 4, 0, content=S4, blocks=(1,), published=1)
    one_free = batch(first, pool=Pool(3, fresh=3, tail=((2, S8),), cached=cached))
    assert blocks.fits_pool(sizes, SOUND, one_free, newcomer)
    third = decoding("b", 4, 0, blocks=(3,))
    taken = one_free._replace(running=(first, third), pool=one_free.pool._replace(fresh=4))
    assert not blocks.fits_pool(sizes, SOUND, taken, newcomer)
    free = State(pool=Pool(3, fresh=3, tail=((2, S8), (1, S4)), cached=cached))
    assert blocks.fits_pool(sizes, SOUND, free, newcomer)
    assert not blocks.fits_pool(sizes, SOUND, free._replace(lost_blocks=1), newcomer)


def test_the_last_block_is_given_back_first():
    """For a release that appends to its free list, so that it is handed out again first."""
    state = State(pool=Pool(size=9, fresh=8))
    rest = blocks.release(config(), RELEASE_2_1_2, state, waiting(9, blocks=(5, 7, 6)))
    assert rest == Pool(size=9, fresh=8, tail=((6, None), (7, None), (5, None)))


def test_blocks_that_were_published_can_still_be_found_the_begun_one_cannot():
    cached = {S4: (1,), S8: (2,)}
    sequence = decoding("a", 8, 3, content=S8, blocks=(1, 2, 3), published=2)
    state = State(pool=Pool(size=9, fresh=4, cached=cached))
    rest = blocks.release(CACHING, SOUND, state, sequence)
    assert rest == Pool(9, head=(3,), fresh=4, tail=((2, S8), (1, S4)), cached=cached)
    bounded = State(pool=Pool(size=4, fresh=4, cached=cached))
    rest = blocks.release(CACHING, RELEASE_2_1_2, bounded, sequence)
    assert rest == Pool(size=4, fresh=4, tail=((3, None), (2, S8), (1, S4)), cached=cached)


def test_without_a_bound_no_block_is_kept_to_be_handed_out_again():
    cached = {S4: (1,), S8: (2,)}
    sequence = decoding("a", 8, 3, content=S8, blocks=(1, 2, 3), published=2)
    rest = blocks.release(
        CACHING, RELEASE_2_1_2, State(pool=Pool(fresh=4, cached=cached)), sequence
    )
    assert rest == Pool(fresh=4, cached=cached)


def test_without_caching_all_blocks_are_nameless():
    sequence = decoding("a", 8, 3, content=S8, blocks=(1, 2, 3))
    assert blocks.release(config(), SOUND, State(), sequence) == Pool(head=(3, 2, 1))


def test_blocks_that_others_hold_stay_in_use():
    cached = {S4: (1,), S8: (2,)}
    state = State(
        running=(decoding("b", 4, 3, blocks=(1, 5)),),
        paused=(decoding("c", 8, 3, blocks=(1, 2, 6)),),
        pool=Pool(fresh=7, cached=cached),
    )
    sequence = decoding("a", 8, 3, content=S8, blocks=(1, 2, 3), published=2)
    rest = blocks.release(CACHING, SOUND, state, sequence)
    assert rest == Pool(head=(3,), fresh=7, cached=cached)


def test_generated_tokens_are_part_of_the_name_of_a_block_given_back():
    """Prompt 3 and one token fill the block; by now three were generated."""
    name = (("s", 3), ("out:a", 1))
    sequence = decoding("a", 3, 9, content=(("s", 3),), blocks=(1, 2), published=1, generated=3)
    state = State(pool=Pool(9, fresh=3, cached={name: (1,)}))
    rest = blocks.release(CACHING, SOUND, state, sequence._replace(computed=5))
    assert rest == Pool(9, head=(2,), fresh=3, tail=((1, name),), cached={name: (1,)})
