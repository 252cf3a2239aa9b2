"""The work of a step, in numbers: block 4, chunks of 8 unless a test says otherwise."""

from dataclasses import replace

import pytest

from schedproof.model.members import without
from schedproof.model.pool import Pool, prefix
from schedproof.model.spyre import forward
from schedproof.model.spyre.forward import Forward
from schedproof.model.spyre.release_2_1_2 import RELEASE_2_1_2
from schedproof.model.spyre.release_2_5_2 import RELEASE_2_5_2
from schedproof.model.spyre.sound import SOUND
from schedproof.model.spyre.state import Sequence, State

from .build import ALL, BLOCK, batch, chunk, config, decoding, ids, only, waiting

STALE = replace(
    SOUND, current_tkv=RELEASE_2_1_2.current_tkv, tkv_after_chunk=RELEASE_2_1_2.tkv_after_chunk
)
BY_THE_PAGE = only("sound", "documented")
S = (("s", 40),)


def chunks(revision, prompt):
    """All chunks of a prompt that is alone: what was computed, and the request after it."""
    state = State(waiting=(waiting(prompt),))
    shown: list[tuple[Forward, Sequence]] = []
    while state.waiting or state.prefilling:
        assert len(shown) < prompt, "the prompt does not end"
        sequence = state.prefilling or state.waiting[0]
        state, computed = chunk(revision, state, sequence)
        shown.append((computed, state.running[0]))
    return shown


@ALL
def test_chunks_are_written_from_left_to_right_padding_to_no_block(revision):
    """18 tokens are 5 blocks: one of padding, then 4, 8 and 6 tokens."""
    shown = chunks(revision, 18)
    assert [computed.scheduled for computed, _ in shown] == [{"new": 4}, {"new": 8}, {"new": 6}]
    assert [computed.left_pad_blocks for computed, _ in shown] == [{"new": 1}] * 3
    assert [computed.slot_blocks for computed, _ in shown] == [
        {"new": [0, 1]},
        {"new": [2, 3]},
        {"new": [4, 5]},
    ]
    assert [sequence.computed for _, sequence in shown] == [4, 12, 18]


@pytest.mark.parametrize(
    ("prompt", "scheduled", "slots"),
    [(3, 3, [0, 1]), (4, 4, [0, 1]), (5, 5, [1, 2]), (8, 8, [1, 2])],
)
@ALL
def test_a_short_prompt_is_one_chunk(revision, prompt, scheduled, slots):
    [(computed, sequence)] = chunks(revision, prompt)
    assert (computed.scheduled, computed.slot_blocks) == ({"new": scheduled}, {"new": slots})
    assert (sequence.computed, sequence.prefilled) == (prompt, True)


@ALL
def test_only_2_1_2_holds_blocks_for_the_padding_of_the_first_chunk(revision):
    """Blocks for 8 tokens, of which 4 are padding; with the second chunk the two agree again."""
    held = [sequence.blocks for _, sequence in chunks(revision, 18)]
    first = (1, 2) if revision is RELEASE_2_1_2 else (1,)
    assert held == [first, (1, 2, 3), (1, 2, 3, 4, 5)]


@ALL
def test_a_chunk_moves_its_request_to_the_front_of_the_running(revision):
    a, b = decoding("a", 5, 9), decoding("b", 3, 9)
    state = batch(a, b, waiting=(waiting(18), waiting(5, name="next")))
    after, _ = chunk(revision, state, state.waiting[0])
    assert (ids(after.running), ids(after.waiting)) == (["new", "a", "b"], ["next"])
    assert after.running[1:] == (a, b)
    assert after.last_step_was_prefill
    decoded = after._replace(running=(a, b, after.running[0]), last_step_was_prefill=False)
    more, _ = chunk(revision, decoded, decoded.running[2])
    assert ids(more.running) == ["new", "a", "b"]


def after_hit(revision, prompt, hit, chunk_size=8):
    """The first chunk of a prompt whose first `hit` tokens are cached, in blocks 11, 12, ..."""
    numbers = range(1, hit // BLOCK + 1)
    names = {prefix(S, BLOCK * number): (10 + number,) for number in numbers}
    newcomer = waiting(prompt, content=(("s", prompt),))
    state = State(waiting=(newcomer,), pool=Pool(cached=names))
    limits = config(prefix_caching=True, chunk_size=chunk_size)
    after, computed = chunk(revision, state, newcomer, limits)
    return computed, after.running[0]


@pytest.mark.parametrize(
    ("prompt", "hit", "scheduled", "slots", "blocks", "end"),
    [
        # No padding. The chunk of the first token that is not cached, its cached blocks read only.
        (16, 4, 4, [0, 1], (11, 1), 8),
        (16, 8, 8, [1, 2], (11, 12, 1, 2), 16),
        (16, 12, 4, [0, 1], (11, 12, 13, 1), 16),
        (8, 4, 4, [0, 1], (11, 1), 8),
        # A block of padding, then chunks that end at 4 and 9, or at 4, 12 and 20.
        (9, 8, 1, [0, 1], (11, 12, 1), 9),
        (20, 4, 8, [1, 2], (11, 1, 2), 12),
        (20, 8, 4, [0, 1], (11, 12, 1), 12),
        (20, 12, 8, [1, 2], (11, 12, 13, 1, 2), 20),
    ],
)
@BY_THE_PAGE
def test_whole_cached_chunks_are_skipped_and_cached_blocks_are_not_written_to(
    revision, prompt, hit, scheduled, slots, blocks, end
):
    computed, sequence = after_hit(revision, prompt, hit)
    assert computed.scheduled == {"new": scheduled}
    assert computed.slot_blocks == {"new": slots}
    assert (sequence.blocks, sequence.computed, sequence.prefix_hit) == (blocks, end, hit)
    assert sequence.published == end // BLOCK


@pytest.mark.parametrize(
    ("prompt", "hit", "chunk_size", "by_the_page", "at_2_1_2", "at_2_5_2"),
    [
        # The hit ends with a chunk: nothing to count ahead.
        (16, 8, 8, 16, 16, 16),
        (20, 4, 8, 12, 12, 12),
        # It ends within a chunk: a whole chunk more is counted, up to the prompt's end.
        (16, 4, 8, 8, 12, 12),
        (20, 8, 8, 12, 16, 16),
        (16, 12, 8, 16, 16, 16),
        # Within the first, behind two blocks of padding: 2.5.2 leaves the padding out.
        (24, 4, 16, 8, 20, 12),
        # Behind one block of padding, first chunks of 12.
        (28, 4, 16, 12, 20, 16),
        (28, 8, 16, 12, 24, 20),
        # The hit covers what padding leaves of the first chunk.
        (24, 8, 16, 24, 24, 24),
        (28, 12, 16, 28, 28, 28),
    ],
)
def test_after_a_hit_within_a_chunk_releases_count_a_whole_chunk_more(
    prompt, hit, chunk_size, by_the_page, at_2_1_2, at_2_5_2
):
    counted = {SOUND: by_the_page, RELEASE_2_1_2: at_2_1_2, RELEASE_2_5_2: at_2_5_2}
    for revision, tokens in counted.items():
        computed, sequence = after_hit(revision, prompt, hit, chunk_size)
        assert sequence.computed == tokens
        assert len(sequence.blocks) == tokens // BLOCK == sequence.published
        # What really runs is the same chunk.
        assert computed == after_hit(SOUND, prompt, hit, chunk_size)[0]._replace(tkv=computed.tkv)


def test_without_a_hit_2_1_2_counts_and_holds_up_to_a_whole_first_chunk_of_the_prompt():
    """Chunks of 16: 20 tokens behind 3 blocks of padding, 4 computed, 16 held."""
    for prompt, computed, blocks in ((20, 4, 4), (24, 8, 4), (14, 14, 4), (3, 3, 1)):
        _, sequence = after_hit(RELEASE_2_1_2, prompt, 0, chunk_size=16)
        assert (sequence.computed, len(sequence.blocks)) == (computed, blocks)
        _, sequence = after_hit(RELEASE_2_5_2, prompt, 0, chunk_size=16)
        assert (sequence.computed, len(sequence.blocks)) == (computed, -(-computed // BLOCK))


@only("2.1.2", "2.5.2")
def test_later_chunks_count_on_from_there_and_end_where_they_would_without_a_hit(revision):
    """28 tokens behind a block of padding: chunks end at 4, 12, 20 and 28. Of the second 4 are
    cached, and 4 too many are counted until the prompt ends."""
    limits = config(prefix_caching=True)
    newcomer = waiting(28, content=(("s", 28),))
    names = {prefix(S, 4): (1,), prefix(S, 8): (2,)}
    state = State(waiting=(newcomer,), pool=Pool(fresh=3, cached=names))
    seen: list[tuple[int, int]] = []
    while len(seen) < 3:
        sequence = state.prefilling or newcomer
        state, computed = chunk(revision, state, sequence, limits)
        seen.append((computed.scheduled["new"], state.running[0].computed))
    assert seen == [(4, 16), (8, 24), (8, 28)]
    assert state.running[0].blocks == (1, 2, 3, 4, 5, 6, 7)
    assert state.running[0].prefilled


@ALL
def test_a_prefill_takes_cached_blocks_out_of_the_free_list(revision):
    names = {prefix(S, 4): (2,)}
    pool = Pool(4, (), 5, ((2, prefix(S, 4)), (1, None), (3, None)), names)
    newcomer = waiting(6, content=(("s", 6),))
    state = State(waiting=(newcomer,), pool=pool)
    limits = config(prefix_caching=True, num_blocks=4)
    after, _ = chunk(revision, state, newcomer, limits)
    assert after.running[0].blocks == (2, 1)
    assert after.pool == pool._replace(tail=((3, None),))


OLD = decoding("old", 11, 9)


@BY_THE_PAGE
def test_by_the_page_a_chunk_has_the_tkv_of_the_decode_batch_it_leaves(revision):
    state = batch(OLD, tkv=40, runner_tkv=50)
    after, computed = chunk(revision, state, waiting(18))
    assert computed.tkv == 11
    # With the last chunk the request has joined: 18 beside 11 + 2 blocks.
    last = waiting(18, computed=12, blocks=(1, 2, 3))
    _, computed = chunk(revision, after._replace(running=(OLD, last)), last)
    assert computed.tkv == 19
    assert chunk(revision, State(), waiting(18))[1].tkv == 0


def test_only_who_goes_by_the_reported_tkv_shows_it():
    state = batch(OLD, runner_tkv=13)
    assert chunk(SOUND, state, waiting(18))[1].tkv == 11
    assert chunk(STALE, state, waiting(18))[1].tkv == 13


def test_a_decode_step_is_one_token_for_everyone_who_decodes():
    """To 9 tokens in 3 blocks and 3 in 1: two blocks of padding, tkv 8 + 3."""
    long = decoding("long", 8, 9, blocks=(1, 2))
    begun = waiting(20, name="begun", computed=4, blocks=(4,))
    short = decoding("short", 2, 9, blocks=(3,))
    idle = waiting(5, name="idle")
    state = State((idle,), (long, begun, short), (), True, 1, 1, Pool(fresh=5))
    after, computed = forward.compute_decode(config(), state)
    assert computed == Forward(
        {"long": 1, "short": 1}, {"long": 0, "short": 2}, {"long": [5], "short": [3]}, 11
    )
    assert after == State(
        waiting=(idle,),
        running=(long._replace(computed=9, blocks=(1, 2, 5)), short._replace(computed=3), begun),
        last_step_was_prefill=False,
        tkv=11,
        runner_tkv=11,
        pool=Pool(fresh=6),
    )


def test_who_is_paused_gets_no_token():
    state = State(running=(decoding("a", 5, 9),), paused=(decoding("b", 5, 9),))
    after, computed = forward.compute_decode(config(), state)
    assert computed.scheduled == {"a": 1}
    assert after.paused == state.paused


def test_a_block_that_a_decode_step_fills_can_be_found_by_what_was_generated():
    """Prompt 7; the first generated token is computed now and fills the second block."""
    sequence = decoding("a", 7, 9, content=(("s", 7),), blocks=(1, 2), published=1)
    state = State(running=(sequence,), pool=Pool(fresh=3, cached={prefix(S, 4): (1,)}))
    after, _ = forward.compute_decode(config(prefix_caching=True), state)
    assert after.running[0].published == 2
    assert after.pool.cached == {prefix(S, 4): (1,), (("s", 7), ("out:a", 1)): (2,)}


def test_an_idle_step_forgets_the_tkv_of_the_scheduler_but_not_that_of_the_runner():
    state = State(last_step_was_prefill=True, tkv=9, runner_tkv=9, lost_blocks=2)
    after, computed = forward.compute_nothing(state, after_choice=False)
    assert after == State(last_step_was_prefill=False, tkv=0, runner_tkv=9, lost_blocks=2)
    assert computed == Forward({}, {}, {}, 0)


def test_a_queue_without_a_request_keeps_the_others_in_order():
    queue = tuple(waiting(5, name=name) for name in "abc")
    assert ids(without(queue, "b")) == ["a", "c"]
    assert without(queue, "d") == queue


def test_a_decode_step_asks_for_a_block_only_where_one_begins_or_fills_up(monkeypatch):
    """No request else has to: a step is taken as often as nothing else."""
    calls: list[int] = []
    held = forward.blocks.hold

    def hold(*words):
        calls.append(words[2])
        return held(*words)

    monkeypatch.setattr(forward.blocks, "hold", hold)
    state = batch(decoding("a", 5, 9, blocks=(1, 2)), pool=Pool(None, fresh=3))
    for _ in range(9):
        state, _ = forward.compute_decode(config(), state)
    assert calls == [8, 9, 12, 13]
    assert state.running[0].blocks == (1, 2, 3, 4)
