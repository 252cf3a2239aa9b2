"""How release 0.2.0 differs from the slide deck: a prompt may be prefilled in chunks.

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
    """Prefill as in `documented`, except that the first sequence of a step may be computed only in
    part. That sequence then stays at the head of the queue with all its blocks. `max_num_seqs`
    bounds only the sequences of this step.
    """
    plan = Plan(state.running, state.waiting, state.pool, {}, True)
    budget = config.max_num_batched_tokens
    while plan.waiting and len(plan.scheduled) < config.max_num_seqs and budget > 0:
        sequence, pool = plan.waiting[0], plan.pool
        hit = () if sequence.blocks else block_manager.prefix_hit(config, pool, sequence)
        start = sequence.computed if sequence.blocks else len(hit) * config.block_size
        if not sequence.blocks:
            needed = block_manager.unshared_blocks(config, pool, sequence, hit)
            if not fits(pool, needed):
                break
        tokens = sequence.num_tokens - start
        if tokens > budget and plan.scheduled:
            break
        if not sequence.blocks:
            sequence, pool = block_manager.allocate(config, pool, sequence, hit)
        if tokens > budget:
            rest = (sequence, *plan.waiting[1:])
            return plan._replace(waiting=rest, pool=pool, scheduled={sequence.id: budget})
        plan = admitted(plan, sequence, pool, tokens)
        budget -= tokens
    return plan


def longest_prefill(config: NanoConfig) -> int | None:
    """Return None, since a prompt of any length is prefilled in chunks."""
    return None
