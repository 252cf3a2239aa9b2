"""The page, in its order: one queue, first come, first served, under one budget.

Source: continuous-batching page, from "What the scheduler picks each step" to "Gotchas"; what both
revisions do when a batch is done is in `completion`. The page only says that memory has limits; for
them, the target protocol: a request starts once its last token has room, and no request starts
before it.
"""

from collections.abc import Sequence as Listed

from ..members import find, without
from . import kv_cache
from .completion import built
from .config import LlmServingSimConfig
from .state import Decision, Plan, Sequence, State


def schedule(config: LlmServingSimConfig, state: State) -> Decision:
    """The next batch within the budget (LSS-R06), or none: the pipeline is full, or no request can
    go (LSS-R01, LSS-R19). No request is left out while anything is left for it (LSS-P03,
    LSS-R17)."""
    if len(state.inflight) >= config.pp_size:
        return Decision(state, None)
    plan = Plan(state.running, state.waiting, state.pool, config.max_num_batched_tokens, {})
    for one in queue(config, state):
        # With nothing left there is nothing for any request: their lengths do not matter.
        if not config.has_slot(len(plan.scheduled)) or not plan.budget:
            break
        plan = served(config, plan, one)
    return built(state, plan)


def queue(config: LlmServingSimConfig, state: State) -> list[Sequence]:
    """The requests that may go, by arrival, and prefills first if they are prioritised (LSS-R08,
    LSS-R18).

    A request in a batch on its way is not there until that batch is done: what it computes next is
    not known before.
    """
    away = {name for batch in state.inflight for name, _ in batch.scheduled}
    there = [one for one in (*state.running, *state.waiting) if one.id not in away]
    if config.prioritize_prefill:
        return sorted(there, key=lambda one: (one.generated > 0, one.arrival))
    return sorted(there, key=lambda one: one.arrival)


def served(config: LlmServingSimConfig, plan: Plan, one: Sequence) -> Plan:
    """The plan with the tokens that a request gets; the same plan if it gets none (LSS-R09)."""
    if find(plan.running, one.id):
        tokens = cap(config, plan.budget, need(one))
        return going_on(config, plan, one, tokens) if tokens else plan
    if plan.short:
        return plan
    return starting(config, plan, one)


def starting(config: LlmServingSimConfig, plan: Plan, one: Sequence) -> Plan:
    """A request gets its first tokens, unless blocks are missing: then no request starts before it
    (LSS-P01, ALL-R05). Once it runs it waits no more (ALL-R03)."""
    hit = kv_cache.prefix_hit(config, plan.pool, one)
    tokens = cap(config, plan.budget, need(one) - len(hit) * config.block_size)  # LSS-R11
    if not tokens:
        return plan
    promised = kv_cache.promised(config, plan.running)
    longest = one.prompt + one.max_tokens - 1
    admitted = kv_cache.admit(config, plan.pool, one, hit, tokens, longest, promised)
    if admitted is None:
        return plan._replace(short=True)
    joined, pool = admitted
    return plan._replace(
        running=tuple(sorted((*plan.running, joined), key=lambda other: other.arrival)),
        waiting=without(plan.waiting, one.id),
        pool=pool,
        budget=plan.budget - tokens,
        scheduled={**plan.scheduled, one.id: tokens},
    )


def going_on(config: LlmServingSimConfig, plan: Plan, one: Sequence, tokens: int) -> Plan:
    """A request that has started gets tokens; the blocks for them were promised to it, so that it
    ends (ALL-R06, ALL-R10)."""
    grown, pool = kv_cache.hold(config, plan.pool, one, tokens)
    return plan._replace(
        running=tuple([grown if other.id == one.id else other for other in plan.running]),
        pool=pool,
        budget=plan.budget - tokens,
        scheduled={**plan.scheduled, one.id: tokens},
    )


def need(one: Sequence) -> int:
    """Tokens that a request wants: one to decode, or what is left of its prompt (LSS-R11,
    LSS-R12, LSS-R13)."""
    return 1 if one.generated else one.prompt - one.computed


def cap(config: LlmServingSimConfig, budget: int, needed: int) -> int:
    """Tokens that a request gets of the budget left (LSS-R10); none if it must not be cut."""
    wanted = config.capped(needed)
    if not config.enable_chunked_prefill and wanted > budget:
        return 0
    return min(wanted, budget)


def is_over(decisions: Listed[Decision], pending: bool, deferred: bool) -> bool:
    """No scheduler has a batch, no request will arrive, and no session waits for a tool
    (LSS-R20)."""
    return not pending and not deferred and all(one.batch is None for one in decisions)


def next_time(
    now: int, decisions: Listed[Decision], deferred: Listed[int], pending: bool = False
) -> int:
    """Return the clock for the next round, in the simulator's unit: if sessions that wait for a
    tool are all that is left, the time at which the first of them is due (LSS-R21)."""
    busy = pending or any(one.batch is not None for one in decisions)
    return now if busy or not deferred else max(now, min(deferred))


def prompt_tokens(one: Sequence, tokens: int) -> int:
    """Return what a request of a batch adds to the prompt throughput: all tokens of its prompt,
    each once (LSS-R23). What was cached counts with the batch that completes the prompt."""
    if one.generated:
        return 0
    return tokens + one.prefix_hit * completes(one)


def completes(one: Sequence) -> bool:
    """Its whole prompt is computed."""
    return one.computed >= one.prompt
