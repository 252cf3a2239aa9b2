"""The differences of release 2.1.2: no promises, and a tkv that it remembers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.model.pool import Pool, prefix
from schedproof.model.spyre import documented, release_2_1_2
from schedproof.model.spyre.release_2_1_2 import RELEASE_2_1_2
from schedproof.model.spyre.state import State

from .build import BLOCK, batch, batches, chunk, config, decoding, only, waiting

OLD = decoding("old", 11, 9)
CACHING = config(prefix_caching=True)
S = (("s", 40),)
S4, S8 = prefix(S, 4), prefix(S, 8)


def test_2_1_2_reserves_nothing():
    state = batch(
        decoding("old", 5, 10, blocks=(1, 2)), waiting=(waiting(6, 4),), pool=Pool(2, fresh=3)
    )
    assert RELEASE_2_1_2.candidate(config(num_blocks=2), RELEASE_2_1_2, state) == waiting(6, 4)


def test_without_a_promise_the_whole_prompt_must_fit_and_what_others_hold_of_it_is_there():
    cached = {S4: (1,), S8: (2,)}
    newcomer = waiting(9, content=(("s", 9),))
    assert not release_2_1_2.fits_prompt(config(), State(pool=Pool(2)), newcomer)
    assert release_2_1_2.fits_prompt(config(), State(pool=Pool(3)), newcomer)
    assert release_2_1_2.fits_prompt(config(), State(), newcomer)
    one_free = Pool(3, (), 3, (), cached)  # blocks 1 and 2 are held
    assert release_2_1_2.fits_prompt(CACHING, State(pool=one_free), newcomer)
    both_cached_free = Pool(3, (), 4, ((2, S8), (1, S4)), cached)  # free ones are taken, too
    assert not release_2_1_2.fits_prompt(CACHING, State(pool=both_cached_free), newcomer)


@only("2.1.2")
@pytest.mark.parametrize(
    ("computed", "members", "tkv"),
    [
        # Not the last chunk: the tkv of the last forward,
        (0, (OLD,), 13),
        (4, (OLD,), 13),
        (4, (), 13),
        # unless it is the first and nothing decodes.
        (0, (), 18),
        # The last: blocks 5 and 4, offsets 2 and 1: the newcomer's.
        (12, (OLD,), 18),
        (12, (), 18),
    ],
)
def test_up_to_2_3_a_chunk_reports_the_old_tkv_until_the_last(revision, computed, members, tkv):
    sequence = waiting(18, computed=computed, blocks=(1, 2, 3)[: computed // BLOCK])
    state = State(running=members, tkv=7, runner_tkv=13)
    if computed:
        state = state._replace(running=(*members, sequence))
    after, shown = chunk(revision, state, sequence)
    assert (shown.tkv, after.tkv, after.runner_tkv) == (tkv, tkv, tkv)


@pytest.mark.parametrize(
    ("prompt", "runner_tkv", "tkv"),
    [
        # Blocks 2 and 4: the batch decides the block, the larger offset the place in it.
        (5, 14, 14),
        (7, 14, 15),
        (8, 14, 16),
        # Blocks 2 and 1.
        (5, 4, 8),
        (5, 3, 7),
        (6, 2, 6),
    ],
)
def test_up_to_2_3_a_last_chunk_reports_the_batch_that_it_makes(prompt, runner_tkv, tkv):
    state = State(running=(decoding("old", 2, 9),), runner_tkv=runner_tkv)
    assert chunk(RELEASE_2_1_2, state, waiting(prompt))[1].tkv == tkv


def test_up_to_2_3_a_first_chunk_counts_anew_whatever_is_cached():
    """Nothing decodes: 9 although 8 are found; not the 13 of before."""
    names = {prefix(S, 4): (1,), prefix(S, 8): (2,)}
    newcomer = waiting(9, content=(("s", 9),))
    state = State(waiting=(newcomer,), runner_tkv=14, pool=Pool(fresh=3, cached=names))
    _, computed = chunk(RELEASE_2_1_2, state, newcomer, config(prefix_caching=True))
    assert computed.tkv == 9


@given(batches(), st.integers(1, 500))
def test_the_tkv_reported_after_a_last_chunk_is_that_of_the_batch_with_the_prompt(batch, prompt):
    reported = release_2_1_2.tkv_after_last_chunk(prompt, documented.max_tkv(*batch), batch.block)
    assert reported == documented.max_tkv([*batch.lengths, prompt], batch.block)
