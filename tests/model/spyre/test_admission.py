"""Each admission constraint by itself, the order in which they are asked, and of whom."""

from dataclasses import replace

import pytest

from schedproof.model.pool import Pool
from schedproof.model.prefix import prefix
from schedproof.model.spyre import documented
from schedproof.model.spyre.documented import DOCUMENTED
from schedproof.model.spyre.release_2_1_2 import RELEASE_2_1_2
from schedproof.model.spyre.release_2_5_2 import RELEASE_2_5_2
from schedproof.model.spyre.revision import Revision
from schedproof.model.spyre.sound import SOUND
from schedproof.model.spyre.state import Sequence, State
from schedproof.model.spyre.volumetric import ByFormula, document_own_tkv

from .build import ALL, BLOCK, batch, config, decoding, only, waiting

# Of these the checks of the page count; 2.5.2 pauses instead.
NO_PAUSING = only("sound", "documented", "2.1.2")
OLD = decoding("old", 5, 10)
ONE = batch(OLD)


def begun(prompt: int, computed: int, max_tokens: int = 2) -> Sequence:
    """A request between two of its chunks."""
    return waiting(prompt, max_tokens, computed=computed)


# --- priority --------------------------------------------------------------------------------


@ALL
def test_nothing_running_admits_without_further_checks(revision: Revision) -> None:
    tight = config(max_model_len=1, max_batch_tkv=1, max_num_seqs=1)
    state = State(tkv=60, last_step_was_prefill=True)
    assert documented.may_prefill(tight, revision, state, waiting(30, 30))


@ALL
def test_only_2_5_2_forgets_who_is_paused_when_nobody_runs(revision: Revision) -> None:
    forgets = revision is RELEASE_2_5_2
    state = State(paused=(OLD,))
    assert documented.may_prefill(config(), revision, state, waiting(3)) is forgets


@ALL
def test_a_small_request_may_join(revision: Revision) -> None:
    assert documented.may_prefill(config(), revision, ONE, waiting(3))


@ALL
def test_nothing_prefills_while_someone_is_paused(revision: Revision) -> None:
    state = ONE._replace(paused=(decoding("paused", 5, 10),))
    assert not documented.may_prefill(config(), revision, state, waiting(3))
    going_on = state._replace(running=(*state.running, begun(20, 4)))
    assert not documented.may_prefill(config(), revision, going_on, begun(20, 4))


@ALL
def test_no_second_prefill_step_in_a_row_while_something_decodes(revision: Revision) -> None:
    state = ONE._replace(last_step_was_prefill=True)
    assert not documented.may_prefill(config(), revision, state, waiting(3))
    assert documented.may_prefill(config(interleave=False), revision, state, waiting(3))


@ALL
def test_prefill_steps_follow_each_other_while_nothing_decodes(revision: Revision) -> None:
    ongoing = begun(20, 4)
    state = batch(ongoing, last_step_was_prefill=True, tkv=20)
    assert documented.may_prefill(config(), revision, state, ongoing)


# --- first chunk -----------------------------------------------------------------------------


@ALL
def test_first_chunk_needs_a_free_slot(revision: Revision) -> None:
    assert not documented.may_prefill(config(max_num_seqs=1), revision, ONE, waiting(20))
    assert documented.may_prefill(config(max_num_seqs=2), revision, ONE, waiting(20))


@ALL
def test_first_chunk_needs_the_only_prefill_slot(revision: Revision) -> None:
    ongoing = begun(20, 4)
    state = batch(*ONE.running, ongoing._replace(id="ongoing"))
    assert not documented.may_prefill(config(), revision, state, waiting(3))
    assert not documented.satisfies_first_chunk(config(), state)
    assert documented.may_prefill(config(), revision, state, ongoing)


@ALL
def test_slots_are_for_who_runs_be_it_in_its_prefill(revision: Revision) -> None:
    """The ongoing prefill takes a slot itself, and needs none for its next chunk."""
    ongoing = begun(20, 4)
    state = batch(*ONE.running, ongoing)
    assert not documented.satisfies_first_chunk(config(max_num_seqs=2), state)
    assert documented.may_prefill(config(max_num_seqs=2), revision, state, ongoing)


@ALL
def test_who_is_one_too_many_already_leaves_no_slot_and_no_room_either(revision: Revision) -> None:
    """No run gets there; the limit is one all the same."""
    state = batch(decoding("a", 5, 1), decoding("b", 5, 1))
    one_slot = config(max_num_seqs=1)
    assert not documented.satisfies_first_chunk(one_slot, state)
    assert not documented.satisfies_last_chunk(one_slot, revision, state, waiting(3))


# --- last chunk ------------------------------------------------------------------------------


@ALL
def test_last_chunk_needs_room_in_the_decode_batch(revision: Revision) -> None:
    ongoing = begun(20, 12)
    members = (decoding("a", 5, 1), decoding("b", 5, 1))
    state = batch(*members, ongoing)
    for slots, room in ((2, False), (3, True)):
        limits = config(max_num_seqs=slots)
        assert documented.satisfies_last_chunk(limits, revision, state, ongoing) is room
        assert documented.may_prefill(limits, revision, state, ongoing) is room


@NO_PAUSING
@pytest.mark.parametrize(("length", "fits"), [(26, False), (27, True)])
def test_a_long_prompt_must_not_push_the_old_beyond_max_model_len(
    revision: Revision, length: int, fits: bool
) -> None:
    # Realigned to block 16/4 = 4, the old one ends at 16 + 5 % 4 + 10 = 27.
    state, newcomer = ONE, waiting(16)
    limits = config(max_model_len=length, chunk_size=16)
    assert documented.fits_model_length(limits, 5, state.decoding, newcomer) is fits
    assert documented.may_prefill(limits, revision, state, newcomer) is fits


@pytest.mark.parametrize(("length", "fits"), [(19, False), (20, True)])
def test_a_wide_batch_must_not_push_the_newcomer_beyond_max_model_len(
    length: int, fits: bool
) -> None:
    # Realigned to block 13 // 4 = 3, the newcomer ends at 12 + 3 + 6 - 1 = 20.
    old = (decoding("old", 13, 1),)
    assert (
        documented.fits_model_length(config(max_model_len=length), 13, old, waiting(3, 6)) is fits
    )


def test_everyone_who_decodes_must_stay_within_max_model_len() -> None:
    """Realigned to block 13 // 4 = 3 they end at 13 + 2 = 15, 12 + 2 + 9 = 23, 12 + 3 + 1 = 16."""
    old = (decoding("a", 13, 2), decoding("b", 6, 9), decoding("c", 3, 1))
    assert documented.fits_model_length(config(max_model_len=23), 13, old, waiting(3, 2))
    assert not documented.fits_model_length(config(max_model_len=22), 13, old, waiting(3, 2))


def test_2_5_2_has_no_max_model_length_constraint() -> None:
    limits = config(max_model_len=26, chunk_size=16, pausing=False)
    assert documented.may_prefill(limits, RELEASE_2_5_2, ONE, waiting(16))
    kept = replace(RELEASE_2_5_2, fits_model_length=documented.fits_model_length)
    assert not documented.may_prefill(limits, kept, ONE, waiting(16))


@ALL
def test_the_volume_is_that_of_the_revisions_projection(revision: Revision) -> None:
    # All tkv terms (see test_volumetric): a shared decode of 2 requests, up to the newcomer's end.
    newcomer = waiting(3, 4)
    by_name = {"sound": 2 * 8, "documented": 2 * 10, "2.1.2": 2 * 16, "2.5.2": 2 * 16}
    least = by_name[revision.name]
    for limit, fits in ((least - 1, False), (least, True)):
        limits = config(max_batch_tkv=limit, pausing=False)
        assert documented.fits_volume(limits, revision, 5, ONE.decoding, newcomer) is fits
        assert documented.may_prefill(limits, revision, ONE, newcomer) is fits


def test_a_projection_is_told_what_each_has_computed_may_still_run_and_its_own_tkv() -> None:
    """Blocks 4 and 1: the shorter is pushed 3 blocks to the right. Its last decode step of 2 is
    projected at 3 * 4 + 3 + 2 + 4 = 21, that of the longer at 13 + 9 + 4 = 26."""
    own_tkv = replace(DOCUMENTED, volume_check=ByFormula(document_own_tkv))
    old = (decoding("long", 13, 9), decoding("short", 3, 2))
    # 3 x 21 while all three run; the newcomer ends at 18 + 6 - 1 = 23 before the longer: 2 x 23.
    assert documented.fits_volume(config(max_batch_tkv=63), own_tkv, 15, old, waiting(18, 6))
    assert not documented.fits_volume(config(max_batch_tkv=62), own_tkv, 15, old, waiting(18, 6))


def test_while_it_pauses_2_5_2_asks_only_for_room_in_the_decode_batch() -> None:
    tight = {"max_batch_tkv": 1, "max_model_len": 1}
    assert documented.may_prefill(config(**tight), RELEASE_2_5_2, ONE, waiting(3, 4))
    off = config(**tight, pausing=False)
    assert not documented.may_prefill(off, RELEASE_2_5_2, ONE, waiting(3, 4))
    full = config(**tight, max_num_seqs=1)
    assert not documented.satisfies_last_chunk(full, RELEASE_2_5_2, ONE, waiting(3, 4))


@NO_PAUSING
def test_the_pausing_option_means_nothing_to_a_revision_that_cannot_pause(
    revision: Revision,
) -> None:
    for pausing in (True, False):
        tight = config(max_batch_tkv=15, pausing=pausing)
        assert not documented.may_prefill(tight, revision, ONE, waiting(3, 4))


@NO_PAUSING
def test_last_chunk_constraints_wait_for_the_last_chunk(revision: Revision) -> None:
    """A prompt of three chunks starts although its last chunk could not go."""
    newcomer = waiting(20, 40)
    tight = config(max_batch_tkv=60)
    assert not documented.satisfies_last_chunk(tight, revision, ONE, newcomer)
    assert documented.may_prefill(tight, revision, ONE, newcomer)
    for computed, may in ((4, True), (11, True), (12, False)):
        ongoing = begun(20, computed, 40)
        state = ONE._replace(running=(*ONE.running, ongoing))
        assert documented.may_prefill(tight, revision, state, ongoing) is may


@only("2.1.2", "2.5.2")
def test_without_interleaving_a_release_checks_everything_once_at_the_first_chunk(
    revision: Revision,
) -> None:
    tight = config(max_batch_tkv=60, interleave=False, pausing=False)
    newcomer, ongoing = waiting(20, 40), begun(20, 12, 40)
    state = ONE._replace(running=(*ONE.running, ongoing))
    assert not documented.may_prefill(tight, revision, ONE, newcomer)
    assert documented.may_prefill(tight, revision, state, ongoing)
    # With room for its volume it still needs a slot.
    roomy = config(interleave=False, pausing=False)
    assert documented.may_prefill(roomy, revision, ONE, newcomer)
    slot = config(interleave=False, pausing=False, max_num_seqs=1)
    assert not documented.may_prefill(slot, revision, ONE, newcomer)


@ALL
def test_with_interleaving_or_by_the_page_the_last_chunk_is_checked_when_it_comes(
    revision: Revision,
) -> None:
    """Whatever the revision with interleaving; without it, those that follow the page."""
    newcomer, ongoing = waiting(20, 40), begun(20, 12, 40)
    state = ONE._replace(running=(*ONE.running, ongoing))
    for interleave in (True, False):
        if revision.name in ("2.1.2", "2.5.2") and not interleave:
            continue
        tight = config(max_batch_tkv=60, interleave=interleave, pausing=False)
        assert documented.may_prefill(tight, revision, ONE, newcomer)
        assert not documented.may_prefill(tight, revision, state, ongoing)


# --- what admission goes by ------------------------------------------------------------------


@ALL
def test_releases_go_by_the_tkv_that_was_last_reported(revision: Revision) -> None:
    stale = ONE._replace(tkv=40, runner_tkv=50)
    expected = 40 if revision in (RELEASE_2_1_2, RELEASE_2_5_2) else 5
    assert revision.current_tkv(config(), stale) == expected


def test_the_current_tkv_is_that_of_those_who_decode() -> None:
    """Not of who prefills: 5 tokens beside 3 are 5 and 4 + 3."""
    state = batch(OLD, decoding("b", 3, 1), begun(20, 12))
    assert SOUND.current_tkv(config(), state) == 7


CACHING = config(prefix_caching=True, max_batch_tkv=40, pausing=False)
S = (("s", 16),)


def cached(tokens: int) -> Pool:
    """A pool in which the first `tokens` tokens of S are found."""
    numbers = range(1, tokens // BLOCK + 1)
    return Pool(fresh=9, cached={prefix(S, BLOCK * number): (number,) for number in numbers})


@ALL
@pytest.mark.parametrize(("hit", "last"), [(0, False), (4, False), (8, True), (12, True)])
def test_a_cached_prefix_may_make_the_first_chunk_the_last(
    revision: Revision, hit: int, last: bool
) -> None:
    """16 tokens in chunks of 8. The volume of the last would be too large: 2 requests x 24."""
    newcomer = waiting(16, 9, content=S)
    state = ONE._replace(pool=cached(hit))
    assert not documented.satisfies_last_chunk(CACHING, revision, state, newcomer)
    assert documented.computed_or_hit(CACHING, state, newcomer) == hit
    assert documented.may_prefill(CACHING, revision, state, newcomer) is not last
    without_caching = config(max_batch_tkv=40, pausing=False)
    assert documented.may_prefill(without_caching, revision, state, newcomer)


def test_once_it_has_started_what_a_request_has_computed_counts_not_what_is_cached() -> None:
    assert documented.computed_or_hit(CACHING, ONE._replace(pool=cached(12)), begun(16, 4)) == 4


# --- who is asked ----------------------------------------------------------------------------


def queue(*newcomers: Sequence) -> State:
    return ONE._replace(waiting=newcomers)


@ALL
def test_the_ongoing_prefill_is_the_only_candidate(revision: Revision) -> None:
    ongoing = begun(20, 4)
    state = batch(OLD, ongoing, waiting=(waiting(3, name="next"),))
    assert revision.candidate(config(), revision, state) == ongoing
    held = state._replace(last_step_was_prefill=True)
    assert revision.candidate(config(), revision, held) is None


@ALL
def test_the_first_who_waits_is_asked_first(revision: Revision) -> None:
    state = queue(waiting(3, name="a"), waiting(3, name="b"))
    assert revision.candidate(config(), revision, state) == waiting(3, name="a")
    assert revision.candidate(config(), revision, ONE) is None


@ALL
def test_only_2_5_2_goes_on_to_those_behind_a_refused_one(revision: Revision) -> None:
    """Beside a or b the old one decodes to its end at 16 or more, beside c to 12 at most."""
    tight = config(max_batch_tkv=31, pausing=False)
    state = queue(waiting(3, 28, "a"), waiting(4, 28, "b"), waiting(3, 2, "c"))
    assert [documented.may_prefill(tight, revision, state, one) for one in state.waiting] == [
        False,
        False,
        True,
    ]
    chosen = revision.candidate(tight, revision, state)
    assert chosen == (state.waiting[2] if revision is RELEASE_2_5_2 else None)


@only("sound", "documented", "2.5.2")
def test_a_lack_of_blocks_stops_the_queue_in_every_revision(revision: Revision) -> None:
    """Held and promised: 4 blocks of 6 (with the last token as well). 9 tokens need 3."""
    a, b = waiting(6, 4, "a"), waiting(3, 2, "b")
    state = batch(OLD._replace(blocks=(1, 2)), waiting=(a, b), pool=Pool(6, fresh=3))
    limits = config(num_blocks=6)
    assert revision.candidate(limits, revision, state) is None
    assert revision.candidate(limits, revision, state._replace(waiting=(b,))) == b
    # With a block more there is room for a.
    larger = state._replace(pool=Pool(7, fresh=3))
    assert revision.candidate(config(num_blocks=7), revision, larger) == a


def test_a_lack_of_blocks_behind_a_skipped_one_stops_the_queue_as_well() -> None:
    """2 blocks held and 2 promised, of 14: enough for the 31 tokens of a, which is refused for
    its volume, and for c, but not for the 51 of b."""
    limits = config(num_blocks=14, max_batch_tkv=31, pausing=False)
    a, b, c = waiting(3, 28, "a"), waiting(30, 21, "b"), waiting(3, 2, "c")
    state = batch(OLD._replace(blocks=(1, 2)), waiting=(a, c), pool=Pool(14, fresh=3))
    assert RELEASE_2_5_2.candidate(limits, RELEASE_2_5_2, state) == c
    state = state._replace(waiting=(a, b, c))
    assert RELEASE_2_5_2.candidate(limits, RELEASE_2_5_2, state) is None


def test_2_1_2_reserves_nothing() -> None:
    state = batch(OLD._replace(blocks=(1, 2)), waiting=(waiting(6, 4),), pool=Pool(2, fresh=3))
    assert RELEASE_2_1_2.candidate(config(num_blocks=2), RELEASE_2_1_2, state) == waiting(6, 4)
