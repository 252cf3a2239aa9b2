"""The page's functions, by example and by brute force; no function of the page is missing."""

import re
from dataclasses import replace
from inspect import getsource
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.model.pool import Pool, blocks_for, prefix
from schedproof.model.spyre import documented
from schedproof.model.spyre.documented import DOCUMENTED, usable_blocks
from schedproof.model.spyre.release_2_1_2 import RELEASE_2_1_2
from schedproof.model.spyre.release_2_5_2 import RELEASE_2_5_2
from schedproof.model.spyre.sound import SOUND
from schedproof.model.spyre.state import State
from schedproof.model.spyre.volumetric import ByFormula, document_own_tkv
from schedproof.spec.catalogue import load

from .build import ALL, BLOCK, batch, batches, config, decoding, only, waiting

HEADINGS = [
    *("Overview", "Key concepts", "Padding"),
    *("Prefill padding: Right-alignment", "Prefill padding: Chunked Prefill"),
    "Prefill padding: Visualization",
    "Decode padding: Left-padding with full blocks",
    "Decode padding: Right-padding until next block boundary",
    *("Decode padding: Per-request tkv", "Decode padding: tkv jumping"),
    *("Scheduling: Priority rules", "Scheduling: Admission constraints"),
    *("Scheduling: First-chunk constraints", "Scheduling: Last-chunk constraints"),
    "Scheduling: Volumetric Constraint - Additional Details",
    "Scheduling: Visualization",
    *("Prefix caching: Skipping full chunks", "Prefix caching: Boundary chunk"),
    *("Prefix caching: Scheduling with prefix caching", "Prefix caching: Visualization"),
]


def test_the_file_has_the_headings_of_the_page_in_its_order():
    assert re.findall(r"^# ---- (.*)$", getsource(documented), re.MULTILINE) == HEADINGS


def test_every_rule_of_the_page_is_named():
    rules = [rule.id for rule in load("spyre") if rule.source.startswith("Spyre scheduling page")]
    own = [rule for rule in rules if rule.startswith("SPY-")]
    assert len(own) > 50
    assert [rule for rule in own if rule not in getsource(documented)] == []


# ==== Prefill padding


class Prefill(NamedTuple):
    """A prompt and the sizes it is cut by, in tokens."""

    prompt: int
    chunk: int
    block: int

    @property
    def left_padding(self):
        return documented.left_padding_blocks(self.prompt, self.chunk, self.block) * self.block


@st.composite
def prefills(draw):
    block = draw(st.sampled_from((1, 2, 3, 4, 16, 64)))
    chunk = block * draw(st.integers(1, 9))
    border = draw(st.integers(0, 12)) * draw(st.sampled_from((block, chunk)))
    near = border + draw(st.integers(-1, 2))
    return Prefill(draw(st.one_of(st.just(max(near, 1)), st.integers(1, 2000))), chunk, block)


def chunks_of(prefill):
    """The real tokens of each chunk, as the scheduler asks for them one after the other."""
    chunks: list[int] = []
    while sum(chunks) < prefill.prompt:
        start, end = documented.next_chunk(
            prefill.prompt, sum(chunks), prefill.chunk, prefill.block
        )
        assert start == sum(chunks) < end
        chunks.append(end - start)
    return chunks


@given(prefills())
def test_left_padding_is_whole_blocks_and_shorter_than_a_chunk(prefill):
    assert prefill.left_padding % prefill.block == 0
    assert 0 <= prefill.left_padding < prefill.chunk


@given(prefills())
def test_chunks_add_up_to_the_prompt(prefill):
    chunks = chunks_of(prefill)
    assert sum(chunks) == prefill.prompt
    assert len(chunks) == documented.chunk_count(prefill.prompt, prefill.chunk)


@given(prefills())
def test_every_chunk_but_the_last_is_full_once_the_left_padding_is_counted(prefill):
    first, *others = chunks_of(prefill)
    *full, last = [prefill.left_padding + first, *others]
    assert all(chunk == prefill.chunk for chunk in full)
    assert last <= prefill.chunk


@given(prefills())
def test_the_last_token_is_in_the_last_block_of_the_last_chunk(prefill):
    end = documented.chunk_count(prefill.prompt, prefill.chunk) * prefill.chunk
    assert end - prefill.block < prefill.left_padding + prefill.prompt <= end


@given(prefills())
def test_one_block_less_of_left_padding_would_not_be_aligned(prefill):
    padded = prefill.left_padding + blocks_for(prefill.prompt, prefill.block) * prefill.block
    assert padded % prefill.chunk == 0
    assert padded - prefill.chunk < prefill.prompt


@given(prefills())
def test_the_rest_fits_into_a_chunk_exactly_when_the_chunk_in_turn_ends_the_prompt(prefill):
    computed = 0
    for chunk in chunks_of(prefill):
        ends = computed + chunk == prefill.prompt
        assert documented.is_last_chunk(prefill.prompt, computed, prefill.chunk) is ends
        computed += chunk


@given(prefills(), st.data())
def test_the_chunk_in_turn_is_that_of_the_first_token_to_compute_whole(prefill, data):
    """Wherever a cached prefix ends: the chunks are those of a prompt without one."""
    computed = data.draw(st.integers(0, prefill.prompt - 1))
    start = 0
    for tokens in chunks_of(prefill):
        if start + tokens > computed:
            break
        start += tokens
    expected = (start, start + tokens)
    assert documented.next_chunk(prefill.prompt, computed, prefill.chunk, prefill.block) == expected


@pytest.mark.parametrize(
    ("prompt", "computed", "chunk"),
    [
        # A block of padding, then 4, 8 and 6 tokens.
        (18, 0, (0, 4)),
        (18, 3, (0, 4)),
        (18, 4, (4, 12)),
        (18, 8, (4, 12)),
        (18, 12, (12, 18)),
        (18, 17, (12, 18)),
        # No padding.
        (16, 4, (0, 8)),
        (16, 8, (8, 16)),
        (16, 12, (8, 16)),
    ],
)
def test_a_prefix_that_is_cached_moves_the_chunk_in_turn_but_not_its_borders(
    prompt, computed, chunk
):
    assert documented.next_chunk(prompt, computed, chunk_size=8, block_size=4) == chunk


@pytest.mark.parametrize(
    ("prompt", "left_padding", "chunks"),
    [
        (15, 64, [15]),
        (302, 64, [64, 128, 110]),
        (64, 64, [64]),
        (65, 0, [65]),
        (128, 0, [128]),
        (129, 64, [64, 65]),
        (192, 64, [64, 128]),
        (193, 0, [128, 65]),
        (256, 0, [128, 128]),
    ],
)
def test_prompts_of_the_page_and_at_block_borders(prompt, left_padding, chunks):
    prefill = Prefill(prompt, chunk=128, block=64)
    assert prefill.left_padding == left_padding
    assert chunks_of(prefill) == chunks


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (64, 1), (65, 2), (128, 2)])
def test_a_block_begun_counts_whole(tokens, blocks):
    assert blocks_for(tokens, 64) == blocks


# ==== Decode padding


@given(batches())
def test_the_batch_is_a_rectangle_of_blocks(batch):
    pads = documented.left_pad_blocks(*batch)
    widths = {
        pad + blocks_for(length, batch.block)
        for pad, length in zip(pads, batch.lengths, strict=True)
    }
    assert len(widths) == 1


@given(batches())
def test_padding_is_minimal_the_longest_has_none(batch):
    pads = documented.left_pad_blocks(*batch)
    assert min(pads) == 0
    assert pads[batch.lengths.index(max(batch.lengths))] == 0


@given(batches())
def test_all_tkvs_lie_in_the_same_block(batch):
    assert len({(tkv - 1) // batch.block for tkv in documented.request_tkvs(*batch)}) == 1


@given(batches())
def test_max_tkv_is_the_formula_of_the_dynamics(batch):
    """(W - 1) B + max(((n - 1) mod B) + 1), with W the widest member's blocks."""
    lengths, block = batch
    width = max(-(-n // block) for n in lengths)
    assert documented.max_tkv(*batch) == (width - 1) * block + max(
        (n - 1) % block + 1 for n in lengths
    )


@given(batches())
def test_a_member_that_leaves_never_raises_the_max_tkv(batch):
    for index in range(len(batch.lengths)):
        rest = batch.lengths[:index] + batch.lengths[index + 1 :]
        assert documented.max_tkv(rest, batch.block) <= documented.max_tkv(*batch)


@given(batches())
def test_one_more_token_moves_each_tkv_by_one_or_by_a_block_more_or_less(batch):
    """The jump rules: a request that crosses a block border with padding falls back a block; if a
    member without padding crosses, all requests that do not cross are pushed a block forward.
    """
    lengths, block = batch
    pads = documented.left_pad_blocks(*batch)
    crosses = [length % block == 0 for length in lengths]
    widens = any(cross and not pad for cross, pad in zip(crosses, pads, strict=True))
    before = documented.request_tkvs(*batch)
    after = documented.request_tkvs([length + 1 for length in lengths], block)
    for cross, old, new in zip(crosses, before, after, strict=True):
        assert new - old - 1 == block * (widens - cross)


@pytest.mark.parametrize(
    ("lengths", "before", "after"),
    [
        # With padding: back by a block. The other one just goes on.
        ([264, 128], [264, 320], [265, 257]),
        # Without padding: the other one forward by a block.
        ([320, 100], [320, 292], [321, 357]),
        # Both at a border: the rectangle widens, and both fill their new block.
        ([320, 64], [320, 320], [321, 321]),
        ([63, 64], [63, 64], [128, 65]),
    ],
)
def test_crossing_a_block_with_and_without_padding(lengths, before, after):
    assert documented.request_tkvs(lengths, 64) == before
    assert documented.request_tkvs([length + 1 for length in lengths], 64) == after


def test_an_empty_batch_has_no_tkv():
    assert documented.max_tkv([], 64) == 0
    assert documented.request_tkvs([], 64) == []
    assert documented.left_pad_blocks([], 64) == []


# ==== Scheduling


# Of these the checks of the page count; 2.5.2 pauses instead.
NO_PAUSING = only("sound", "documented", "2.1.2")
OLD = decoding("old", 5, 10)
ONE = batch(OLD)


def begun(prompt, computed, max_tokens=2):
    """A request between two of its chunks."""
    return waiting(prompt, max_tokens, computed=computed)


# --- priority --------------------------------------------------------------------------------


@ALL
def test_nothing_running_admits_without_further_checks(revision):
    tight = config(max_model_len=1, max_batch_tkv=1, max_num_seqs=1)
    state = State(tkv=60, last_step_was_prefill=True)
    assert documented.may_prefill(tight, revision, state, waiting(30, 30))


@ALL
def test_a_small_request_may_join(revision):
    assert documented.may_prefill(config(), revision, ONE, waiting(3))


@ALL
def test_nothing_prefills_while_someone_is_paused(revision):
    state = ONE._replace(paused=(decoding("paused", 5, 10),))
    assert not documented.may_prefill(config(), revision, state, waiting(3))
    going_on = state._replace(running=(*state.running, begun(20, 4)))
    assert not documented.may_prefill(config(), revision, going_on, begun(20, 4))


@ALL
def test_no_second_prefill_step_in_a_row_while_something_decodes(revision):
    state = ONE._replace(last_step_was_prefill=True)
    assert not documented.may_prefill(config(), revision, state, waiting(3))
    assert documented.may_prefill(config(interleave=False), revision, state, waiting(3))


@ALL
def test_prefill_steps_follow_each_other_while_nothing_decodes(revision):
    ongoing = begun(20, 4)
    state = batch(ongoing, last_step_was_prefill=True, tkv=20)
    assert documented.may_prefill(config(), revision, state, ongoing)


# --- first chunk -----------------------------------------------------------------------------


@ALL
def test_first_chunk_needs_a_free_slot(revision):
    assert not documented.may_prefill(config(max_num_seqs=1), revision, ONE, waiting(20))
    assert documented.may_prefill(config(max_num_seqs=2), revision, ONE, waiting(20))


@ALL
def test_first_chunk_needs_the_only_prefill_slot(revision):
    ongoing = begun(20, 4)
    state = batch(*ONE.running, ongoing._replace(id="ongoing"))
    assert not documented.may_prefill(config(), revision, state, waiting(3))
    assert not documented.satisfies_first_chunk(config(), state)
    assert documented.may_prefill(config(), revision, state, ongoing)


@ALL
def test_slots_are_for_who_runs_be_it_in_its_prefill(revision):
    """The ongoing prefill takes a slot itself, and needs none for its next chunk."""
    ongoing = begun(20, 4)
    state = batch(*ONE.running, ongoing)
    assert not documented.satisfies_first_chunk(config(max_num_seqs=2), state)
    assert documented.may_prefill(config(max_num_seqs=2), revision, state, ongoing)


@ALL
def test_who_is_one_too_many_already_leaves_no_slot_and_no_room_either(revision):
    """No run gets there; the limit is one all the same."""
    state = batch(decoding("a", 5, 1), decoding("b", 5, 1))
    one_slot = config(max_num_seqs=1)
    assert not documented.satisfies_first_chunk(one_slot, state)
    assert not documented.satisfies_last_chunk(one_slot, revision, state, waiting(3))


# --- last chunk ------------------------------------------------------------------------------


@ALL
def test_last_chunk_needs_room_in_the_decode_batch(revision):
    ongoing = begun(20, 12)
    members = (decoding("a", 5, 1), decoding("b", 5, 1))
    state = batch(*members, ongoing)
    for slots, room in ((2, False), (3, True)):
        limits = config(max_num_seqs=slots)
        assert documented.satisfies_last_chunk(limits, revision, state, ongoing) is room
        assert documented.may_prefill(limits, revision, state, ongoing) is room


@NO_PAUSING
@pytest.mark.parametrize(("length", "fits"), [(26, False), (27, True)])
def test_a_long_prompt_must_not_push_the_old_beyond_max_model_len(revision, length, fits):
    # Realigned to block 16/4 = 4, the old one ends at 16 + 5 % 4 + 10 = 27.
    state, newcomer = ONE, waiting(16)
    limits = config(max_model_len=length, chunk_size=16)
    assert documented.fits_model_length(limits, 5, state.decoding, newcomer) is fits
    assert documented.may_prefill(limits, revision, state, newcomer) is fits


@pytest.mark.parametrize(("length", "fits"), [(19, False), (20, True)])
def test_a_wide_batch_must_not_push_the_newcomer_beyond_max_model_len(length, fits):
    # Realigned to block 13 // 4 = 3, the newcomer ends at 12 + 3 + 6 - 1 = 20.
    old = (decoding("old", 13, 1),)
    assert (
        documented.fits_model_length(config(max_model_len=length), 13, old, waiting(3, 6)) is fits
    )


def test_everyone_who_decodes_must_stay_within_max_model_len():
    """Realigned to block 13 // 4 = 3 they end at 13 + 2 = 15, 12 + 2 + 9 = 23, 12 + 3 + 1 = 16."""
    old = (decoding("a", 13, 2), decoding("b", 6, 9), decoding("c", 3, 1))
    assert documented.fits_model_length(config(max_model_len=23), 13, old, waiting(3, 2))
    assert not documented.fits_model_length(config(max_model_len=22), 13, old, waiting(3, 2))


@ALL
def test_the_volume_is_that_of_the_revisions_projection(revision):
    # All tkv terms (see test_volumetric): a shared decode of 2 requests, up to the newcomer's end.
    newcomer = waiting(3, 4)
    by_name = {"sound": 2 * 8, "documented": 2 * 10, "2.1.2": 2 * 16, "2.5.2": 2 * 16}
    least = by_name[revision.name]
    for limit, fits in ((least - 1, False), (least, True)):
        limits = config(max_batch_tkv=limit, pausing=False)
        assert documented.fits_volume(limits, revision, 5, ONE.decoding, newcomer) is fits
        assert documented.may_prefill(limits, revision, ONE, newcomer) is fits


def test_a_projection_is_told_what_each_has_computed_may_still_run_and_its_own_tkv():
    """Blocks 4 and 1: the shorter is pushed 3 blocks to the right. Its last decode step of 2 is
    projected at 3 * 4 + 3 + 2 + 4 = 21, that of the longer at 13 + 9 + 4 = 26."""
    own_tkv = replace(DOCUMENTED, volume_check=ByFormula(document_own_tkv))
    old = (decoding("long", 13, 9), decoding("short", 3, 2))
    # 3 x 21 while all three run; the newcomer ends at 18 + 6 - 1 = 23 before the longer: 2 x 23.
    assert documented.fits_volume(config(max_batch_tkv=63), own_tkv, 15, old, waiting(18, 6))
    assert not documented.fits_volume(config(max_batch_tkv=62), own_tkv, 15, old, waiting(18, 6))


@NO_PAUSING
def test_the_pausing_option_means_nothing_to_a_revision_that_cannot_pause(revision):
    for pausing in (True, False):
        tight = config(max_batch_tkv=15, pausing=pausing)
        assert not documented.may_prefill(tight, revision, ONE, waiting(3, 4))


@NO_PAUSING
def test_last_chunk_constraints_wait_for_the_last_chunk(revision):
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
def test_without_interleaving_a_release_checks_everything_once_at_the_first_chunk(revision):
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
def test_with_interleaving_or_by_the_page_the_last_chunk_is_checked_when_it_comes(revision):
    """Whatever the revision with interleaving; without it, those that follow the page."""
    newcomer, ongoing = waiting(20, 40), begun(20, 12, 40)
    state = ONE._replace(running=(*ONE.running, ongoing))
    for interleave in (True, False):
        if revision.name in ("2.1.2", "2.5.2") and not interleave:
            continue
        tight = config(max_batch_tkv=60, interleave=interleave, pausing=False)
        assert documented.may_prefill(tight, revision, ONE, newcomer)
        assert not documented.may_prefill(tight, revision, state, ongoing)


# --- what admission uses ------------------------------------------------------------------


@ALL
def test_releases_go_by_the_tkv_that_was_last_reported(revision):
    stale = ONE._replace(tkv=40, runner_tkv=50)
    expected = 40 if revision in (RELEASE_2_1_2, RELEASE_2_5_2) else 5
    assert revision.current_tkv(config(), stale) == expected


def test_the_current_tkv_is_that_of_those_who_decode():
    """Not of who prefills: 5 tokens beside 3 are 5 and 4 + 3."""
    state = batch(OLD, decoding("b", 3, 1), begun(20, 12))
    assert SOUND.current_tkv(config(), state) == 7


CACHING = config(prefix_caching=True, max_batch_tkv=40, pausing=False)
S = (("s", 16),)


def cached(tokens):
    """A pool in which the first `tokens` tokens of S are found."""
    numbers = range(1, tokens // BLOCK + 1)
    return Pool(fresh=9, cached={prefix(S, BLOCK * number): (number,) for number in numbers})


@ALL
@pytest.mark.parametrize(("hit", "last"), [(0, False), (4, False), (8, True), (12, True)])
def test_a_cached_prefix_may_make_the_first_chunk_the_last(revision, hit, last):
    """16 tokens in chunks of 8. The volume of the last would be too large: 2 requests x 24."""
    newcomer = waiting(16, 9, content=S)
    state = ONE._replace(pool=cached(hit))
    assert not documented.satisfies_last_chunk(CACHING, revision, state, newcomer)
    assert documented.computed_or_hit(CACHING, state, newcomer) == hit
    assert documented.may_prefill(CACHING, revision, state, newcomer) is not last
    without_caching = config(max_batch_tkv=40, pausing=False)
    assert documented.may_prefill(without_caching, revision, state, newcomer)


def test_once_it_has_started_what_a_request_has_computed_counts_not_what_is_cached():
    assert documented.computed_or_hit(CACHING, ONE._replace(pool=cached(12)), begun(16, 4)) == 4


# --- who is asked ----------------------------------------------------------------------------


def queue(*newcomers):
    return ONE._replace(waiting=newcomers)


@ALL
def test_the_ongoing_prefill_is_the_only_candidate(revision):
    ongoing = begun(20, 4)
    state = batch(OLD, ongoing, waiting=(waiting(3, name="next"),))
    assert revision.candidate(config(), revision, state) == ongoing
    held = state._replace(last_step_was_prefill=True)
    assert revision.candidate(config(), revision, held) is None


@ALL
def test_the_first_who_waits_is_asked_first(revision):
    state = queue(waiting(3, name="a"), waiting(3, name="b"))
    assert revision.candidate(config(), revision, state) == waiting(3, name="a")
    assert revision.candidate(config(), revision, ONE) is None


@ALL
def test_only_2_5_2_goes_on_to_those_behind_a_refused_one(revision):
    """Beside a or b the old one decodes to its end at 16 or more, beside c to 12 at most."""
    tight = config(max_batch_tkv=31, pausing=False)
    state = queue(waiting(3, 28, "a"), waiting(4, 28, "b"), waiting(3, 2, "c"))
    assert [
        documented.may_prefill(tight, revision, state, sequence) for sequence in state.waiting
    ] == [
        False,
        False,
        True,
    ]
    chosen = revision.candidate(tight, revision, state)
    assert chosen == (state.waiting[2] if revision is RELEASE_2_5_2 else None)


@only("sound", "documented", "2.5.2")
def test_a_lack_of_blocks_stops_the_queue_in_every_revision(revision):
    """Held and promised: 4 blocks of 6 (with the last token as well). 9 tokens need 3."""
    a, b = waiting(6, 4, "a"), waiting(3, 2, "b")
    state = batch(OLD._replace(blocks=(1, 2)), waiting=(a, b), pool=Pool(6, fresh=3))
    limits = config(num_blocks=6)
    assert revision.candidate(limits, revision, state) is None
    assert revision.candidate(limits, revision, state._replace(waiting=(b,))) == b
    # With a block more there is room for a.
    larger = state._replace(pool=Pool(7, fresh=3))
    assert revision.candidate(config(num_blocks=7), revision, larger) == a


# ==== Prefix caching: whole chunks that a hit saves


@pytest.mark.parametrize(
    ("left_padding", "hit", "chunks", "usable"),
    [
        # Chunks of 2 blocks: only whole ones count,
        (0, 1, 2, 0),
        (0, 2, 2, 2),
        (0, 3, 3, 2),
        (0, 4, 3, 4),
        # the last one never,
        (0, 2, 1, 0),
        (0, 3, 2, 2),
        (0, 4, 2, 2),
        # and padding belongs to the first.
        (1, 0, 2, 0),
        (1, 1, 2, 1),
        (1, 2, 2, 1),
        (1, 2, 1, 0),
        (1, 3, 3, 3),
    ],
)
def test_blocks_are_saved_by_whole_chunks_the_last_one_apart(left_padding, hit, chunks, usable):
    assert usable_blocks(left_padding, hit, chunks, chunk_blocks=2) == usable


@given(st.integers(1, 4), st.data())
def test_usable_blocks_are_those_of_the_chunks_that_need_not_run(chunk_blocks, data):
    chunks = data.draw(st.integers(1, 4))
    pad = data.draw(st.integers(0, chunk_blocks - 1))
    hit = data.draw(st.integers(0, chunks * chunk_blocks - pad))
    hits = [True] * (pad + hit) + [False] * (chunks * chunk_blocks - pad - hit)
    rows = [hits[n * chunk_blocks : (n + 1) * chunk_blocks] for n in range(chunks)]
    saved = [all(row) for row in rows[:-1]]
    expected = max(sum(saved) * chunk_blocks - pad, 0)
    assert usable_blocks(pad, hit, chunks, chunk_blocks) == expected
