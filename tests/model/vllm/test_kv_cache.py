"""Blocks of requests: found in the cache, given, refused, published, given back. Block 4."""

import pytest

from schedproof.model.pool import Pool, take
from schedproof.model.vllm import kv_cache

from .build import config, decoding, pool, waiting

CACHING = config(enable_prefix_caching=True)
S4, S8, S12 = ((("s", tokens),) for tokens in (4, 8, 12))


def saying(tokens):
    """A waiting request whose prompt are the first tokens of the stream s."""
    return waiting(tokens, content=(("s", tokens),))


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_a_block_that_is_begun_is_a_whole_one(tokens, blocks):
    assert kv_cache.blocks_for(tokens, 4) == blocks


@pytest.mark.parametrize(
    ("tokens", "hit"), [(4, ()), (5, (7,)), (8, (7,)), (9, (7, 5)), (12, (7, 5)), (13, (7, 5, 6))]
)
def test_a_hit_ends_before_the_last_token(tokens, hit):
    cache = Pool(fresh=8, cached={S4: (7,), S8: (5,), S12: (6,)})
    assert kv_cache.prefix_hit(CACHING, cache, saying(tokens)) == hit
    assert kv_cache.prefix_hit(config(), cache, saying(tokens)) == ()


def test_what_a_request_has_generated_is_found_as_well():
    """Prompt 6, three tokens generated: two blocks are full before the last token."""
    sequence = waiting(6, name="a", generated=3)
    cache = Pool(fresh=3, cached={(("a", 4),): (1,), (("a", 6), ("out:a", 2)): (2,)})
    assert kv_cache.prefix_hit(CACHING, cache, sequence) == (1, 2)
    assert kv_cache.prefix_hit(CACHING, cache, sequence._replace(generated=2)) == (1,)


@pytest.mark.parametrize(
    ("free", "tokens", "blocks"),
    [(0, 3, (1, 2)), (0, 4, None), (1, 4, (1, 2, 3)), (1, 7, (1, 2, 3)), (1, 8, None)],
)
def test_a_running_request_gets_the_blocks_that_it_lacks_or_nothing(free, tokens, blocks):
    """Five tokens in two blocks: three more fit, the fourth needs a third block."""
    sequence = decoding("a", 5, 1, 2)
    grown = kv_cache.grow(config(), pool(2 + free, 2), sequence, tokens)
    if blocks is None:
        assert grown is None
    else:
        assert grown == (sequence._replace(blocks=blocks), pool(2 + free, len(blocks)))


def test_the_watermark_is_not_for_running_requests():
    limits = config(num_blocks=3, watermark=0.4)
    assert limits.watermark_blocks == 1
    assert kv_cache.grow(limits, pool(3, 2), decoding("a", 8, 1, 2), 1) is not None


def test_without_a_bound_there_is_always_a_block():
    assert kv_cache.fits(pool(None, 5), 10**6)
    assert kv_cache.fits(pool(5, 3), 2)
    assert not kv_cache.fits(pool(5, 3), 3)


def admitted(prompt, tokens, free, someone_runs=True, **changes):
    """Whether a request without a hit is admitted beside five held blocks."""
    limits = config(num_blocks=free + 5, **changes)
    room = kv_cache.admit(limits, pool(free + 5, 5), waiting(prompt), (), tokens, someone_runs)
    return room is not None


@pytest.mark.parametrize(("prompt", "fits"), [(8, True), (9, False)])
def test_the_watermark_is_kept_from_newcomers_as_soon_as_somebody_runs(prompt, fits):
    """Four blocks free, two of them to be kept: eight tokens fit, a ninth does not."""
    assert admitted(prompt, prompt, 4, True, watermark=0.25) is fits
    assert admitted(prompt, prompt, 4, False, watermark=0.25)
    assert admitted(prompt, prompt, 4, True, watermark=0.0)


def test_with_nobody_running_the_last_block_is_given():
    assert admitted(16, 16, 4, False, watermark=0.25)
    assert not admitted(17, 17, 4, False, watermark=0.25)


@pytest.mark.parametrize(("prompt", "fits"), [(16, True), (17, False)])
def test_the_full_sequence_gate_asks_for_all_that_is_known_not_for_this_chunk(prompt, fits):
    """Four blocks free, a chunk of four tokens."""
    assert admitted(prompt, 4, 4, reserve_full_isl=True) is fits
    assert admitted(prompt, 4, 4, reserve_full_isl=False)
    assert admitted(prompt, 16, 4, reserve_full_isl=False)
    assert not admitted(17, 17, 4, reserve_full_isl=False)


def test_what_passes_the_gate_holds_blocks_for_its_chunk_only():
    sequence = waiting(16)
    room = kv_cache.admit(config(), pool(9, 5), sequence, (), 5, True)
    assert room == (sequence._replace(blocks=(6, 7)), pool(9, 7))


def cached_pool(size, held, tail):
    """A pool with the first two blocks of the stream s cached in blocks 2 and 1."""
    return Pool(size, (), held + 1, tail, {S4: (2,), S8: (1,)})


def test_admitted_with_a_hit_a_request_has_computed_it_and_holds_its_blocks():
    cache = cached_pool(4, 3, ((1, S8), (2, S4)))
    room = kv_cache.admit(CACHING, cache, saying(10), (2, 1), 2, False)
    assert room is not None
    expected = saying(10)._replace(computed=8, prefix_hit=8, blocks=(2, 1, 4), published=2)
    assert room == (expected, cache._replace(fresh=5, tail=()))


@pytest.mark.parametrize(("size", "fits"), [(2, False), (3, True)])
def test_hit_blocks_that_nobody_holds_are_needed_like_others(size, fits):
    """Two free blocks are hit, the rest of ten tokens needs a third."""
    cache = cached_pool(size, 2, ((1, S8), (2, S4)))
    room = kv_cache.admit(CACHING, cache, saying(10), (2, 1), 2, False)
    assert (room is not None) is fits
    assert kv_cache.unheld(cache, (2, 1)) == 2


@pytest.mark.parametrize(("size", "fits"), [(2, False), (3, True)])
def test_hit_blocks_that_somebody_holds_are_not_needed(size, fits):
    cache = cached_pool(size, 2, ())
    room = kv_cache.admit(CACHING, cache, saying(10), (2, 1), 2, False)
    assert (room is not None) is fits
    assert kv_cache.unheld(cache, (2, 1)) == 0


def test_blocks_that_the_step_fills_are_found_from_then_on():
    prompt = waiting(14, content=(("s", 6), ("t", 8)))
    sequence, cache = kv_cache.hold(CACHING, Pool(), prompt, 11)
    assert (sequence.blocks, sequence.published) == ((1, 2, 3), 2)
    s6t2 = (("s", 6), ("t", 2))
    assert cache == Pool(fresh=4, cached={S4: (1,), s6t2: (2,)})
    # The third block fills up; the fourth is begun.
    more, cache = kv_cache.hold(CACHING, cache, sequence._replace(computed=11), 3)
    assert (more.blocks, more.published) == ((1, 2, 3, 4), 3)
    assert cache.cached == {S4: (1,), s6t2: (2,), (("s", 6), ("t", 6)): (3,)}


def test_nothing_is_published_twice_and_a_hit_not_at_all():
    sequence = saying(10)._replace(computed=8, blocks=(2, 1), published=2)
    cache = cached_pool(9, 2, ())
    held, after = kv_cache.hold(CACHING, cache, sequence, 2)
    assert (held.published, after.cached) == (2, cache.cached)


def test_without_caching_nothing_is_published():
    sequence, after = kv_cache.hold(config(), Pool(), waiting(8), 8)
    assert (sequence.blocks, sequence.published, after.cached) == ((1, 2), 0, {})


def test_what_nobody_can_find_is_free_first_the_last_block_in_front():
    sequence = decoding("a", 9, 1, 2, 3)
    assert kv_cache.free(config(), pool(4, 3), sequence, (sequence,)) == Pool(4, (3, 2, 1), 4)


def test_cached_blocks_are_evicted_in_the_order_of_release_the_end_of_a_prompt_first():
    """a: blocks 1 and 2 full, 3 begun; b: block 4 full."""
    a = decoding("a", 9, 1, 2, 3, content=(("s", 9),), published=2)
    b = decoding("b", 5, 4, 5, published=1)
    b4 = (("b", 4),)
    cache = Pool(6, (), 6, (), {S4: (1,), S8: (2,), b4: (4,)})
    after = kv_cache.free(CACHING, cache, a, (a, b))
    assert after == cache._replace(head=(3,), tail=((2, S8), (1, S4)))
    after = kv_cache.free(CACHING, after, b, (b,))
    assert after == cache._replace(head=(5, 3), tail=((2, S8), (1, S4), (4, b4)))
    assert take(after, 6)[0] == (5, 3, 6, 2, 1, 4)
    # A prompt that lost its end is still found up to there.
    assert kv_cache.prefix_hit(CACHING, take(after, 4)[1], saying(9)) == (1,)


def test_a_block_that_is_hit_again_is_the_last_to_be_evicted():
    cached = {S4: (2,), S8: (1,), S12: (3,)}
    cache = Pool(5, (5,), 6, ((1, S8), (2, S4), (3, S12)), cached)
    room = kv_cache.admit(CACHING, cache, saying(5), (2,), 1, False)
    assert room is not None
    sequence, in_use = room
    assert (sequence.blocks, in_use.tail) == ((2, 5), ((1, S8), (3, S12)))
    after = kv_cache.free(CACHING, in_use, sequence._replace(computed=5), ())
    assert (after.head, after.tail) == ((5,), ((1, S8), (3, S12), (2, S4)))


def test_shared_blocks_stay_with_who_holds_them_until_the_last():
    a = decoding("a", 5, 1, 2, content=(("s", 5),), published=1)
    b = decoding("b", 5, 1, 3, content=(("s", 5),), published=1)
    cache = Pool(3, (), 4, (), {S4: (1,)})
    after = kv_cache.free(CACHING, cache, a, (a, b))
    assert after == cache._replace(head=(2,))
    assert kv_cache.free(CACHING, after, b, (b,)) == cache._replace(head=(3, 2), tail=((1, S4),))


def test_a_block_that_the_step_was_to_fill_is_not_found_when_its_request_gives_up():
    """Three tokens computed, the fourth only scheduled: block 1 was published and is not full."""
    sequence = waiting(3, name="a", computed=3, generated=1, blocks=(1,))
    held, cache = kv_cache.hold(CACHING, pool(4, 1), sequence, 1)
    assert held.published == 1
    assert list(cache.cached.values()) == [(1,)]
    after = kv_cache.free(CACHING, cache, held, (held,))
    assert after == Pool(4, (1,), 2, (), {})
    # Once it is computed, it is.
    done = held._replace(computed=4)
    name = (("a", 3), ("out:a", 1))
    assert kv_cache.free(CACHING, cache, done, (done,)) == Pool(
        4, (), 2, ((1, name),), {name: (1,)}
    )


def test_of_several_blocks_that_the_step_was_to_fill_none_is_found():
    """A chunk of eight behind four computed tokens fills two blocks, and never runs."""
    sequence = saying(16)._replace(computed=4, blocks=(1,), published=1)
    held, cache = kv_cache.hold(CACHING, pool(4, 1)._replace(cached={S4: (1,)}), sequence, 8)
    assert list(cache.cached) == [S4, S8, S12]
    after = kv_cache.free(CACHING, cache, held, (held,))
    assert dict(after.cached) == {S4: (1,)}
