"""The decision of the code at HEAD: vLLM V1's loop over running requests, then waiting ones.

Source: serving/core/scheduler.py at 5daddb2. The code does not distinguish prefill and decode:
every request computes those of its known tokens that are not computed yet. If too few blocks are
free, the running request that was admitted last is preempted.
"""

from ..members import without
from ..pool import Pool
from . import kv_cache
from .config import LlmServingSimConfig
from .documented import completes
from .scheduler import built
from .state import Decision, Plan, Sequence, State


def schedule(config: LlmServingSimConfig, state: State) -> Decision:
    if len(state.inflight) >= config.pp_size:
        return Decision(state, None)
    plan = Plan(state.running, state.waiting, state.pool, config.max_num_batched_tokens, {})
    plan = advance_running(config, plan)
    # After a preemption nothing is admitted: a newcomer would only lose its blocks again (LSS-R30).
    if not plan.preempted:
        plan = admit_waiting(config, plan)
    return built(state, plan, counted=True)


def advance_running(config: LlmServingSimConfig, plan: Plan) -> Plan:
    """Schedule running requests in the order of admission. If too few blocks are free, preempt the
    request admitted last, so that the first one always makes progress (ALL-R06, ALL-R10). Each
    retry has one fewer possible victim, so the loop ends (ALL-R02)."""
    place = 0
    while place < len(plan.running) and plan.budget > 0:
        sequence = plan.running[place]
        tokens = clamp(config, sequence.num_uncomputed_tokens, plan.budget)
        # Otherwise, all its known tokens are in a batch in flight.
        if tokens > 0:
            grown = kv_cache.grow(config, plan.pool, sequence, tokens)
            while grown is None:
                last = victim(plan)
                plan = preempt(config, plan, last)
                if last is sequence:
                    return plan
                grown = kv_cache.grow(config, plan.pool, sequence, tokens)
            plan = scheduled(plan, place, *grown, tokens)
        place += 1
    return plan


def admit_waiting(config: LlmServingSimConfig, plan: Plan) -> Plan:
    """Admit waiting requests in order, up to the first that cannot join (LSS-R31, ALL-R05)."""
    while plan.waiting and plan.budget > 0 and config.has_slot(len(plan.running)):
        sequence = plan.waiting[0]
        hit = kv_cache.prefix_hit(config, plan.pool, sequence)
        uncomputed = sequence.num_tokens - len(hit) * config.block_size  # LSS-R11
        if not config.enable_chunked_prefill and config.capped(uncomputed) > plan.budget:
            return plan
        tokens = clamp(config, uncomputed, plan.budget)
        admitted = kv_cache.admit(config, plan.pool, sequence, hit, tokens, sequence.num_tokens)
        if admitted is None:
            return plan
        plan = plan._replace(running=(*plan.running, sequence), waiting=plan.waiting[1:])
        plan = scheduled(plan, len(plan.running) - 1, *admitted, tokens)
    return plan


def clamp(config: LlmServingSimConfig, uncomputed: int, budget: int) -> int:
    """Return how many tokens a request may compute now (LSS-R10)."""
    return min(config.capped(uncomputed), budget)


def scheduled(plan: Plan, place: int, sequence: Sequence, pool: Pool, tokens: int) -> Plan:
    return plan._replace(
        running=(*plan.running[:place], sequence, *plan.running[place + 1 :]),
        pool=pool,
        budget=plan.budget - tokens,
        scheduled={**plan.scheduled, sequence.id: tokens},
    )


def victim(plan: Plan) -> Sequence:
    """Return the request to preempt: the one admitted last."""
    return plan.running[-1]


def preempt(config: LlmServingSimConfig, plan: Plan, last: Sequence) -> Plan:
    """Return the plan without the last request. The request gives back its blocks, goes to the
    front of the waiting queue, and will start again from its first token (LSS-R34)."""
    return plan._replace(
        running=without(plan.running, last.id),
        waiting=(last.rewound(), *plan.waiting),
        pool=kv_cache.free(config, plan.pool, last, plan.running),
        preempted=(*plan.preempted, last.id),
    )


def prompt_tokens(sequence: Sequence, tokens: int) -> int:
    """Return how many tokens a request in a batch adds to the prompt throughput. A one-token chunk
    counts only if it completes the prompt. Tokens that are computed again after a preemption count
    again."""
    if not sequence.generated and completes(sequence):
        return tokens + sequence.prefix_hit
    return tokens if tokens > 1 else 0
