"""Why the chunks of a prompt meet, end with it and skip what is cached: SPY-R18, R54, R55, R58.

For every prompt, prefix hit, block size and chunk of whole blocks. The argument. A prompt of p
tokens lies in ceil(p / block) blocks behind `left` blocks of padding, and in n = ceil(p / chunk)
chunks. `hit` are its cached blocks, the block of its last token never among them.

1. `left_padding`: padding and prompt fill the n chunks, and the padding is less than a chunk.
2. `last_never_cached`: the chunk of the first token that is not cached is one of the n.
3. `progress`: that chunk begins at or before this token and ends after it.
4. `ends_with_prompt`: a chunk ends with the prompt if it is number n - 1, else on a chunk border.
5. `chunks_meet`: the chunk after it has the next number and begins where it ended. With 2 to 4 by
   induction: a prompt takes n - (number of its first chunk) steps, and computes each token behind
   its first chunk's start once.
6. `index_in_blocks`, `held_in_blocks`: counted in blocks the number of a chunk is the same, and so
   is whether whole blocks hold the prompt. So what follows is shown in blocks.
7. `usable_ends_at_first`: the usable part of the hit ends where the first chunk begins: nothing
   between them is left out, and no chunk that is skipped is computed.
8. `usable_is_all`: it lies within the hit, and a chunk more would leave it or be the last.
9. `last_chunk_test`: what is left fits in a chunk exactly in chunk n - 1, if whole blocks are done.

Releases that count ahead of what they compute (`Revision.counts_ahead`) choose the next chunk by
what they count:

10. `ahead_no_gap`: the next chunk still has the next number, so 5 holds for them.
11. `ahead_covers`: what is computed is counted, and what is counted has its blocks.
12. `ahead_ends`: all of the prompt is counted exactly when its last chunk is computed.
13. `ahead_less_than_chunk`: what is counted, or has blocks, is less than a chunk ahead. That much
    is published without being computed: `chunk_search` shows a request that hits it.

Each guard takes a token or a block away from the same claim.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import z3

from ..smt.numbers import Numbers, negated, ordered
from ..smt.obligation import Obligation
from .chunks import Plan, plan, progress, usable_blocks


class Sizes(NamedTuple):
    """Tokens of a block and blocks of a chunk; None: of any size, by symbols."""

    block: int | None
    chunk_blocks: int | None

    def in_blocks(self) -> "Sizes":
        """The sizes where everything is counted in blocks."""
        return Sizes(1, self.chunk_blocks)


def obligations(block: int | None = None, chunk_blocks: int | None = None) -> list[Obligation]:
    """Everything that has to be shown, in the argument's order."""
    sizes = Sizes(block, chunk_blocks)
    found = [
        Obligation(name, sentence, partial(lemma, sizes, 0), partial(lemma, sizes, 1))
        for name, (sentence, lemma) in LEMMAS.items()
    ]
    for release, whole in (("2.1.2", True), ("2.5.2", False)):
        found += [
            Obligation(
                f"{name}_{release}",
                sentence,
                partial(lemma, sizes, whole, 0),
                partial(lemma, sizes, whole, 1),
            )
            for name, (sentence, lemma) in LEMMAS_AHEAD.items()
        ]
    return found


def _symbols(numbers: Numbers, sizes: Sizes) -> tuple[Any, Any]:
    """The sizes, those of any value as symbols."""
    block, chunk_blocks = (
        numbers.fresh(name, 1, None) if given is None else given
        for name, given in zip(("block", "chunk_blocks"), sizes, strict=True)
    )
    return block, chunk_blocks


def _any_plan(sizes: Sizes, all_cached: int = 0, padding_more: int = 0) -> tuple[Numbers, Plan]:
    """A prompt with some whole blocks done; `all_cached`: its last token may be among them."""
    numbers = Numbers()
    block, chunk_blocks = _symbols(numbers, sizes)
    prompt, done = numbers.fresh("prompt", 1, None), numbers.fresh("done", 0, None)
    numbers.facts.append(done * block < prompt + all_cached)
    return numbers, plan(numbers, (block, chunk_blocks), prompt, done * block, padding_more)


def _more_chunks(sizes: Sizes, more: int) -> list[Any]:
    numbers = Numbers()
    _, chunk = _symbols(numbers, sizes)
    one, other = numbers.fresh("one", 0, None), numbers.fresh("other", 0, None)
    numbers.facts.append(one > other)
    return negated(numbers, one * chunk >= (other + 1) * chunk + more)


def _left_padding(sizes: Sizes, less: int) -> list[Any]:
    numbers, one = _any_plan(sizes)
    filled = one.left + one.held == one.chunks * one.chunk_blocks
    part = z3.And(one.left >= 0, one.left < one.chunk_blocks - less)
    return negated(numbers, z3.And(filled, part))


def _last_never_cached(sizes: Sizes, more: int) -> list[Any]:
    numbers, one = _any_plan(sizes, all_cached=more)
    return negated(numbers, one.index <= one.chunks - 1)


def _progress(sizes: Sizes, less: int) -> list[Any]:
    numbers, one = _any_plan(sizes)
    begins = z3.And(one.start >= 0, one.start <= one.computed)
    ends = z3.And(one.computed < one.end - less, one.end <= one.prompt)
    return negated(numbers, z3.And(begins, ends, one.end - one.start <= one.chunk))


def _ends_with_prompt(sizes: Sizes, more: int) -> list[Any]:
    numbers, one = _any_plan(sizes, padding_more=more)
    border = (one.index + 1) * one.chunk == one.left * one.block + one.end
    last = one.index == one.chunks - 1
    return negated(numbers, z3.And((one.end == one.prompt) == last, z3.Or(last, border)))


def _chunks_meet(sizes: Sizes, less: int) -> list[Any]:
    numbers, one = _any_plan(sizes)
    then = plan(numbers, (one.block, one.chunk_blocks), one.prompt, one.end - less)
    ordered(numbers, one.chunk, one.chunks - 1, one.index, then.index)
    meet = z3.And(then.index == one.index + 1, then.start == one.end)
    return negated(numbers, z3.Implies(one.end < one.prompt, meet))


def _index_in_blocks(sizes: Sizes, more: int) -> list[Any]:
    numbers = Numbers()
    block, chunk_blocks = _symbols(numbers, sizes)
    place = numbers.fresh("place", 0, None)
    in_tokens, _ = numbers.split(place * block, chunk_blocks * block, None)
    in_blocks, _ = numbers.split(place + more, chunk_blocks, None)
    return negated(numbers, in_tokens == in_blocks)


def _held_in_blocks(sizes: Sizes, more: int) -> list[Any]:
    numbers, one = _any_plan(sizes)
    blocks = numbers.fresh("blocks", 0, None)
    return negated(numbers, (blocks * one.block + more >= one.prompt) == (blocks >= one.held))


def _usable_ends_at_first(sizes: Sizes, more: int) -> list[Any]:
    numbers, one = _any_plan(sizes.in_blocks())
    usable = usable_blocks(numbers, one.left, one.computed + more, one.chunks, one.chunk_blocks)
    return negated(numbers, usable == one.start)


def _usable_is_all(sizes: Sizes, less: int) -> list[Any]:
    numbers, one = _any_plan(sizes.in_blocks())
    usable = usable_blocks(numbers, one.left, one.computed, one.chunks, one.chunk_blocks)
    further = (one.index + 1) * one.chunk_blocks - one.left
    most = z3.Or(further > one.computed + less, one.index == one.chunks - 1)
    return negated(numbers, z3.And(usable >= 0, usable <= one.computed, most))


def _last_chunk_test(sizes: Sizes, more: int) -> list[Any]:
    numbers, one = _any_plan(sizes.in_blocks())
    fits = one.prompt - one.computed <= one.chunk + more
    return negated(numbers, fits == (one.index == one.chunks - 1))


def _counted_ahead(sizes: Sizes, whole_first_chunk: bool) -> tuple[Numbers, Plan, Any, Any]:
    """A chunk in blocks, the first or a later one, and what is counted and covered after it."""
    numbers, one = _any_plan(sizes.in_blocks())
    prefix_hit = numbers.fresh("prefix_hit", 0, None)
    numbers.facts.append(prefix_hit <= one.computed)
    return numbers, one, *progress(one, prefix_hit, whole_first_chunk)


def _ahead_no_gap(sizes: Sizes, whole_first_chunk: bool, more: int) -> list[Any]:
    numbers, one, counted, _ = _counted_ahead(sizes, whole_first_chunk)
    then = plan(numbers, (one.block, one.chunk_blocks), one.prompt, counted + more)
    ordered(numbers, one.chunk, one.chunks - 1, one.index, then.index)
    meet = z3.And(then.index == one.index + 1, then.start == one.end)
    return negated(numbers, z3.Implies(counted < one.prompt, meet))


def _ahead_covers(sizes: Sizes, whole_first_chunk: bool, less: int) -> list[Any]:
    numbers, one, counted, covered = _counted_ahead(sizes, whole_first_chunk)
    within = z3.And(counted <= covered, covered <= one.prompt)
    return negated(numbers, z3.And(one.end <= counted - less, within))


def _ahead_ends(sizes: Sizes, whole_first_chunk: bool, more: int) -> list[Any]:
    numbers, one, counted, _ = _counted_ahead(sizes, whole_first_chunk)
    return negated(numbers, (counted + more >= one.prompt) == (one.index == one.chunks - 1))


def _ahead_less_than_chunk(sizes: Sizes, whole_first_chunk: bool, less: int) -> list[Any]:
    numbers, one, _, covered = _counted_ahead(sizes, whole_first_chunk)
    return negated(numbers, covered - one.end < one.chunk - less)


Lemma = Callable[..., list[Any]]

LEMMAS: dict[str, tuple[str, Lemma]] = {
    "more_chunks": ("More chunks are at least one chunk more.", _more_chunks),
    "left_padding": (
        "Padding and prompt fill whole chunks, and less than a chunk is padding.",
        _left_padding,
    ),
    "last_never_cached": (
        "The chunk in turn is one of the prompt's, as long as its last token is not cached.",
        _last_never_cached,
    ),
    "progress": (
        "The chunk in turn holds the next token to compute, and no more than a chunk.",
        _progress,
    ),
    "ends_with_prompt": (
        "Only the last chunk ends with the prompt; every other one ends on a chunk border.",
        _ends_with_prompt,
    ),
    "chunks_meet": (
        "The next chunk has the next number and begins where this one ended.",
        _chunks_meet,
    ),
    "index_in_blocks": (
        "The number of a chunk is the same, counted in tokens and in blocks.",
        _index_in_blocks,
    ),
    "held_in_blocks": (
        "Whole blocks hold the prompt exactly if they are no fewer than its own.",
        _held_in_blocks,
    ),
    "usable_ends_at_first": (
        "The usable part of a hit ends where the first chunk begins.",
        _usable_ends_at_first,
    ),
    "usable_is_all": (
        "The usable part lies within the hit; with a chunk more it would not, or be the prompt.",
        _usable_is_all,
    ),
    "last_chunk_test": (
        "With whole blocks done, what is left fits in a chunk exactly in the last chunk.",
        _last_chunk_test,
    ),
}
LEMMAS_AHEAD: dict[str, tuple[str, Lemma]] = {
    "ahead_no_gap": ("Counting ahead leaves out no chunk and repeats none.", _ahead_no_gap),
    "ahead_covers": ("What is computed is counted, and what is counted has blocks.", _ahead_covers),
    "ahead_ends": (
        "The whole prompt is counted exactly when its last chunk is computed.",
        _ahead_ends,
    ),
    "ahead_less_than_chunk": (
        "What is counted, or has blocks, is less than a chunk ahead of what is computed.",
        _ahead_less_than_chunk,
    ),
}
