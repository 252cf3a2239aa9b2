"""The chunks of a prompt are contiguous, end with the prompt, and skip cached blocks (SPY-R18,
SPY-R54, SPY-R55, SPY-R58).

The lemmas cover every prompt, prefix hit, block size and chunk of whole blocks. A prompt of p
tokens takes ceil(p / block) blocks, with `padding` blocks to their left, and n = ceil(p / chunk)
chunks. `hit` is the number of its cached blocks, which never include the block of its last token.

1. `padding_is_less_than_a_chunk`: padding and prompt fill the n chunks.
2. `chunk_in_turn_belongs_to_prompt`: the chunk that holds the first uncomputed token is one of the
   n chunks.
3. `chunk_holds_next_token`: that chunk begins at or before the token and ends after it.
4. `only_last_chunk_ends_prompt`: chunk n - 1 ends with the prompt; every other chunk ends at a
   chunk boundary.
5. `next_chunk_starts_where_last_ended`: the next chunk has the next number, and begins where this
   one ended. By induction with 2 to 4, a prompt whose first chunk is number f takes n - f steps,
   and every token from the start of chunk f on is computed exactly once.
6. `chunk_number_is_the_same_in_blocks`, `held_prompt_is_the_same_in_blocks`: counting in blocks
   instead of tokens changes neither the number of a chunk, nor whether a given number of blocks can
   hold the prompt. So the lemmas that follow count in blocks.
7. `usable_hit_ends_at_first_chunk`: the usable part of the hit ends where the first chunk begins.
   So no token is left out, and no skipped chunk is computed.
8. `usable_hit_is_as_large_as_possible`: the usable part lies within the hit. If it were one chunk
   larger, it would exceed the hit or include the last chunk.
9. `rest_fits_only_in_last_chunk`: if the computed tokens fill whole blocks, the rest of the prompt
   fits in one chunk if and only if the next chunk is chunk n - 1.

Some releases count tokens as computed before they are (`Revision.counts_ahead`), and choose the
next chunk by that count:

10. `counting_ahead_skips_no_chunk`: the next chunk still has the next number, so 5 holds for them.
11. `counted_tokens_are_covered`: every computed token is counted, and every counted token has a
    block.
12. `prompt_is_counted_with_last_chunk`: the whole prompt is counted if and only if its last chunk
    has been computed.
13. `count_is_less_than_a_chunk_ahead`: so less than a chunk of blocks is published before it is
    computed. `hit_on_uncomputed` returns a scenario with a hit on such blocks (ALL-R08).

`plan`, `usable_blocks` and `progress` mirror functions of `model.spyre.documented` and of the
releases; tests compare them on concrete numbers.
"""

from typing import Any, NamedTuple

import z3

from ...model.scenario import Request, Scenario
from ..smt.numbers import Numbers, negated, tell_multiples
from ..smt.obligation import Obligation, lemma


class Plan(NamedTuple):
    """A prompt and its next chunk.

    `prompt`, `computed`, `start` and `end` are in tokens; `held` (the prompt's blocks) and
    `padding` (to its left) are in blocks. The chunk is number `index` of `chunks`.
    """

    block: Any
    chunk_blocks: Any
    prompt: Any
    computed: Any
    held: Any
    padding: Any
    chunks: Any
    index: Any
    start: Any
    end: Any

    @property
    def chunk(self) -> Any:
        return _normal_form(self.chunk_blocks * self.block)


def plan(
    numbers: Numbers, sizes: tuple[Any, Any], prompt: Any, computed: Any, padding_more: int = 0
) -> Plan:
    """Return the chunk that `documented.next_chunk` plans, with `padding_more` additional blocks of
    padding."""
    block, chunk_blocks = sizes
    chunk = _normal_form(chunk_blocks * block)
    before, _ = numbers.split(prompt - 1, chunk, None)
    whole, _ = numbers.split(prompt - 1, block, None)
    padding = (before + 1) * chunk_blocks - (whole + 1) + padding_more
    index, _ = numbers.split(_normal_form(padding * block + computed), chunk, None)
    start = _larger(index * chunk - padding * block, 0)
    end = _smaller((index + 1) * chunk - padding * block, prompt)
    return Plan(
        block, chunk_blocks, prompt, computed, whole + 1, padding, before + 1, index, start, end
    )


def usable_blocks(numbers: Numbers, padding: Any, hit: Any, chunks: Any, chunk_blocks: Any) -> Any:
    whole, _ = numbers.split(_normal_form(padding + hit), chunk_blocks, None)
    return _larger(_smaller(whole, chunks - 1) * chunk_blocks - padding, 0)


def progress(planned: Plan, prefix_hit: Any, whole_first_chunk: bool) -> tuple[Any, Any]:
    """Return how many tokens are counted, and how many have blocks, after the planned chunk. The
    counts are those of `progress` in 2.1.2 (`whole_first_chunk`) or in 2.5.2."""
    padding = planned.padding * planned.block
    given = _smaller(planned.computed + planned.chunk, planned.prompt)
    cut = _smaller(planned.computed + planned.chunk - padding, planned.prompt)
    first = z3.And(planned.computed == prefix_hit, prefix_hit < planned.chunk - padding)
    if whole_first_chunk:
        return z3.If(z3.And(first, prefix_hit == 0), cut, given), given
    counted = z3.If(first, cut, given)
    return counted, counted


def _normal_form(number: Any) -> Any:
    """Return the number in Z3's normal form, so that equal numbers share one division."""
    return z3.simplify(number) if z3.is_expr(number) else number


def _larger(number: Any, other: Any) -> Any:
    return z3.If(number > other, number, other)


def _smaller(number: Any, other: Any) -> Any:
    return z3.If(number < other, number, other)


class Sizes(NamedTuple):
    """The size of a block in tokens and of a chunk in blocks; None means any size."""

    block: int | None
    chunk_blocks: int | None

    def in_blocks(self) -> "Sizes":
        """Return the sizes for lemmas that count in blocks."""
        return Sizes(1, self.chunk_blocks)


def obligations(block: int | None = None, chunk_blocks: int | None = None) -> list[Obligation]:
    sizes = Sizes(block, chunk_blocks)
    lemmas = [make(sizes) for make in LEMMAS]
    return lemmas + [
        make(sizes, release) for release in ("2.1.2", "2.5.2") for make in LEMMAS_AHEAD
    ]


def _symbols(numbers: Numbers, sizes: Sizes) -> tuple[Any, Any]:
    block, chunk_blocks = (
        numbers.fresh(name, 1) if given is None else given
        for name, given in zip(("block", "chunk_blocks"), sizes, strict=True)
    )
    return block, chunk_blocks


def _any_plan(sizes: Sizes, all_cached: int = 0, padding_more: int = 0) -> tuple[Numbers, Plan]:
    """Return an arbitrary prompt, some whole blocks of which are computed. With `all_cached`, these
    blocks may include its last token."""
    numbers = Numbers()
    block, chunk_blocks = _symbols(numbers, sizes)
    prompt, done = numbers.fresh("prompt", 1), numbers.fresh("done", 0)
    numbers.facts.append(done * block < prompt + all_cached)
    return numbers, plan(numbers, (block, chunk_blocks), prompt, done * block, padding_more)


@lemma("Of two numbers of chunks, the larger is larger by at least one whole chunk.")
def more_chunks_are_one_chunk_more(sizes: Sizes, more: int) -> list[Any]:
    numbers = Numbers()
    _, chunk = _symbols(numbers, sizes)
    first, other = numbers.fresh("one", 0), numbers.fresh("other", 0)
    numbers.facts.append(first > other)
    return negated(numbers, first * chunk >= (other + 1) * chunk + more)


@lemma("Padding and prompt fill whole chunks, and less than a chunk is padding.")
def padding_is_less_than_a_chunk(sizes: Sizes, less: int) -> list[Any]:
    numbers, planned = _any_plan(sizes)
    filled = planned.padding + planned.held == planned.chunks * planned.chunk_blocks
    part = z3.And(planned.padding >= 0, planned.padding < planned.chunk_blocks - less)
    return negated(numbers, z3.And(filled, part))


@lemma("The next chunk to compute is one of the prompt's chunks, unless the last token is cached.")
def chunk_in_turn_belongs_to_prompt(sizes: Sizes, more: int) -> list[Any]:
    numbers, planned = _any_plan(sizes, all_cached=more)
    return negated(numbers, planned.index <= planned.chunks - 1)


@lemma("The next chunk to compute contains the next token, and is not larger than chunk_size.")
def chunk_holds_next_token(sizes: Sizes, less: int) -> list[Any]:
    numbers, planned = _any_plan(sizes)
    begins = z3.And(planned.start >= 0, planned.start <= planned.computed)
    ends = z3.And(planned.computed < planned.end - less, planned.end <= planned.prompt)
    return negated(numbers, z3.And(begins, ends, planned.end - planned.start <= planned.chunk))


@lemma("Only the last chunk ends with the prompt; every other one ends on a chunk border.")
def only_last_chunk_ends_prompt(sizes: Sizes, more: int) -> list[Any]:
    numbers, planned = _any_plan(sizes, padding_more=more)
    border = (planned.index + 1) * planned.chunk == planned.padding * planned.block + planned.end
    last = planned.index == planned.chunks - 1
    return negated(numbers, z3.And((planned.end == planned.prompt) == last, z3.Or(last, border)))


@lemma("The next chunk has the next number and begins where this one ended.")
def next_chunk_starts_where_last_ended(sizes: Sizes, less: int) -> list[Any]:
    numbers, planned = _any_plan(sizes)
    then = plan(numbers, (planned.block, planned.chunk_blocks), planned.prompt, planned.end - less)
    tell_multiples(numbers, planned.chunk, planned.chunks - 1, planned.index, then.index)
    meet = z3.And(then.index == planned.index + 1, then.start == planned.end)
    return negated(numbers, z3.Implies(planned.end < planned.prompt, meet))


@lemma("The number of a chunk is the same, whether counted in tokens or in blocks.")
def chunk_number_is_the_same_in_blocks(sizes: Sizes, more: int) -> list[Any]:
    numbers = Numbers()
    block, chunk_blocks = _symbols(numbers, sizes)
    place = numbers.fresh("place", 0)
    in_tokens, _ = numbers.split(place * block, chunk_blocks * block, None)
    in_blocks, _ = numbers.split(place + more, chunk_blocks, None)
    return negated(numbers, in_tokens == in_blocks)


@lemma("Whole blocks have room for the prompt if and only if the prompt needs no more blocks.")
def held_prompt_is_the_same_in_blocks(sizes: Sizes, more: int) -> list[Any]:
    numbers, planned = _any_plan(sizes)
    blocks = numbers.fresh("blocks", 0)
    return negated(
        numbers, (blocks * planned.block + more >= planned.prompt) == (blocks >= planned.held)
    )


@lemma("The usable part of a hit ends where the first chunk begins.")
def usable_hit_ends_at_first_chunk(sizes: Sizes, more: int) -> list[Any]:
    numbers, planned = _any_plan(sizes.in_blocks())
    usable = usable_blocks(
        numbers, planned.padding, planned.computed + more, planned.chunks, planned.chunk_blocks
    )
    return negated(numbers, usable == planned.start)


@lemma("The usable part is within the hit; another chunk would exceed the hit or be the last one.")
def usable_hit_is_as_large_as_possible(sizes: Sizes, less: int) -> list[Any]:
    numbers, planned = _any_plan(sizes.in_blocks())
    usable = usable_blocks(
        numbers, planned.padding, planned.computed, planned.chunks, planned.chunk_blocks
    )
    further = (planned.index + 1) * planned.chunk_blocks - planned.padding
    most = z3.Or(further > planned.computed + less, planned.index == planned.chunks - 1)
    return negated(numbers, z3.And(usable >= 0, usable <= planned.computed, most))


@lemma(
    "After whole blocks, the rest of the prompt fits in a chunk exactly when that chunk is the "
    "last."
)
def rest_fits_only_in_last_chunk(sizes: Sizes, more: int) -> list[Any]:
    numbers, planned = _any_plan(sizes.in_blocks())
    fits = planned.prompt - planned.computed <= planned.chunk + more
    return negated(numbers, fits == (planned.index == planned.chunks - 1))


def _counted_ahead(sizes: Sizes, release: str) -> tuple[Numbers, Plan, Any, Any]:
    """Return the plan of an arbitrary chunk, in blocks, and how many blocks are counted and
    allocated after the chunk."""
    numbers, planned = _any_plan(sizes.in_blocks())
    prefix_hit = numbers.fresh("prefix_hit", 0)
    numbers.facts.append(prefix_hit <= planned.computed)
    return numbers, planned, *progress(planned, prefix_hit, release == "2.1.2")


@lemma(
    "Counting ahead neither skips nor repeats a chunk.",
    name="counting_ahead_skips_no_chunk_{release}",
)
def counting_ahead_skips_no_chunk(sizes: Sizes, release: str, more: int) -> list[Any]:
    numbers, planned, counted, _ = _counted_ahead(sizes, release)
    then = plan(numbers, (planned.block, planned.chunk_blocks), planned.prompt, counted + more)
    tell_multiples(numbers, planned.chunk, planned.chunks - 1, planned.index, then.index)
    meet = z3.And(then.index == planned.index + 1, then.start == planned.end)
    return negated(numbers, z3.Implies(counted < planned.prompt, meet))


@lemma(
    "Computed tokens are counted, and counted tokens have blocks.",
    name="counted_tokens_are_covered_{release}",
)
def counted_tokens_are_covered(sizes: Sizes, release: str, less: int) -> list[Any]:
    numbers, planned, counted, covered = _counted_ahead(sizes, release)
    within = z3.And(counted <= covered, covered <= planned.prompt)
    return negated(numbers, z3.And(planned.end <= counted - less, within))


@lemma(
    "The whole prompt is counted exactly when its last chunk is computed.",
    name="prompt_is_counted_with_last_chunk_{release}",
)
def prompt_is_counted_with_last_chunk(sizes: Sizes, release: str, more: int) -> list[Any]:
    numbers, planned, counted, _ = _counted_ahead(sizes, release)
    return negated(
        numbers, (counted + more >= planned.prompt) == (planned.index == planned.chunks - 1)
    )


@lemma(
    "Counted tokens, and blocks, are less than a chunk ahead of the computed tokens.",
    name="count_is_less_than_a_chunk_ahead_{release}",
)
def count_is_less_than_a_chunk_ahead(sizes: Sizes, release: str, less: int) -> list[Any]:
    numbers, planned, _, covered = _counted_ahead(sizes, release)
    return negated(numbers, covered - planned.end < planned.chunk - less)


LEMMAS = (
    more_chunks_are_one_chunk_more,
    padding_is_less_than_a_chunk,
    chunk_in_turn_belongs_to_prompt,
    chunk_holds_next_token,
    only_last_chunk_ends_prompt,
    next_chunk_starts_where_last_ended,
    chunk_number_is_the_same_in_blocks,
    held_prompt_is_the_same_in_blocks,
    usable_hit_ends_at_first_chunk,
    usable_hit_is_as_large_as_possible,
    rest_fits_only_in_last_chunk,
)
LEMMAS_AHEAD = (
    counting_ahead_skips_no_chunk,
    counted_tokens_are_covered,
    prompt_is_counted_with_last_chunk,
    count_is_less_than_a_chunk_ahead,
)


def hit_on_uncomputed(block: int, chunk_blocks: int, revision: str = "2.5.2") -> Scenario:
    """Return a scenario with a hit on blocks that were counted as computed, but were never
    computed.

    A prompt of two chunks is cached except for one block of its first chunk, and is aborted after
    that chunk. By then, the scheduler has counted more blocks than are computed. The excess is one
    block less than a chunk, which is the maximum (`count_is_less_than_a_chunk_ahead`). The next
    prompt hits all of these blocks.
    """
    chunk = block * chunk_blocks
    cached, whole = chunk - block, 2 * chunk
    return Scenario(
        system="spyre",
        revision=revision,
        config={
            "block_size": block,
            "chunk_size": chunk,
            "max_model_len": 4 * chunk,
            "prefix_caching": True,
        },
        requests=(
            Request(id="r0", arrival=0, prompt=(("p", cached),), max_tokens=1),
            Request(id="r1", arrival=0, prompt=(("p", whole),), max_tokens=1, abort_at=2),
            Request(id="r2", arrival=2, prompt=(("p", whole),), max_tokens=1),
        ),
        origin={"engine": "hand", "note": "counted before they are computed", "seed": None},
    )
