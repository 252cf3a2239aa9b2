"""No step schedules more tokens than its budget (V1-I2, V1-R04, V1CP-R02), for any number of
requests.

While a step is being decided, this invariant holds: the tokens scheduled so far and the budget left
add up to max_num_batched_tokens, and the budget left is not negative. A request's share is the
number of tokens scheduled for it. Requests are considered one by one, so the lemmas do not mention
their number: `spent` is the sum of all shares so far.

1. `whole_budget_is_left_at_start`: the invariant holds when nothing is scheduled.
2. `share_is_least_of_three_bounds`: a request with uncomputed tokens gets the minimum of these
   tokens, the threshold (if there is one) and the budget left. This is at least one token.
3. `scheduling_preserves_budget`: scheduling the request keeps the invariant.
   `preemption_preserves_budget`: preempting a request, scheduled or not, keeps it too, because its
   share goes back to the budget.
4. `shares_stay_within_budget`: so the shares of a step together never exceed
   max_num_batched_tokens.

Every request that is considered has at least one uncomputed token, so 2 applies:

5. `running_request_has_next_token`: a request that continues after a step has an uncomputed token,
   either an earlier one or the one that it has just generated.
6. `admitted_request_has_next_token`: an admitted request has an uncomputed token, whatever it finds
   in the cache. A preempted one has computed nothing.

Consequences for the budget:

7. `budget_suffices_for_all_decodes`: if every running request has one uncomputed token, the budget
   suffices for all, because it must be at least max_num_seqs tokens.
8. `budget_cuts_no_unchunked_prefill`: with chunking off, an admitted request computes all its
   uncomputed tokens, or as many as its threshold. `accepted_prompt_fits_empty_step`: if no request
   comes before it in the step, the budget always suffices.
9. `running_stays_within_slots`: at most max_num_seqs requests run.

Each guard removes or adds a token or a slot.
"""

from typing import Any

import z3

from ..smt.numbers import Numbers, negated
from ..smt.obligation import Obligation, lemma
from .symbols import block_of, capped, clamp, make_numbers, some, unfinished


def obligations(block: int | None = None) -> list[Obligation]:
    size = block_of(block)
    return [make(size) for make in LEMMAS]


@lemma("Before anything is scheduled, the whole budget is left.")
def whole_budget_is_left_at_start(block: Any, more: int) -> list[Any]:
    numbers = Numbers()
    budget = some(numbers, "budget", 1)
    return negated(numbers, _holds(budget, z3.IntVal(more), budget))


def _holds(budget: Any, spent: Any, left: Any) -> Any:
    return z3.And(spent + left == budget, left >= 0, spent >= 0)


def _half_decided(numbers: Numbers) -> tuple[Any, Any, Any]:
    budget, spent, left = (some(numbers, name) for name in ("budget", "spent", "left"))
    numbers.facts.append(_holds(budget, spent, left))
    return budget, spent, left


@lemma("A share is the minimum of uncomputed tokens, threshold and budget; it is never 0.")
def share_is_least_of_three_bounds(block: Any, more: int) -> list[Any]:
    numbers = Numbers()
    behind, threshold, left = (
        some(numbers, "behind", 1),
        some(numbers, "thr"),
        some(numbers, "l", 1),
    )
    tokens = clamp(behind, threshold, left) + more
    bounds = [tokens <= behind, tokens <= left, z3.Implies(threshold > 0, tokens <= threshold)]
    least = z3.Or(tokens == behind, tokens == left, z3.And(threshold > 0, tokens == threshold))
    return negated(numbers, z3.And(*bounds, least, tokens >= 1))


@lemma("Scheduling a request keeps shares plus remaining budget equal to the whole budget.")
def scheduling_preserves_budget(block: Any, less: int) -> list[Any]:
    numbers = Numbers()
    budget, spent, left = _half_decided(numbers)
    numbers.facts.append(left >= 1)
    tokens = clamp(some(numbers, "behind", 1), some(numbers, "threshold"), left)
    return negated(numbers, _holds(budget, spent + tokens, left - tokens + less))


@lemma("Returning a preempted request's share keeps shares plus budget equal to the whole budget.")
def preemption_preserves_budget(block: Any, more: int) -> list[Any]:
    numbers = Numbers()
    budget, spent, left = _half_decided(numbers)
    share, others = some(numbers, "share"), some(numbers, "others")  # 0 if not scheduled
    numbers.facts.append(spent == share + others)
    return negated(numbers, _holds(budget, others, left + share + more))


@lemma("The shares of a step never exceed max_num_batched_tokens together.")
def shares_stay_within_budget(block: Any, less: int) -> list[Any]:
    numbers = Numbers()
    budget, spent, _ = _half_decided(numbers)
    return negated(numbers, spent <= budget - less)


@lemma("A request that continues has a token to compute in the next step.")
def running_request_has_next_token(block: Any, more: int) -> list[Any]:
    numbers = Numbers()
    behind, tokens = some(numbers, "behind", 1), some(numbers, "tokens", 1)
    numbers.facts.append(tokens <= behind + more)
    left = behind - tokens
    return negated(
        numbers, z3.If(left == 0, z3.IntVal(1), left) >= 1
    )  # then it gets its next token


@lemma("An admitted request has a token to compute, whatever it finds in the cache.")
def admitted_request_has_next_token(block: Any, more: int) -> list[Any]:
    """Make the lemma's claim or, if `more` is 1, the guard's claim, which must fail: the cache may
    hold the last known token as well (V1CP-R28)."""
    numbers = make_numbers(block)
    request = unfinished(numbers)
    hit, _ = numbers.split(request.known - 1 + more, block, None)  # whole blocks, at most
    return negated(numbers, request.known - hit * block >= 1)


@lemma("If every running request has one token to compute, the budget suffices for all.")
def budget_suffices_for_all_decodes(block: Any, less: int) -> list[Any]:
    numbers = Numbers()
    budget, slots, before = (some(numbers, name, 1) for name in ("budget", "slots", "before"))
    numbers.facts += [budget >= slots - less, before <= slots - 1]
    return negated(numbers, budget - before >= 1)  # one token for each request before it


@lemma("With chunking off, the budget cuts no request that is admitted.")
def budget_cuts_no_unchunked_prefill(block: Any, less: int) -> list[Any]:
    numbers = Numbers()
    behind, threshold, left = (
        some(numbers, "behind", 1),
        some(numbers, "thr"),
        some(numbers, "l", 1),
    )
    numbers.facts.append(capped(behind, threshold) <= left + less)
    return negated(numbers, clamp(behind, threshold, left) == capped(behind, threshold))


@lemma("With chunking off, an empty step has enough budget for any accepted request.")
def accepted_prompt_fits_empty_step(block: Any, more: int) -> list[Any]:
    numbers = Numbers()
    request, budget = unfinished(numbers), some(numbers, "budget", 1)
    numbers.facts.append(request.longest <= budget + more)
    return negated(numbers, capped(request.known, some(numbers, "threshold")) <= budget)


@lemma("At most max_num_seqs requests run.")
def running_stays_within_slots(block: Any, more: int) -> list[Any]:
    """Make the lemma's claim or, if `more` is 1, the guard's claim, which must fail: a request is
    admitted although every slot is taken."""
    numbers = Numbers()
    slots, running = some(numbers, "slots", 1), some(numbers, "running")
    admits = running < slots + more
    numbers.facts.append(running <= slots)
    return negated(numbers, z3.If(admits, running + 1, running) <= slots)


LEMMAS = (
    whole_budget_is_left_at_start,
    share_is_least_of_three_bounds,
    scheduling_preserves_budget,
    preemption_preserves_budget,
    shares_stay_within_budget,
    running_request_has_next_token,
    admitted_request_has_next_token,
    budget_suffices_for_all_decodes,
    budget_cuts_no_unchunked_prefill,
    accepted_prompt_fits_empty_step,
    running_stays_within_slots,
)
