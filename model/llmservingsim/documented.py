"""LLMServingSim's documentation page as functions, in the order of the page. The scheduler serves
one queue, first come, first served, under one budget.

Source: continuous-batching page, from "What the scheduler picks each step" to "Gotchas".
`scheduler` contains what both revisions share: the completion of a batch. The page says only that
memory is limited. The target protocol adds that a request starts once there is room for all its
tokens, and that no later request starts before it.
"""

from ..members import find, without
from . import kv_cache
from .config import LlmServingSimConfig
from .scheduler import built
from .state import Decision, Plan, Sequence, State


def schedule(config: LlmServingSimConfig, state: State) -> Decision:
    """Build the next batch within the budget (LSS-R06). Build none if the pipeline is full or no
    request can run (LSS-R01, LSS-R19). Every request gets tokens as long as any budget is left
    (LSS-P03, LSS-R17)."""
    if len(state.inflight) >= config.pp_size:
        return Decision(state, None)
    plan = Plan(state.running, state.waiting, state.pool, config.max_num_batched_tokens, {})
    for sequence in queue(config, state):
        # Once the budget is used up, the remaining requests get no tokens, whatever they need.
        if not config.has_slot(len(plan.scheduled)) or not plan.budget:
            break
        plan = serve(config, plan, sequence)
    return built(state, plan)


def queue(config: LlmServingSimConfig, state: State) -> list[Sequence]:
    """Return the requests that may run, in order of arrival. If prefills are prioritised, they come
    first (LSS-R08, LSS-R18).

    A request in a batch in flight is left out until that batch completes, since its next tokens
    depend on the result.
    """
    away = {name for batch in state.inflight for name, _ in batch.scheduled}
    present = [sequence for sequence in (*state.running, *state.waiting) if sequence.id not in away]
    if config.prioritize_prefill:
        return sorted(present, key=lambda sequence: (sequence.generated > 0, sequence.arrival))
    return sorted(present, key=lambda sequence: sequence.arrival)


def serve(config: LlmServingSimConfig, plan: Plan, sequence: Sequence) -> Plan:
    """Return the plan with the tokens that the sequence gets. If it gets none, the plan is
    unchanged (LSS-R09)."""
    if find(plan.running, sequence.id):
        tokens = cap(config, plan.budget, need(sequence))
        return advance(config, plan, sequence, tokens) if tokens else plan
    if plan.short:
        return plan
    return start(config, plan, sequence)


def start(config: LlmServingSimConfig, plan: Plan, sequence: Sequence) -> Plan:
    """Give the sequence its first tokens. If too few blocks are free for it, no later request
    starts before it (LSS-P01, ALL-R05). Once the sequence runs, it never waits again (ALL-R03)."""
    hit = kv_cache.prefix_hit(config, plan.pool, sequence)
    tokens = cap(config, plan.budget, need(sequence) - len(hit) * config.block_size)  # LSS-R11
    if not tokens:
        return plan
    promised = kv_cache.promised(config, plan.running)
    longest = sequence.prompt + sequence.max_tokens - 1
    admitted = kv_cache.admit(config, plan.pool, sequence, hit, tokens, longest, promised)
    if admitted is None:
        return plan._replace(short=True)
    joined, pool = admitted
    return plan._replace(
        running=tuple(sorted((*plan.running, joined), key=lambda other: other.arrival)),
        waiting=without(plan.waiting, sequence.id),
        pool=pool,
        budget=plan.budget - tokens,
        scheduled={**plan.scheduled, sequence.id: tokens},
    )


def advance(config: LlmServingSimConfig, plan: Plan, sequence: Sequence, tokens: int) -> Plan:
    """Give a running sequence its tokens. The blocks for these tokens were promised when the
    sequence started (ALL-R06, ALL-R10)."""
    grown, pool = kv_cache.hold(config, plan.pool, sequence, tokens)
    return plan._replace(
        running=tuple([grown if other.id == sequence.id else other for other in plan.running]),
        pool=pool,
        budget=plan.budget - tokens,
        scheduled={**plan.scheduled, sequence.id: tokens},
    )


def need(sequence: Sequence) -> int:
    """Return how many tokens a request needs: one if it decodes, otherwise the rest of its prompt
    (LSS-R11, LSS-R12, LSS-R13)."""
    return 1 if sequence.generated else sequence.prompt - sequence.computed


def cap(config: LlmServingSimConfig, budget: int, needed: int) -> int:
    """Return how many of its `needed` tokens a request gets from the budget. Without chunked
    prefill, it gets either all of them or none (LSS-R10)."""
    wanted = config.capped(needed)
    if not config.enable_chunked_prefill and wanted > budget:
        return 0
    return min(wanted, budget)


def prompt_tokens(sequence: Sequence, tokens: int) -> int:
    """Return how many tokens a request in a batch adds to the prompt throughput. Each token of its
    prompt counts once (LSS-R23); cached tokens count in the batch that completes the prompt."""
    if sequence.generated:
        return 0
    return tokens + sequence.prefix_hit * completes(sequence)


def completes(sequence: Sequence) -> bool:
    return sequence.computed >= sequence.prompt
