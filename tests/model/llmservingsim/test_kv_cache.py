"""Blocks of requests: given or refused, published, given back. Block 4."""

import pytest

from schedproof.model.llmservingsim import kv_cache
from schedproof.model.pool import Pool

from .build import config, decoding, pool, waiting

CACHING = config(enable_prefix_caching=True)
S4, S8 = ((("s", tokens),) for tokens in (4, 8))


@pytest.mark.parametrize(
    ("free", "tokens", "blocks"),
    [
        *((0, 4, (1, 2)), (0, 5, None), (1, 5, (1, 2, 3)), (1, 8, (1, 2, 3))),
        *((1, 9, None), (2, 9, (1, 2, 3, 4))),
    ],
)
def test_a_running_request_gets_the_blocks_that_it_lacks_or_nothing(free, tokens, blocks):
    """Four tokens of a prompt are computed in its first block, the second one is empty."""
    sequence = waiting(20, computed=4, blocks=(1, 2))
    grown = kv_cache.grow(config(), pool(2 + free, 2), sequence, tokens)
    if blocks is None:
        assert grown is None
    else:
        assert grown == (sequence._replace(blocks=blocks), pool(2 + free, len(blocks)))


@pytest.mark.parametrize(("free", "fits"), [(1, False), (2, True)])
def test_who_has_a_single_block_needs_the_others_as_well(free, fits):
    sequence = waiting(20, computed=4, blocks=(1,))
    grown = kv_cache.grow(config(), pool(1 + free, 1), sequence, 8)
    assert (grown is not None) is fits


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


def test_without_caching_nothing_is_published():
    sequence, after = kv_cache.hold(config(), Pool(), waiting(8), 8)
    assert (sequence.blocks, sequence.published, after.cached) == ((1, 2), 0, {})


def saying_s(name, *blocks):
    """A request of nine tokens of the stream s, two full blocks of which are published."""
    return decoding(name, 9, *blocks, content=(("s", 9),), published=2)


def test_blocks_come_back_behind_all_that_are_free_the_last_one_first():
    """One that no request can find by its content is no exception."""
    sequence = saying_s("a", 1, 2, 3)
    before = Pool(5, (), 6, ((5, None), (4, (("t", 4),))))
    after = kv_cache.free(CACHING, before, sequence, (sequence,))
    assert after == before._replace(tail=(*before.tail, (3, None), (2, S8), (1, S4)))


def test_what_was_never_published_has_no_name():
    sequence = decoding("a", 9, 1, 2, 3)
    assert kv_cache.free(config(), pool(3, 3), sequence, ()).tail == (
        (3, None),
        (2, None),
        (1, None),
    )


def test_a_block_that_any_other_one_holds_stays_in_use():
    """Whatever the others are called."""
    sequence = saying_s("b", 1, 2, 3)
    for other in "ac":
        sharer = saying_s(other, 1, 2, 4)
        assert kv_cache.free(CACHING, pool(4, 4), sequence, (sequence, sharer)).tail == ((3, None),)
