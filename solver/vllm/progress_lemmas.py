"""Accepted requests never block one another forever (V1-P01, V1CP-R12, V1CP-R15).

The lemmas do not cover requests that can never fit, because accepting these breaks V1-R17.

1. `first_running_is_never_preempted`: under FCFS, the first running request is never preempted. The
   victim is the last one, and a request that runs alone can grow (`lone_running_request_can_grow`
   in `admission_lemmas`). `one_of_two_is_preempted_first`: under the priority policy, the most
   important running request is never preempted.
2. `request_with_budget_advances`: the first request of a step has the whole budget, so it computes
   at least one token unless it is preempted itself. Computing brings it closer to its end.
3. `first_in_line_is_admitted_if_none_run`: if no request runs, the first in line is admitted and
   computes a token.
4. `no_request_overtakes_running`: no request moves in front of a running one.

`decision_keeps_first_...` and `code_admits_first_in_line_N` (`code_lemmas`) claim that the
scheduler decides in this way.

Under FCFS, by 1 and 2, the first running request computes a token in every step until it ends; by
3, some request runs. So every step computes something as long as any request is unfinished, and by
4, every request eventually becomes first. A request's `rank` bounds its wait: it is the number of
tokens that all requests before it ever compute, minus those that the first has computed. Each step
lowers the rank by at least one, whatever is preempted behind the first
(`computing_lowers_every_rank`). So a request waits for at most (requests before it) x max_model_len
steps (`each_predecessor_adds_one_length`).

Under the priority policy, consider the most important unfinished request, once no more requests
arrive. While it waits, it is first in line, so no request is admitted before it. By 2, each step
brings the first running request closer to its end, or preempts it. So the most important request
eventually runs, by 3 at the latest when no other request does. By 1, it then keeps running; by 2
and 4, the requests in front of it finish or are preempted, until it is first itself.

Under the priority policy, a step computes nothing if the first running request preempts itself
(V1CP-R15):

5. `idle_steps_are_fewer_than_slots`: each such step stops one running request and admits none
   (V1-R16), so at most max_num_seqs - 1 of these steps follow one another.
"""

from typing import Any

import z3

from ...model.vllm.state import State
from ..smt.numbers import Numbers, negated
from ..smt.obligation import Obligation, lemma
from .admission_lemmas import at_the_door, gate, tell_block_order
from .symbols import block_of, capped, clamp, make_numbers, some, unfinished


def obligations(block: int | None = None) -> list[Obligation]:
    size = block_of(block)
    return [make(size) for make in LEMMAS]


def rank(state: State, place: int) -> int:
    """Return an upper bound on the number of steps for which the request at this place in the
    waiting queue waits under FCFS."""
    ahead = (*state.running, *state.waiting[:place])
    if not ahead:
        return 0
    return sum(request.prompt + request.max_tokens - 1 for request in ahead) - ahead[0].computed


def before(first: tuple[Any, Any], other: tuple[Any, Any]) -> Any:
    """Return whether `first` is more important than `other` (`model.vllm.queue.importance`).

    Both are pairs of priority and arrival.
    """
    return z3.Or(first[0] < other[0], z3.And(first[0] == other[0], first[1] < other[1]))


@lemma("Under FCFS, the first of several running requests is never preempted.")
def first_running_is_never_preempted(block: Any, fewer: int) -> list[Any]:
    """Make the lemma's claim or, if `fewer` is 1, the guard's claim, which must fail: the first may
    be the only running request."""
    numbers = Numbers()
    running = some(numbers, "running", 2 - fewer)
    victim = running - 1  # its place
    return negated(numbers, victim != 0)


@lemma("Under the priority policy, exactly one of two running requests is preempted first.")
def one_of_two_is_preempted_first(block: Any, alike: int) -> list[Any]:
    """Make the lemma's claim or, if `alike` is 1, the guard's claim, which must fail: the two
    requests may have arrived at the same time."""
    numbers = Numbers()
    first, other = ((z3.Int(f"priority {n}"), some(numbers, f"arrival {n}")) for n in (0, 1))
    if not alike:
        numbers.facts.append(first[1] != other[1])
    # The victim is the least important one.
    return negated(numbers, z3.Xor(before(first, other), before(other, first)))


@lemma("The request that has the whole budget of a step comes closer to its end.")
def request_with_budget_advances(block: Any, nothing: int) -> list[Any]:
    numbers = Numbers()
    request, computed = unfinished(numbers), some(numbers, "computed")
    numbers.facts.append(computed <= request.known - 1)
    budget = some(numbers, "budget", 1 - nothing)
    tokens = clamp(request.known - computed, some(numbers, "threshold"), budget)
    before_it, after_it = request.longest - computed, request.longest - computed - tokens
    return negated(numbers, z3.And(after_it >= 0, after_it < before_it))


@lemma("If no request runs, the first in line is admitted.")
def first_in_line_is_admitted_if_none_run(block: Any, reserve: int) -> list[Any]:
    """Make the lemma's claim or, if `reserve` is 1, the guard's claim, which must fail: the
    watermark applies although no request runs."""
    numbers = make_numbers(block)
    entry = gate(numbers, block, z3.Bool("whole"))
    pool = at_the_door(numbers, block, entry.request)
    budget, slots = some(numbers, "budget", 1), some(numbers, "slots", 1)
    threshold, chunks = some(numbers, "threshold"), z3.Bool("chunks")
    behind = entry.request.known - entry.hit * block
    numbers.facts += [entry.free == pool, entry.idle == entry.hit, entry.reserve == reserve]
    numbers.facts.append(entry.tokens == clamp(behind, threshold, budget))
    numbers.facts.append(
        z3.Or(chunks, entry.request.longest <= budget)
    )  # as the front door requires
    request, covered = entry.request, entry.hit * block + entry.tokens
    tell_block_order(numbers, block, entry.hit, request.known, request.longest, covered)
    uncut = z3.Or(chunks, capped(behind, threshold) <= budget)
    return negated(numbers, z3.And(slots >= 1, uncut, entry.passes, entry.tokens >= 1))


@lemma("No request moves in front of a running request.")
def no_request_overtakes_running(block: Any, in_front: int) -> list[Any]:
    """Make the lemma's claim or, if `in_front` is 1, the guard's claim, which must fail: newcomers
    go to the front of the queue."""
    numbers = Numbers()
    place, gone, new = (some(numbers, name) for name in ("place", "gone", "new"))
    numbers.facts.append(gone <= place)
    return negated(numbers, place - gone + in_front * new <= place)


@lemma("A step in which the first request computes lowers every rank behind it.")
def computing_lowers_every_rank(block: Any, nothing: int) -> list[Any]:
    """Claim that the ranks fall if the first request computes tokens or leaves. After it leaves,
    the computed tokens of the next request count. If `nothing` is 1, make the guard's claim
    instead, which must fail: a step may compute no token."""
    numbers = Numbers()
    others, next_computed = some(numbers, "others"), some(numbers, "next")
    longest, computed = some(numbers, "longest", 1), some(numbers, "computed")
    tokens = some(numbers, "tokens", 1 - nothing)
    numbers.facts.append(computed + tokens <= longest)
    rank_before = others + longest - computed
    stays = others + longest - computed - tokens < rank_before
    return negated(
        numbers, z3.And(stays, z3.Or(nothing == 1, others - next_computed < rank_before))
    )


@lemma("Each request before another one adds at most max_model_len to its rank.")
def each_predecessor_adds_one_length(block: Any, more: int) -> list[Any]:
    """Make the lemma's claim or, if `more` is 1, the guard's claim, which must fail: the added
    request may be a token longer than max_model_len."""
    numbers = Numbers()
    rank_before, bound = some(numbers, "rank"), some(numbers, "bound")
    longest, room = some(numbers, "longest", 1), some(numbers, "room", 1)
    numbers.facts += [rank_before <= bound, longest <= room + more]
    return negated(numbers, rank_before + longest <= bound + room)


@lemma(
    "The number of consecutive steps in which no request computes is less than the number of slots."
)
def idle_steps_are_fewer_than_slots(block: Any, none_there: int) -> list[Any]:
    """Make the lemma's claim or, if `none_there` is 1, the guard's claim, which must fail: an idle
    step preempts no request."""
    numbers = Numbers()
    slots, running, idle = (some(numbers, n, low) for n, low in (("s", 1), ("r", 1), ("idle", 0)))
    numbers.facts.append(idle + running <= slots)
    left, so_far = running - 1 + none_there, idle + 1
    # The last running request is alone, and computes a token (1).
    return negated(numbers, z3.Implies(left >= 1, z3.And(so_far + left <= slots, so_far < slots)))


LEMMAS = (
    first_running_is_never_preempted,
    one_of_two_is_preempted_first,
    request_with_budget_advances,
    first_in_line_is_admitted_if_none_run,
    computing_lowers_every_rank,
    each_predecessor_adds_one_length,
    no_request_overtakes_running,
    idle_steps_are_fewer_than_slots,
)
