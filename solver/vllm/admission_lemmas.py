"""Every admitted request can finish, and if no request runs, the first in line is admitted
(V1CP-R19, V1CP-R20, V1CP-R22), for any numbers.

The check of a request on arrival, called the front door in the names of lemmas, accepts a request
only if prompt + max_tokens - 1 tokens fit in the pool. The known tokens of a request are its prompt
and the tokens generated so far.

1. `holdings_never_exceed_front_door`: a request computes only known tokens, and never the last one
   that it generates. So it never holds more blocks than this check assumed.
2. `lone_running_request_can_grow`: so a request that runs alone finds blocks for its next tokens,
   since all blocks that it does not hold are free. It is never preempted, and finishes.
3. `first_in_line_is_admitted_alone`: if no request runs, the first in line passes the gate,
   whatever it finds in the cache, with or without `reserve_full_isl`. The watermark does not apply
   in this case.
4. `admitted_request_finds_first_blocks`: a request that passes the gate finds the blocks of its
   first chunk. Cached blocks that no request holds stop being free when it is admitted, so they
   count as needed.
5. `admission_leaves_watermark_free`: while another request runs, the watermark's blocks are still
   free after an admission.
6. `rest_of_admitted_prompt_is_free`: with `reserve_full_isl`, blocks for all known tokens of an
   admitted request are free. The watermark's blocks are free in addition to these
   (`rest_and_watermark_are_free`).
7. `later_chunks_find_room`: so every chunk of the tokens known at admission finds its blocks, as
   long as other requests take no more blocks than they give back. Blocks for tokens generated later
   are never promised, which is why preemption exists.
8. `full_pool_never_runs_out`: a pool for max_num_seqs requests of max_model_len never runs out, so
   no request is preempted. The chapter's other advice against preemption does not always hold (see
   `anomalies`).

So with or without `reserve_full_isl`, every admitted request could finish alone (1, 2). If no
request runs, the first in line is not kept out (3), because the scheduler then asks for its blocks
(`code_admits_first_in_line_N`). `progress_lemmas` continues the argument.

Each guard removes a block or adds a token.
"""

from typing import Any, NamedTuple

import z3

from ..smt.numbers import Numbers, negated
from ..smt.obligation import Obligation, lemma
from .symbols import SymbolicRequest, block_of, blocks, make_numbers, some, tell_order, unfinished


def obligations(block: int | None = None) -> list[Obligation]:
    size = block_of(block)
    return [make(size) for make in LEMMAS]


class Gate(NamedTuple):
    """`model.vllm.kv_cache.admit` in symbols.

    Attributes:
        request: the request that waits first in line.
        free: the number of free blocks; at least `reserve` of them must stay free.
        hit: the number of cached blocks that it finds. No request holds `idle` of them.
        tokens: the tokens of its first chunk.
        passes: whether it is admitted.
        left: the number of free blocks after its admission.
    """

    request: SymbolicRequest
    free: Any
    reserve: Any
    hit: Any
    idle: Any
    tokens: Any
    passes: Any
    left: Any


def gate(numbers: Numbers, block: Any, whole: Any, counted: Any = None) -> Gate:
    """Return the gate for an arbitrary request. `whole` is the setting reserve_full_isl.

    `counted` is the number of idle hits that count as needed, or None for all of them.
    """
    request = unfinished(numbers)
    free, reserve = some(numbers, "free"), some(numbers, "reserve")
    hit, idle, tokens = some(numbers, "hit"), some(numbers, "idle"), some(numbers, "tokens", 1)
    covered = hit * block + tokens
    numbers.facts += [covered <= request.known, idle <= hit, idle <= free]
    needed = z3.If(whole, request.known, covered)
    missing = blocks(numbers, block, needed) - hit + (idle if counted is None else counted(idle))
    first = blocks(numbers, block, covered)
    tell_block_order(numbers, block, hit, request.known, needed, covered)
    left = free - idle - (first - hit)
    return Gate(request, free, reserve, hit, idle, tokens, missing + reserve <= free, left)


def tell_block_order(numbers: Numbers, block: Any, whole: Any, *tokens: Any) -> None:
    """Tell Z3 how the numbers of blocks for these tokens compare with one another and with
    `whole`."""
    counts = [blocks(numbers, block, number) for number in tokens]
    tell_order(numbers, block, whole, *(count - 1 for count in counts))


@lemma("Of two numbers of blocks, the larger holds at least one block of tokens more.")
def more_blocks_are_one_block_more(block: Any, more: int) -> list[Any]:
    numbers = make_numbers(block)
    first, other = some(numbers, "one"), some(numbers, "other")
    numbers.facts.append(first > other)
    return negated(numbers, first * block >= (other + 1) * block + more)


def at_the_door(numbers: Numbers, block: Any, request: SymbolicRequest) -> Any:
    """Return the size of an arbitrary pool that is large enough for the request alone."""
    pool = some(numbers, "pool", 1)
    numbers.facts.append(blocks(numbers, block, request.longest) <= pool)
    return pool


@lemma("No request ever holds more blocks than the check on arrival assumed.")
def holdings_never_exceed_front_door(block: Any, more: int) -> list[Any]:
    numbers = make_numbers(block)
    request = unfinished(numbers, more)
    pool = at_the_door(numbers, block, request)
    covered = some(numbers, "covered", 1)
    numbers.facts.append(covered <= request.known)
    tell_block_order(numbers, block, pool, covered, request.longest)
    return negated(numbers, blocks(numbers, block, covered) <= pool)


@lemma("A request that runs alone finds blocks for its next tokens.")
def lone_running_request_can_grow(block: Any, reserve: int) -> list[Any]:
    numbers = make_numbers(block)
    request = unfinished(numbers)
    pool = at_the_door(numbers, block, request)
    computed, tokens = some(numbers, "computed", 1), some(numbers, "tokens", 1)
    numbers.facts.append(computed + tokens <= request.known)
    held = blocks(numbers, block, computed)
    missing = blocks(numbers, block, computed + tokens) - held
    tell_block_order(numbers, block, pool, computed, computed + tokens, request.longest)
    return negated(numbers, z3.And(held <= pool, missing + reserve <= pool - held))


@lemma("If no request runs, the request that is first in line is admitted.")
def first_in_line_is_admitted_alone(block: Any, reserve: int) -> list[Any]:
    """Make the lemma's claim or, if `reserve` is 1, the guard's claim, which must fail: the
    watermark applies although no request runs."""
    numbers = make_numbers(block)
    entry = gate(numbers, block, z3.Bool("whole"))
    pool = at_the_door(numbers, block, entry.request)
    # No request holds a block, so all are free, including cached ones.
    numbers.facts += [entry.free == pool, entry.idle == entry.hit, entry.reserve == reserve]
    request, covered = entry.request, entry.hit * block + entry.tokens
    tell_block_order(numbers, block, entry.hit, request.known, request.longest, covered)
    return negated(numbers, entry.passes)


@lemma("A request that passes the gate finds the blocks of its first chunk free.")
def admitted_request_finds_first_blocks(block: Any, uncounted: int) -> list[Any]:
    """Make the lemma's claim or, if `uncounted` is 1, the guard's claim, which must fail: one idle
    hit does not count as needed."""
    numbers = make_numbers(block)
    entry = gate(numbers, block, z3.Bool("whole"), lambda idle: idle - uncounted)
    numbers.facts.append(entry.passes)
    return negated(numbers, entry.left >= 0)


@lemma("If other requests run, the watermark's blocks are still free after an admission.")
def admission_leaves_watermark_free(block: Any, more: int) -> list[Any]:
    numbers = make_numbers(block)
    entry = gate(numbers, block, z3.Bool("whole"))
    numbers.facts.append(entry.passes)
    return negated(numbers, entry.left >= entry.reserve + more)


@lemma("With reserve_full_isl, blocks for all known tokens of an admitted request are free.")
def rest_of_admitted_prompt_is_free(block: Any, chunk_only: int) -> list[Any]:
    return _rest_is_free(block, chunk_only, with_reserve=False)


@lemma("With reserve_full_isl, the watermark's blocks are free in addition to these.")
def rest_and_watermark_are_free(block: Any, chunk_only: int) -> list[Any]:
    return _rest_is_free(block, chunk_only, with_reserve=True)


def _rest_is_free(block: Any, chunk_only: int, *, with_reserve: bool) -> list[Any]:
    """Claim that blocks for all known tokens are free after an admission. With `chunk_only`, the
    gate considers only the first chunk, as without reserve_full_isl."""
    numbers = make_numbers(block)
    entry = gate(numbers, block, z3.BoolVal(not chunk_only))
    numbers.facts.append(entry.passes)
    rest = blocks(numbers, block, entry.request.known)
    rest -= blocks(numbers, block, entry.hit * block + entry.tokens)
    return negated(numbers, entry.left >= rest + (entry.reserve if with_reserve else 0))


@lemma("If no other request takes blocks, each later chunk of known tokens finds its blocks.")
def later_chunks_find_room(block: Any, more: int) -> list[Any]:
    """Make the lemma's claim or, if `more` is 1, the guard's claim, which must fail: the request
    computes one token more than was known at its admission."""
    numbers = make_numbers(block)
    known, computed = some(numbers, "known", 1), some(numbers, "computed", 1)
    free, tokens = some(numbers, "free"), some(numbers, "tokens", 1)
    held = blocks(numbers, block, computed)
    numbers.facts.append(free >= blocks(numbers, block, known) - held)
    numbers.facts += [computed <= known, computed + tokens <= known + more]
    grown = blocks(numbers, block, computed + tokens)
    tell_block_order(numbers, block, z3.IntVal(0), known, computed, computed + tokens)
    left = free - (grown - held)
    kept = left >= blocks(numbers, block, known) - grown
    return negated(numbers, z3.And(grown - held <= free, kept))


@lemma("A pool for max_num_seqs requests of max_model_len tokens never runs out.")
def full_pool_never_runs_out(block: Any, less: int) -> list[Any]:
    numbers = Numbers()
    # the blocks of one request
    slots, longest = some(numbers, "slots", 1), some(numbers, "longest", 1)
    others, held, missing = (some(numbers, name) for name in ("others", "held", "missing"))
    numbers.facts += [others <= (slots - 1) * longest, held + missing <= longest]
    return negated(numbers, missing <= slots * longest - less - others - held)


LEMMAS = (
    more_blocks_are_one_block_more,
    holdings_never_exceed_front_door,
    lone_running_request_can_grow,
    first_in_line_is_admitted_alone,
    admitted_request_finds_first_blocks,
    admission_leaves_watermark_free,
    rest_of_admitted_prompt_is_free,
    rest_and_watermark_are_free,
    later_chunks_find_room,
    full_pool_never_runs_out,
)
