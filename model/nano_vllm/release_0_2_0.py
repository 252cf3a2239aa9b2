"""What release 0.2.0 does differently: a prompt may be prefilled in chunks.

Source: nano-vLLM 0.2.0, Scheduler.schedule.
"""

from ..pool import fits
from . import block_manager
from .config import NanoConfig
from .documented import admitted, decode
from .state import Plan, State


def schedule(config: NanoConfig, state: State) -> Plan:
    plan = prefill(config, state)
    return plan if plan.scheduled else decode(config, state)


def prefill(config: NanoConfig, state: State) -> Plan:
    """As in the deck, but the first sequence of a step may be computed in part: it stays at the
    head of the queue, with all its blocks. `max_num_seqs` bounds those of this step only."""
    plan = Plan(state.running, state.waiting, state.pool, {}, True)
    budget = config.max_num_batched_tokens
    while plan.waiting and len(plan.scheduled) < config.max_num_seqs and budget > 0:
        one, pool = plan.waiting[0], plan.pool
        hit = () if one.blocks else block_manager.prefix_hit(config, pool, one)
        start = one.computed if one.blocks else len(hit) * config.block_size
        if not one.blocks:
            needed = block_manager.unshared_blocks(config, pool, one, hit)
            if not fits(pool, needed):
                break
        tokens = one.num_tokens - start
        if tokens > budget and plan.scheduled:
            break
        if not one.blocks:
            one, pool = block_manager.allocate(config, pool, one, hit)
        if tokens > budget:
            rest = (one, *plan.waiting[1:])
            return plan._replace(waiting=rest, pool=pool, scheduled={one.id: budget})
        plan = admitted(plan, one, pool, tokens)
        budget -= tokens
    return plan


def longest_prefill(config: NanoConfig) -> int | None:
    """Return None: a prompt of any length is prefilled in chunks."""
    return None
