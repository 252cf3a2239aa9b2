"""The savings of the prefix cache, and what is computed and written despite a hit."""

import pytest

from ...build import broken, decode, decoding, exercised, history, prefill, prefilling, waiting

COMMON = ("common", 8)


def cached(*accounts, **changes):
    return history(*accounts, prefix_caching=True, **changes)


def owner(computed=8, **changes):
    """Has computed the words that others repeat."""
    return decoding("a", computed, content=(COMMON,), **changes)


def newcomer(prompt=12, **changes):
    """Says the common words first, then its own."""
    rest = (("b", prompt - 8),) if prompt > 8 else ()
    content = (("common", min(prompt, 8)), *rest)
    return waiting("b", prompt, **({"content": content} | changes))


def starts(prompt, hit, **fields):
    return prefill("b", prompt - hit, prefix_hit={"b": hit}, **fields)


# SPY-R11: padding


@pytest.mark.parametrize(
    ("prompt", "tokens", "written", "message"),
    [
        (3, 3, (0, 5), None),
        (3, 3, (7, 5), "padding of b writes to block 7, not to block 0"),
        (12, 4, (0, 5), None),
        (12, 4, (5, 5), "padding of b writes to block 5, not to block 0"),
        (8, 8, (5, 6), None),
    ],
)
def test_what_pads_the_first_chunk_is_written_to_block_0(prompt, tokens, written, message):
    step = prefill("b", tokens, slot_blocks={"b": written})
    assert broken("SPY-R11", history(waiting("b", prompt)), step) == message


def test_there_is_no_padding_after_the_first_chunk():
    book = history(prefilling("b", 4, 12))
    step = prefill("b", 8, slot_blocks={"b": (5, 6)})
    assert broken("SPY-R11", book, step) is None
    assert not exercised("SPY-R11", book, step)


def test_nobody_holds_the_padding_block():
    book = history(decoding("a", 8), waiting("b"))
    assert broken("SPY-R11", book, decode("a", blocks={"b": (3,), "a": (1, 2)})) is None
    assert broken("SPY-R11", book, decode("a", blocks={"b": (3,), "a": (1, 0)})) == (
        "a holds block 0, the padding block"
    )


@pytest.mark.parametrize(("prompt", "padded"), [(3, True), (12, True), (8, False), (16, False)])
def test_padding_is_at_stake_in_a_first_chunk_that_its_blocks_do_not_fill(prompt, padded):
    book = history(waiting("b", prompt))
    assert exercised("SPY-R11", book, prefill("b", 3, slot_blocks={"b": (0, 5)})) == padded
    assert not exercised("SPY-R11", book, prefill("b", 3))


# SPY-R55: the last token


@pytest.mark.parametrize("prompt", [5, 8, 16])
def test_the_last_token_of_a_prompt_is_never_a_hit(prompt):
    book = cached(owner(), newcomer(prompt))
    assert broken("SPY-R55", book, starts(prompt, prompt - 1)) is None
    assert broken("SPY-R55", book, starts(prompt, prompt)) == (
        f"b finds its whole prompt of {prompt} tokens in the cache"
    )


def test_a_request_that_finishes_at_once_has_found_what_it_did_not_compute():
    book = cached(owner(), newcomer(8, max_tokens=1))
    ends = {"finished": {"b": "length"}, "prefix_hit": {}}
    assert broken("SPY-R55", book, prefill("b", 1, **ends)) is None
    assert broken("SPY-R55", book, prefill("b", 0, **ends)) == (
        "b finds its whole prompt of 8 tokens in the cache"
    )


@pytest.mark.parametrize(
    ("other", "prompt", "known"),
    [
        (owner(), 8, True),
        (owner(), 4, True),
        (owner(), 7, False),
        (owner(), 12, False),
        (owner(10, prompt=8), 8, True),
        (prefilling("a", 4, 8, content=(COMMON,)), 8, False),
        (owner(ended="length"), 8, False),
    ],
    ids=[
        *("the same", "its beginning", "no whole blocks", "longer", "generating"),
        *("not yet computed", "gone"),
    ],
)
def test_the_last_token_is_at_stake_if_somebody_computed_a_prompt_of_whole_blocks(
    other, prompt, known
):
    book = cached(other, newcomer(prompt))
    assert exercised("SPY-R55", book, starts(prompt, 4)) == known
    assert not exercised("SPY-R55", history(other, newcomer(prompt)), starts(prompt, 4))


# SPY-R54: whole chunks


def test_a_chunk_without_a_token_to_compute_takes_no_step():
    book = cached(owner(), newcomer(16))
    assert broken("SPY-R54", book, prefill("b", 1, prefix_hit={"b": 8})) is None
    assert broken("SPY-R54", book, prefill("b", 0, prefix_hit={"b": 8})) == (
        "b runs a chunk all of whose tokens are cached"
    )


@pytest.mark.parametrize(
    ("prompt", "hit", "skipped"),
    [(16, 8, True), (16, 4, False), (16, 0, False), (12, 4, True), (12, 0, False), (8, 8, False)],
    ids=[
        *("a chunk", "half a chunk", "nothing", "a chunk with its padding", "padding alone"),
        "the last chunk",
    ],
)
def test_a_skipped_chunk_is_at_stake_where_hit_and_padding_fill_one(prompt, hit, skipped):
    book = cached(owner(), newcomer(prompt))
    assert exercised("SPY-R54", book, starts(prompt, hit)) == skipped


def test_a_later_chunk_skips_nothing():
    book = cached(owner(), newcomer(24, computed=16, prefix_hit=8, prefill_steps=1))
    assert not exercised("SPY-R54", book, prefill("b", 8, prefix_hit={"b": 8}))


# SPY-R57 and SPY-R60: what must be a hit


@pytest.mark.parametrize(
    ("other", "prompt", "due"),
    [
        (owner(), 12, 8),
        (owner(), 8, 4),
        (owner(), 9, 8),
        (owner(), 4, 0),
        (owner(paused_steps=1), 12, 8),
        (prefilling("a", 7, 8, content=(COMMON,)), 12, 4),
        (decoding("a", 6, content=(("common", 6),)), 12, 4),
        (decoding("a", 9, prompt=6, content=(("common", 6),)), 12, 4),
        (waiting("a", 8, content=(COMMON,)), 12, 0),
        (owner(ended="aborted"), 12, 0),
    ],
    ids=[
        *("all of it", "the last block apart", "a token more", "one block", "paused"),
        *("in prefill", "shares less", "outputs are none", "not started", "gone"),
    ],
)
def test_whole_blocks_of_a_running_prompt_are_found(other, prompt, due):
    book = cached(other, newcomer(prompt), revision="2.5.2")
    assert broken("SPY-R57", book, starts(prompt, due)) is None
    if due:
        assert broken("SPY-R57", book, starts(prompt, due - 4)) == (
            f"b finds {due - 4} tokens in the cache, but a running request has {due}"
        )
    assert exercised("SPY-R57", book, starts(prompt, 0)) == (due > 0)


@pytest.mark.parametrize(("written", "is_own"), [((0, 3), True), ((0, 2), False), ((1, 3), False)])
def test_the_last_block_of_a_cached_prompt_is_written_to_a_block_of_its_own(written, is_own):
    tables = {"a": (1, 2), "b": (1, 3)}
    step = starts(8, 4, slot_blocks={"b": written}, blocks=tables)
    message = broken("SPY-R57", cached(owner(), newcomer(8)), step)
    if is_own:
        assert message is None
    else:
        shared = max({*written} & {1, 2})
        assert message == (
            f"b writes to block {shared}, which a holds as well, instead of a block of its own"
        )


AFTER_OUTPUT = (("common", 6), ("out:a", 3), ("b", 3))


@pytest.mark.parametrize(
    ("computed", "content", "due"),
    [
        (8, AFTER_OUTPUT, 8),
        (7, AFTER_OUTPUT, 4),
        (20, AFTER_OUTPUT, 8),
        (20, (("common", 6), ("b", 6)), 4),
        (20, (("common", 5), ("out:a", 3), ("b", 4)), 4),
    ],
    ids=[
        *("a block of it", "not filled yet", "what is not repeated", "another output"),
        "another place",
    ],
)
def test_whole_blocks_of_generated_tokens_are_found(computed, content, due):
    source = decoding("a", computed, prompt=6, content=(("common", 6),))
    book = cached(source, newcomer(12, content=content))
    assert broken("SPY-R60", book, starts(12, due)) is None
    assert broken("SPY-R60", book, starts(12, due - 4)) == (
        f"b finds {due - 4} tokens in the cache, but must find {due}, including generated ones"
    )
    assert exercised("SPY-R60", book, starts(12, due)) == (due > 4)
    # The prompts alone have one block in common.
    assert broken("SPY-R57", book, starts(12, 4)) is None


@pytest.mark.parametrize("rule", ["SPY-R55", "SPY-R57", "SPY-R60"])
def test_hits_are_judged_in_the_first_step_with_a_cache_and_if_anyone_can_know(rule):
    step = prefill("b", 8, prefix_hit={"b": 0}, finished={})
    off = history(owner(12, prompt=8), newcomer(8))
    assert broken(rule, off, step) is None
    assert not exercised(rule, off, step)
    later = cached(owner(12, prompt=8), newcomer(24, computed=8, prefill_steps=1))
    assert broken(rule, later, step) is None
    assert not exercised(rule, later, step)
    aborted = cached(owner(12, prompt=8), newcomer(8), aborts_inside=["b"])
    unknown = prefill("b", 8, prefix_hit={}, finished={"b": "aborted"})
    assert broken(rule, aborted, unknown) is None


# SPY-R56: what is written


@pytest.mark.parametrize(
    ("prompt", "hit", "held", "written", "message"),
    [
        (16, 4, (3, 9), (0, 9), None),
        (
            16,
            4,
            (3, 9),
            (3, 9),
            "block 0 of b is cached, but written again, to block 3 of the pool",
        ),
        (16, 4, (3, 9), (0, 8), "block 1 of b is 9, but block 8 is written"),
        (16, 4, (3, 9), (0, 0), "block 1 of b is 9, but block 0 is written"),
        (16, 12, (3, 4, 5, 9), (0, 9), None),
        (
            16,
            12,
            (3, 4, 5, 9),
            (5, 9),
            "block 2 of b is cached, but written again, to block 5 of the pool",
        ),
        (12, 4, (3, 8, 9), (8, 9), None),
        (12, 8, (3, 8, 9), (0, 9), None),
        (
            12,
            8,
            (3, 8, 9),
            (8, 9),
            "block 1 of b is cached, but written again, to block 8 of the pool",
        ),
        (8, 0, (3, 4), (3, 4), None),
        (8, 0, (3, 4), (4, 3), "block 0 of b is 3, but block 4 is written"),
        (8, 0, (3,), (3, 4), None),
        (8, 0, (), (3, 0), "block 1 of b is 0, but block 0 is written"),
        (3, 0, (3,), (0, 3), None),
        (3, 0, (3,), (7, 3), None),
        (8, 0, (3, 4), (3,), "b names the block written at 1 of the 2 block positions of a chunk"),
        (8, 0, (3, 4), (), "b names the block written at 0 of the 2 block positions of a chunk"),
    ],
    ids=[
        *("in part", "written again", "another's", "not written", "second chunk"),
        *("second chunk again", "padding fills up", "padding and hit", "padding and hit again"),
        *("no hit", "swapped", "not all shown", "none shown", "padded", "padding is SPY-R11's"),
        *("too few places", "no place"),
    ],
)
def test_cached_blocks_of_a_chunk_are_not_written_and_the_others_are(
    prompt, hit, held, written, message
):
    shown = {"blocks": {"b": held}, "slot_blocks": {"b": written}}
    assert broken("SPY-R56", cached(newcomer(prompt)), starts(prompt, hit, **shown)) == message


def test_a_later_chunk_is_written_to_the_blocks_behind_the_hit():
    book = cached(newcomer(24, computed=8, prefix_hit=4, prefill_steps=1))
    held = {"b": (3, 9, 5, 6)}
    right = prefill("b", 8, blocks=held, slot_blocks={"b": (5, 6)}, prefix_hit={"b": 4})
    assert broken("SPY-R56", book, right) is None
    wrong = prefill("b", 8, blocks=held, slot_blocks={"b": (9, 5)}, prefix_hit={"b": 4})
    assert broken("SPY-R56", book, wrong) == "block 2 of b is 5, but block 9 is written"
    assert not exercised("SPY-R56", book, right)


def test_what_an_unknown_hit_is_written_to_is_not_judged():
    book = cached(newcomer(16), aborts_inside=["b"])
    seen = prefill("b", 8, prefix_hit={}, slot_blocks={"b": (3, 9)}, finished={"b": "aborted"})
    assert broken("SPY-R56", book, seen) is None
    assert not exercised("SPY-R56", book, seen)


@pytest.mark.parametrize(
    ("prompt", "hit", "partly"),
    [(16, 4, True), (16, 0, False), (16, 8, False), (16, 12, True), (12, 4, False), (12, 8, True)],
)
def test_writing_is_at_stake_in_a_chunk_that_is_cached_in_part(prompt, hit, partly):
    book = cached(newcomer(prompt))
    seen = starts(prompt, hit, slot_blocks={"b": (0, 9)})
    assert exercised("SPY-R56", book, seen) == partly
    assert not exercised("SPY-R56", book, starts(prompt, hit))
