"""What LLMServingSim's scheduler decided in a step, as far as its client can tell.

Who ran, who joined and how far behind they were is told as for vLLM, whose account of a step has
nothing of its own.
"""

from ...model.observation import Step
from ..ledger import Account, Ledger
from ..once import once
from ..vllm.decision import admitted, blocks_for, kept, ran_before

PAGE = "documented"


@once
def queue(ledger: Ledger) -> list[Account]:
    """The page's order: by arrival, prefills in front if they are prioritised."""
    first = ledger.config["prioritize_prefill"]
    return sorted(ledger.live.values(), key=lambda one: (first and one.emitted > 0, one.arrival))


def budget_left(ledger: Ledger, step: Step) -> int:
    """Tokens that the step could still have computed."""
    budget: int = ledger.config["max_num_batched_tokens"]
    return budget - sum(step.scheduled.values())


def left_for(ledger: Ledger, step: Step, one: Account) -> int:
    """Tokens of the budget that were left when it was this request's turn, by the page."""
    budget: int = ledger.config["max_num_batched_tokens"]
    order = queue(ledger)
    ahead = order[: order.index(one)]
    return budget - sum(step.scheduled.get(other.id, 0) for other in ahead)


def wanted(ledger: Ledger, one: Account) -> int:
    """Tokens that a request wants in one step, by the page, if nothing is cached of it."""
    tokens = 1 if one.emitted else one.prompt - one.computed
    return min(tokens, ledger.config["long_prefill_token_threshold"] or tokens)


def must_not_be_cut(ledger: Ledger, step: Step, one: Account) -> bool:
    """Chunking is off, and the budget that was left for a request would have cut its prompt."""
    if ledger.config["enable_chunked_prefill"]:
        return False
    return wanted(ledger, one) > left_for(ledger, step, one)


def taken_seats(ledger: Ledger, step: Step) -> int:
    """Seats that count against max_num_seqs: of the batch, at HEAD of those who run."""
    if ledger.revision == PAGE:
        return len(step.scheduled)
    return len(kept(ledger, step)) + len(admitted(ledger, step))


def seat_left(ledger: Ledger, step: Step) -> bool:
    """One more could have joined."""
    seats = ledger.config["max_num_seqs"]
    return not seats or taken_seats(ledger, step) < seats


@once
def waited(ledger: Ledger, step: Step) -> list[Account]:
    """Those who were not running and were not scheduled, by arrival."""
    running = {one.id for one in ran_before(ledger)}
    return [
        one
        for one in ledger.live.values()
        if one.id not in running and one.id not in step.scheduled
    ]


def whole(ledger: Ledger, one: Account) -> int:
    """Blocks that a request may need until its last token, which is never computed."""
    return blocks_for(ledger, one.prompt + one.max_tokens - 1)


def promised(ledger: Ledger, step: Step) -> int:
    """Blocks that those who run after the step may still take."""
    running = [ledger.live[name] for name in step.running or () if name in ledger.live]
    held = step.blocks or {}
    return sum(whole(ledger, one) - len(held.get(one.id, ())) for one in running)
