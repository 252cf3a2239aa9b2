"""Each admission constraint by itself, and the order in which they are asked."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.model.spyre import admission
from schedproof.model.spyre.config import SpyreConfig
from schedproof.model.spyre.revision import DOCUMENTED, RELEASE_2_1_2, REVISIONS, SOUND, Revision
from schedproof.model.spyre.state import Sequence, State
from schedproof.model.spyre.tkv import max_tkv

ALL = pytest.mark.parametrize("revision", REVISIONS.values(), ids=REVISIONS)
BLOCK = 4


def config(**changes: Any) -> SpyreConfig:
    roomy: dict[str, Any] = {
        "block_size": BLOCK,
        "chunk_size": 2 * BLOCK,
        "max_num_seqs": 4,
        "max_model_len": 64,
        "max_batch_tkv": 256,
    }
    return SpyreConfig(**(roomy | changes))


def decoding(name: str, computed: int, remaining: int) -> Sequence:
    """A request with a prompt of `computed` that has emitted its first token."""
    return Sequence(name, computed, remaining + 1, remaining + 1, computed, 1)


def waiting(prompt: int, max_tokens: int = 2) -> Sequence:
    return Sequence("new", prompt, max_tokens, max_tokens)


def batch(*members: Sequence, **changes: Any) -> State:
    tkv = max_tkv([one.computed for one in members if one.prefilled], BLOCK)
    return State(running=members, tkv=tkv, runner_tkv=tkv)._replace(**changes)


ONE = batch(decoding("old", 5, 10))


@ALL
def test_nothing_running_admits_without_further_checks(revision: Revision) -> None:
    tight = config(max_model_len=1, max_batch_tkv=1, num_blocks=1)
    assert admission.may_prefill(tight, revision, State(tkv=60), waiting(30, 30))


@ALL
def test_a_small_request_may_join(revision: Revision) -> None:
    assert admission.may_prefill(config(), revision, ONE, waiting(3))


@ALL
def test_no_second_prefill_step_in_a_row_while_something_decodes(revision: Revision) -> None:
    state = ONE._replace(last_step_was_prefill=True)
    assert not admission.may_prefill(config(), revision, state, waiting(3))
    assert admission.may_prefill(config(interleave=False), revision, state, waiting(3))


@ALL
def test_prefill_steps_follow_each_other_while_nothing_decodes(revision: Revision) -> None:
    ongoing = waiting(20)._replace(computed=4)
    state = batch(ongoing, last_step_was_prefill=True, tkv=20)
    assert admission.may_prefill(config(), revision, state, ongoing)


@ALL
def test_first_chunk_needs_a_free_slot(revision: Revision) -> None:
    assert not admission.may_prefill(config(max_num_seqs=1), revision, ONE, waiting(20))
    assert admission.may_prefill(config(max_num_seqs=2), revision, ONE, waiting(20))


@ALL
def test_first_chunk_needs_the_only_prefill_slot(revision: Revision) -> None:
    ongoing = Sequence("ongoing", 20, 2, 2, computed=4)
    state = batch(*ONE.running, ongoing)
    assert not admission.may_prefill(config(), revision, state, waiting(3))
    assert admission.may_prefill(config(), revision, state, ongoing)


@ALL
def test_last_chunk_needs_room_in_the_decode_batch(revision: Revision) -> None:
    ongoing = waiting(20)._replace(computed=12)
    members = (decoding("a", 5, 1), decoding("b", 5, 1))
    state = batch(*members, ongoing)
    assert not admission.satisfies_last_chunk(config(max_num_seqs=2), revision, state, ongoing)
    assert admission.satisfies_last_chunk(config(max_num_seqs=3), revision, state, ongoing)


@ALL
@pytest.mark.parametrize(("length", "fits"), [(26, False), (27, True)])
def test_a_long_prompt_must_not_push_the_old_beyond_max_model_len(
    revision: Revision, length: int, fits: bool
) -> None:
    # Realigned to block 16/4 = 4, the old one ends at 16 + 5 % 4 + 10 = 27.
    state, newcomer = ONE, waiting(16)
    limits = config(max_model_len=length, chunk_size=16)
    assert admission.fits_model_length(limits, 5, state.decoding, newcomer) is fits
    assert admission.may_prefill(limits, revision, state, newcomer) is fits


@pytest.mark.parametrize(("length", "fits"), [(19, False), (20, True)])
def test_a_wide_batch_must_not_push_the_newcomer_beyond_max_model_len(
    length: int, fits: bool
) -> None:
    # Realigned to block 13 // 4 = 3, the newcomer ends at 12 + 3 + 6 - 1 = 20.
    old = (decoding("old", 13, 1),)
    assert admission.fits_model_length(config(max_model_len=length), 13, old, waiting(3, 6)) is fits


@ALL
def test_the_volume_is_that_of_the_revisions_projection(revision: Revision) -> None:
    # All tkv terms (see test_volumetric): a shared decode of 2 requests, up to the newcomer's end.
    newcomer = waiting(3, 4)
    least = {"sound": 2 * 8, "documented": 2 * 10, "2.1.2": 2 * 16}[revision.name]
    for limit, fits in ((least - 1, False), (least, True)):
        limits = config(max_batch_tkv=limit)
        assert admission.fits_volume(limits, revision, 5, ONE.decoding, newcomer) is fits
        assert admission.may_prefill(limits, revision, ONE, newcomer) is fits


@ALL
def test_last_chunk_constraints_wait_for_the_last_chunk(revision: Revision) -> None:
    """A prompt of three chunks starts although its last chunk could not go."""
    newcomer = waiting(20, 40)
    tight = config(max_batch_tkv=60)
    assert not admission.satisfies_last_chunk(tight, revision, ONE, newcomer)
    assert admission.may_prefill(tight, revision, ONE, newcomer)
    begun = newcomer._replace(computed=12)
    state = ONE._replace(running=(*ONE.running, begun))
    assert not admission.may_prefill(tight, revision, state, begun)


def test_without_interleaving_2_1_2_checks_everything_once_at_the_first_chunk() -> None:
    tight = config(max_batch_tkv=64, interleave=False)
    newcomer = waiting(20, 40)
    assert not admission.may_prefill(tight, RELEASE_2_1_2, ONE, newcomer)
    assert admission.may_prefill(tight, DOCUMENTED, ONE, newcomer)
    begun = newcomer._replace(computed=12)
    state = ONE._replace(running=(*ONE.running, begun))
    assert admission.may_prefill(tight, RELEASE_2_1_2, state, begun)
    assert not admission.may_prefill(tight, DOCUMENTED, state, begun)


@ALL
def test_only_2_1_2_goes_by_the_tkv_that_was_last_reported(revision: Revision) -> None:
    stale = ONE._replace(tkv=40)
    expected = 40 if revision is RELEASE_2_1_2 else 5
    assert admission.current_tkv(config(), revision, stale) == expected


@pytest.mark.parametrize("revision", [SOUND, DOCUMENTED], ids=["sound", "documented"])
@pytest.mark.parametrize(("blocks", "fits"), [(6, False), (7, True)])
def test_a_bounded_pool_admits_what_it_can_hold_to_the_end(
    revision: Revision, blocks: int, fits: bool
) -> None:
    # The old one may still grow to 5 + 11 - 1 = 15 tokens: 4 blocks; the newcomer to 9: 3 blocks.
    limits = config(num_blocks=blocks)
    assert admission.may_prefill(limits, revision, ONE, waiting(6, 4)) is fits


def test_2_1_2_reserves_nothing() -> None:
    assert admission.may_prefill(config(num_blocks=6), RELEASE_2_1_2, ONE, waiting(6, 4))


@given(st.integers(1, 40), st.integers(1, 24))
def test_blocks_at_end_hold_all_but_the_last_token(prompt: int, max_tokens: int) -> None:
    """The last generated token is never computed."""
    held = admission.blocks_at_end(config(), waiting(prompt, max_tokens)) * BLOCK
    assert held - BLOCK < prompt + max_tokens - 1 <= held
