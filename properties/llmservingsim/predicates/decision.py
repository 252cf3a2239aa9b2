"""What LLMServingSim's scheduler decided in a step, as far as its client can tell.

What ran, what joined and how far behind it was follows as for vLLM, whose account of a step has
nothing of its own.
"""

from ....model.observation import Step
from ...history.per_step_cache import once
from ...rules.pool import blocks_for
from ...vllm.history.request_history import VllmRequestHistory
from ...vllm.history.run import VllmRun
from ...vllm.predicates.decision import admitted, kept, ran_before

PAGE = "documented"


@once
def queue(history: VllmRun) -> list[VllmRequestHistory]:
    """The page's order: by arrival, prefills in front if they are prioritised."""
    first = history.config["prioritize_prefill"]
    return sorted(history.live.values(), key=lambda one: (first and one.emitted > 0, one.arrival))


def budget_left(history: VllmRun, step: Step) -> int:
    """Tokens that the step could still have computed."""
    budget: int = history.config["max_num_batched_tokens"]
    return budget - sum(step.scheduled.values())


def left_for(history: VllmRun, step: Step, one: VllmRequestHistory) -> int:
    """Tokens of the budget that were left when it was this request's turn, by the page."""
    budget: int = history.config["max_num_batched_tokens"]
    order = queue(history)
    ahead = order[: order.index(one)]
    return budget - sum(step.scheduled.get(other.id, 0) for other in ahead)


def wanted(history: VllmRun, one: VllmRequestHistory) -> int:
    """Tokens that a request wants in one step, by the page, if nothing is cached of it."""
    tokens = 1 if one.emitted else one.prompt - one.computed
    return min(tokens, history.config["long_prefill_token_threshold"] or tokens)


def must_not_be_cut(history: VllmRun, step: Step, one: VllmRequestHistory) -> bool:
    """Chunking is off, and the budget that was left for a request would have cut its prompt."""
    if history.config["enable_chunked_prefill"]:
        return False
    return wanted(history, one) > left_for(history, step, one)


def taken_slots(history: VllmRun, step: Step) -> int:
    """Slots that count against max_num_seqs: of the batch, at HEAD of requests that run."""
    if history.revision == PAGE:
        return len(step.scheduled)
    return len(kept(history, step)) + len(admitted(history, step))


def seat_left(history: VllmRun, step: Step) -> bool:
    """One more could have joined."""
    slots = history.config["max_num_seqs"]
    return not slots or taken_slots(history, step) < slots


@once
def waited(history: VllmRun, step: Step) -> list[VllmRequestHistory]:
    """Requests that were not running and were not scheduled, by arrival."""
    running = {one.id for one in ran_before(history)}
    return [
        one
        for one in history.live.values()
        if one.id not in running and one.id not in step.scheduled
    ]


def whole(history: VllmRun, one: VllmRequestHistory) -> int:
    """Blocks that a request may need until its last token, which is never computed."""
    return blocks_for(history, one.prompt + one.max_tokens - 1)


def promised(history: VllmRun, step: Step) -> int:
    """Blocks that requests that run after the step may still take."""
    running = [history.live[name] for name in step.running or () if name in history.live]
    held = step.blocks or {}
    return sum(whole(history, one) - len(held.get(one.id, ())) for one in running)
