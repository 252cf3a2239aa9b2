"""No more blocks are promised than are free (SPY-R50).

The need of an admitted request is the largest number of blocks that it ever holds. Those blocks of
its need that it does not hold yet are promised to it. The invariant is that all promised blocks
together, including those kept for aborted requests (SPY-P02), are no more than the free blocks.
`others` is the sum over all requests except the current one, so the number of requests does not
appear in the arithmetic. The code runs with one or two of them; `code_adds_each_promise` is about
one iteration of the loop that adds up the promises, after any number of others.

1. `holdings_never_exceed_need`: with its hit, chunks and decode steps, a request never has more
   computed tokens than its prompt and max_tokens minus one.
2. `admission_keeps_promises_covered`: a request that passes the test `need - shared <= free -
   promised` keeps the invariant, and finds the blocks of its first chunk free. `shared` counts the
   hit blocks that another request holds. Hit blocks that no request holds (`idle`) are taken from
   the free ones. If the other holders leave later, shared blocks stay with the newcomer.
3. `growth_keeps_promises_covered`: a request that takes blocks within its need keeps the invariant,
   and finds these blocks free.
4. `leaving_keeps_promises_covered`: a request that ends, or that is aborted inside a step, keeps
   the invariant: its promises end, and shared blocks stay held.
5. `abort_keeps_promises_covered`: an abort keeps the invariant even if the promise is never
   withdrawn, because at least as many blocks are given back.

Publishing and pausing do not change which blocks are held. A hit lowers the number of free blocks
by exactly `idle`, and a request that leaves raises it by the blocks that no other request holds.
All of this follows from rule ALL-R09, which exploration checks. The lemmas about the code
(`promise_lemmas`) claim this rule for the requests with which they run. On 2.5.2, these requests
may be paused.

About admission when nothing is held or promised:

6. `lone_request_is_admitted`: a request that the check on arrival accepts passes.
   `lone_request_is_admitted_with_last_token`: the same if the last token is promised a block as
   well (release 2.5.2), with that release's own check on arrival.
"""

from typing import Any

import z3

from ...model.scenario import Request, Scenario
from ..smt.numbers import Numbers, negated
from ..smt.obligation import Obligation, lemma
from .symbolic_admission import Lengths, blocks, lengths_of, make_numbers


def obligations(block: int | None = None) -> list[Obligation]:
    lengths = lengths_of(block)
    return [make(lengths) for make in LEMMAS]


def _count(numbers: Numbers, name: str) -> Any:
    return numbers.fresh(name, 0)


@lemma("No request ever holds more blocks than it needs in its whole life.")
def holdings_never_exceed_need(lengths: Lengths, less: int) -> list[Any]:
    return _within_need(lengths, less, last_token=False)


@lemma("No request holds more blocks than it needs, even if its last token counts as well.")
def holdings_never_exceed_need_with_last_token(lengths: Lengths, less: int) -> list[Any]:
    return _within_need(lengths, less, last_token=True)


def _within_need(lengths: Lengths, less: int, *, last_token: bool) -> list[Any]:
    numbers = make_numbers(lengths)
    prompt, max_tokens = numbers.fresh("prompt", 1), numbers.fresh("max_tokens", 1)
    computed, hit = numbers.fresh("computed", 1), _count(numbers, "hit")
    # Chunks end with the prompt, and decode steps before the last token. A hit leaves one token of
    # the prompt.
    numbers.facts += [computed <= prompt + max_tokens - 1, hit * lengths.block <= prompt - 1]
    # If the last token gets a block, the request may have one block more than it needs.
    spared, less = (0, 2 * less) if last_token else (1, less)
    need = blocks(numbers, lengths, prompt + max_tokens - spared) - less
    return negated(numbers, z3.And(blocks(numbers, lengths, computed) <= need, hit <= need))


@lemma("An admitted request finds its blocks free, and no more are promised than are left.")
def admission_keeps_promises_covered(lengths: Lengths, more: int) -> list[Any]:
    """Make the lemma's claim or, if `more` is 1, the guard's claim, which must fail: an idle hit
    block is subtracted from the need, as if a request held it."""
    numbers = make_numbers(lengths)
    free, others, need = (_count(numbers, name) for name in ("free", "others", "need"))
    shared, idle, taken = (_count(numbers, name) for name in ("shared", "idle", "taken"))
    numbers.facts += [others <= free, idle <= free, shared + idle + taken <= need, idle >= more]
    numbers.facts.append(need - shared - more <= free - others)
    left, promised = free - idle - taken, need - shared - idle - taken
    return negated(numbers, z3.And(taken <= free - idle, others + promised <= left))


@lemma("A request that grows within its promise finds free blocks and leaves enough for the rest.")
def growth_keeps_promises_covered(lengths: Lengths, beyond: int) -> list[Any]:
    numbers = make_numbers(lengths)
    free, others, need = (_count(numbers, name) for name in ("free", "others", "need"))
    held, taken = _count(numbers, "held"), _count(numbers, "taken")
    numbers.facts += [others + need - held <= free, held <= need, held + taken <= need + beyond]
    kept = others + (need - held - taken) <= free - taken
    return negated(numbers, z3.And(taken <= free, kept))


@lemma("When a request ends, no more blocks are promised than are free.")
def leaving_keeps_promises_covered(lengths: Lengths, lost: int) -> list[Any]:
    numbers = make_numbers(lengths)
    free, others, need = (_count(numbers, name) for name in ("free", "others", "need"))
    held, returned = _count(numbers, "held"), _count(numbers, "returned")
    numbers.facts += [others + need - held <= free, held <= need, returned <= held]
    return negated(numbers, others <= free + returned - lost)


@lemma("Even if a promise outlives its request, no more blocks are promised than are free.")
def abort_keeps_promises_covered(lengths: Lengths, more: int) -> list[Any]:
    """Make the lemma's claim or, if `more` is 1, the guard's claim, which must fail: one more block
    stays promised."""
    numbers = make_numbers(lengths)
    free, others, need = (_count(numbers, name) for name in ("free", "others", "need"))
    held, returned = _count(numbers, "held"), _count(numbers, "returned")
    numbers.facts += [others + need - held <= free, held <= need, returned <= held]
    return negated(numbers, others + (need - held) + more <= free + returned)


@lemma("If nothing is held or promised, a request that the check on arrival accepted is admitted.")
def lone_request_is_admitted(lengths: Lengths, less: int) -> list[Any]:
    numbers = make_numbers(lengths)
    prompt, max_tokens = numbers.fresh("prompt", 1), numbers.fresh("max_tokens", 1)
    pool = numbers.fresh("pool", 1)
    numbers.facts.append(prompt + max_tokens - 1 <= (pool + less) * lengths.block)
    return negated(numbers, blocks(numbers, lengths, prompt + max_tokens - 1) <= pool)


@lemma(
    "If nothing is held or promised, a request that the releases' check on arrival accepted is "
    "admitted even if its last token is promised a block."
)
def lone_request_is_admitted_with_last_token(lengths: Lengths, protocol: int) -> list[Any]:
    """Make the lemma's claim or, if `protocol` is 1, the guard's claim, which must fail: the check
    on arrival is that of the target protocol, which does not count the last token."""
    numbers = make_numbers(lengths)
    prompt, max_tokens = numbers.fresh("prompt", 1), numbers.fresh("max_tokens", 1)
    longest = numbers.fresh("longest", 1)
    rounded = blocks(numbers, lengths, prompt) * lengths.block
    within = prompt + max_tokens - 1 if protocol else rounded + max_tokens
    numbers.facts.append(within <= longest)
    pool = blocks(numbers, lengths, longest)  # as vLLM requires at start-up
    return negated(numbers, blocks(numbers, lengths, prompt + max_tokens) <= pool)


LEMMAS = (
    holdings_never_exceed_need,
    holdings_never_exceed_need_with_last_token,
    admission_keeps_promises_covered,
    growth_keeps_promises_covered,
    leaving_keeps_promises_covered,
    abort_keeps_promises_covered,
    lone_request_is_admitted,
    lone_request_is_admitted_with_last_token,
)


def never_admitted(block: int, pool: int, chunk: int) -> Scenario:
    """Return a scenario with a request that fills the pool, while release 2.5.2 demands one more
    block for its last token.

    The target protocol accepts it; the release's own check on arrival does not.
    """
    longest = pool * block
    request = Request(id="r0", arrival=0, prompt=(("r0", longest - 1),), max_tokens=2, output_len=2)
    return Scenario(
        system="spyre",
        revision="2.5.2",
        config={
            "block_size": block,
            "chunk_size": chunk,
            "max_model_len": longest,
            "num_blocks": pool,
        },
        requests=(request,),
        origin={
            "engine": "z3",
            "note": "the block for the last token never becomes free",
            "seed": None,
        },
    )
