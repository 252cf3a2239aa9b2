"""No more blocks are promised than are free (SPY-R50), for any number of requests.

Each admitted request has a need: the most blocks that it ever holds. The blocks
that it does not hold yet are promised to it. The invariant: all promises together, including those
kept for aborted requests (SPY-P02), are at most the number of free blocks. `others` is the sum over
every request but the current one, so the number of requests does not appear.

1. `holdings_never_exceed_need`: hits, chunks and decode steps are within prompt + max_tokens - 1
   tokens.
2. `admission_keeps_promises_covered`: a request that passes the test `need - shared <= free -
   promised` keeps the invariant, and finds the blocks of its first chunk free. `shared` are hit
   blocks that another request holds; hit blocks that no request holds (`idle`) are taken from the
   free ones. If the other holders leave later, shared blocks stay with the newcomer.
3. `growth_keeps_promises_covered`: taking blocks within the need keeps the invariant, and these
   blocks are free.
4. `leaving_keeps_promises_covered`: so does an end, or an abort inside a step: the promises end,
   and shared blocks stay held.
5. `abort_keeps_promises_covered`: so does an abort after which the promise is never withdrawn: at
   least that many blocks are given back.

Publishing and pausing do not change which blocks are held. Hits lower the number of free blocks by
exactly `idle`, and leaving raises it by the blocks that no other request holds; both are rule
ALL-R09, which exploration checks.

Admission, when nothing is held or promised:

6. `lone_request_is_admitted`: a request that the front door accepts passes.
   `lone_request_is_admitted_with_last_token`: where its last token is promised a block as well
   (release 2.5.2), with that release's own front door.

Each guard removes a block, or adds one.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import z3

from ...model.scenario import Request, Scenario
from ..smt.numbers import Numbers, negated
from ..smt.obligation import Obligation
from .symbolic_admission import Lengths, blocks, lengths_of, make_numbers


def obligations(block: int | None = None) -> list[Obligation]:
    lengths = lengths_of(block)
    return [
        Obligation(name, sentence, partial(lemma, lengths, 0), partial(lemma, lengths, 1))
        for name, (sentence, lemma) in LEMMAS.items()
    ]


def _count(numbers: Numbers, name: str) -> Any:
    return numbers.fresh(name, 0, None)


def _holdings_never_exceed_need(last_token: bool, lengths: Lengths, less: int) -> list[Any]:
    numbers = make_numbers(lengths)
    prompt, max_tokens = numbers.fresh("prompt", 1, None), numbers.fresh("max_tokens", 1, None)
    computed, hit = numbers.fresh("computed", 1, None), _count(numbers, "hit")
    # Chunks end with the prompt, decode steps before the last token; a hit leaves a token of it.
    numbers.facts += [computed <= prompt + max_tokens - 1, hit * lengths.block <= prompt - 1]
    # If the last token gets a block, the request may have one more than it needs.
    spared, less = (0, 2 * less) if last_token else (1, less)
    need = blocks(numbers, lengths, prompt + max_tokens - spared) - less
    return negated(numbers, z3.And(blocks(numbers, lengths, computed) <= need, hit <= need))


def _admission_keeps_promises_covered(lengths: Lengths, more: int) -> list[Any]:
    """`more` idle hits are subtracted from the need, as if a request held them."""
    numbers = make_numbers(lengths)
    free, others, need = (_count(numbers, name) for name in ("free", "others", "need"))
    shared, idle, taken = (_count(numbers, name) for name in ("shared", "idle", "taken"))
    numbers.facts += [others <= free, idle <= free, shared + idle + taken <= need, idle >= more]
    numbers.facts.append(need - shared - more <= free - others)
    left, promised = free - idle - taken, need - shared - idle - taken
    return negated(numbers, z3.And(taken <= free - idle, others + promised <= left))


def _growth_keeps_promises_covered(lengths: Lengths, beyond: int) -> list[Any]:
    numbers = make_numbers(lengths)
    free, others, need = (_count(numbers, name) for name in ("free", "others", "need"))
    held, taken = _count(numbers, "held"), _count(numbers, "taken")
    numbers.facts += [others + need - held <= free, held <= need, held + taken <= need + beyond]
    kept = others + (need - held - taken) <= free - taken
    return negated(numbers, z3.And(taken <= free, kept))


def _leaving_keeps_promises_covered(lengths: Lengths, lost: int) -> list[Any]:
    numbers = make_numbers(lengths)
    free, others, need = (_count(numbers, name) for name in ("free", "others", "need"))
    held, returned = _count(numbers, "held"), _count(numbers, "returned")
    numbers.facts += [others + need - held <= free, held <= need, returned <= held]
    return negated(numbers, others <= free + returned - lost)


def _abort_keeps_promises_covered(lengths: Lengths, more: int) -> list[Any]:
    """With `more`, that many more blocks stay promised."""
    numbers = make_numbers(lengths)
    free, others, need = (_count(numbers, name) for name in ("free", "others", "need"))
    held, returned = _count(numbers, "held"), _count(numbers, "returned")
    numbers.facts += [others + need - held <= free, held <= need, returned <= held]
    return negated(numbers, others + (need - held) + more <= free + returned)


def _lone_request_is_admitted(lengths: Lengths, less: int) -> list[Any]:
    numbers = make_numbers(lengths)
    prompt, max_tokens = numbers.fresh("prompt", 1, None), numbers.fresh("max_tokens", 1, None)
    pool = numbers.fresh("pool", 1, None)
    numbers.facts.append(prompt + max_tokens - 1 <= (pool + less) * lengths.block)
    return negated(numbers, blocks(numbers, lengths, prompt + max_tokens - 1) <= pool)


def _lone_request_is_admitted_with_last_token(lengths: Lengths, protocol: int) -> list[Any]:
    """With `protocol`, the front door is that of the target protocol: prompt + max_tokens - 1."""
    numbers = make_numbers(lengths)
    prompt, max_tokens = numbers.fresh("prompt", 1, None), numbers.fresh("max_tokens", 1, None)
    longest = numbers.fresh("longest", 1, None)
    rounded = blocks(numbers, lengths, prompt) * lengths.block
    within = prompt + max_tokens - 1 if protocol else rounded + max_tokens
    numbers.facts.append(within <= longest)
    pool = blocks(numbers, lengths, longest)  # as vLLM requires at start-up
    return negated(numbers, blocks(numbers, lengths, prompt + max_tokens) <= pool)


Lemma = Callable[[Lengths, int], list[Any]]
LEMMAS: dict[str, tuple[str, Lemma]] = {
    "holdings_never_exceed_need": (
        "No request ever holds more than the blocks of its whole life.",
        partial(_holdings_never_exceed_need, False),
    ),
    "holdings_never_exceed_need_with_last_token": (
        "Nor does it if the last token, which is never computed, is promised a block as well.",
        partial(_holdings_never_exceed_need, True),
    ),
    "admission_keeps_promises_covered": (
        "A request that is admitted finds its blocks free, and no more are promised than are left.",
        _admission_keeps_promises_covered,
    ),
    "growth_keeps_promises_covered": (
        "A request that grows within its promise finds free blocks and leaves those of the others.",
        _growth_keeps_promises_covered,
    ),
    "leaving_keeps_promises_covered": (
        "When a request ends, no more blocks are promised than are free.",
        _leaving_keeps_promises_covered,
    ),
    "abort_keeps_promises_covered": (
        "When a promise outlives its request, no more blocks are promised than are free.",
        _abort_keeps_promises_covered,
    ),
    "lone_request_is_admitted": (
        "With nothing held or promised, a request that the front door accepted is admitted.",
        _lone_request_is_admitted,
    ),
    "lone_request_is_admitted_with_last_token": (
        "So is one that the releases' front door accepted if its last token is promised a block, "
        "too.",
        _lone_request_is_admitted_with_last_token,
    ),
}


def never_admitted(block: int, pool: int, chunk: int) -> Scenario:
    """Return a request that fills the pool, so that release 2.5.2 needs another block for its last
    token.

    The target protocol accepts it; the release's own front door does not.
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
        origin={"engine": "z3", "note": "the last token's block is never free", "seed": None},
    )
