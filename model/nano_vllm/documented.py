"""The decision that the slide deck on nano-vLLM describes: prefill the sequences that can be
admitted or, if there are none, decode all running sequences.

Source: slide deck, chapters 6 "Reading schedule()" and 8 "Preemption". Every function is pure: it
takes a state and returns a decision.
"""

from ..pool import Pool, blocks_for, fits
from . import block_manager
from .config import NanoConfig
from .state import Plan, Sequence, State


def schedule(config: NanoConfig, state: State) -> Plan:
    """Prefill or, if no request is admitted, decode the running sequences (NAN-R10, NAN-R11)."""
    plan = prefill(config, state)
    return plan if plan.scheduled else decode(config, state)


def prefill(config: NanoConfig, state: State) -> Plan:
    """Admit waiting sequences in order (NAN-R07), each with its whole prompt (NAN-R12). Stop at the
    first sequence that cannot be admitted, so that no other overtakes it (ALL-R05). `max_num_seqs`
    bounds the running sequences (NAN-R40)."""
    plan = Plan(state.running, state.waiting, state.pool, {}, True)
    budget = config.max_num_batched_tokens
    while plan.waiting and len(plan.running) < config.max_num_seqs:
        sequence = plan.waiting[0]
        hit = block_manager.prefix_hit(config, plan.pool, sequence)
        # Cached tokens are skipped and cost no budget (NAN-R08, NAN-R38).
        tokens = sequence.num_tokens - len(hit) * config.block_size
        # The check counts all blocks of a sequence, including those that could be shared (NAN-R09).
        needed = blocks_for(sequence.num_tokens, config.block_size)
        if tokens > budget or not fits(plan.pool, needed):
            break
        sequence, pool = block_manager.allocate(config, plan.pool, sequence, hit)
        plan = admitted(plan, sequence, pool, tokens)
        budget -= tokens
    return plan


def admitted(plan: Plan, sequence: Sequence, pool: Pool, tokens: int) -> Plan:
    """Return the plan after the first waiting sequence has moved to the end of the running queue
    (ALL-R03, NAN-R15). The sequence computes `tokens` tokens."""
    return plan._replace(
        running=(*plan.running, sequence),
        waiting=plan.waiting[1:],
        pool=pool,
        scheduled={**plan.scheduled, sequence.id: tokens},
    )


def decode(config: NanoConfig, state: State) -> Plan:
    """Compute one token for each running sequence (NAN-R04, NAN-R14), starting at the front.

    If no block is left for a sequence, preempt the last in the queue, which may be that sequence
    itself (NAN-R19). The first in the queue always continues (ALL-R06, ALL-R10), and each iteration
    takes one sequence off the queue (ALL-R02).
    """
    ready: tuple[Sequence, ...] = ()
    plan = Plan(state.running, state.waiting, state.pool, {}, False)
    while plan.running and len(ready) < config.max_num_seqs:
        sequence = plan.running[0]
        if not block_manager.can_append(config, plan.pool, sequence):
            plan = preempt(config, plan, plan.running[-1], ready)
            continue
        sequence, pool = block_manager.may_append(config, plan.pool, sequence)
        ready = (*ready, sequence)
        plan = plan._replace(
            running=plan.running[1:], pool=pool, scheduled={**plan.scheduled, sequence.id: 1}
        )
    return plan._replace(running=ready + plan.running)


def preempt(config: NanoConfig, plan: Plan, victim: Sequence, ready: tuple[Sequence, ...]) -> Plan:
    """Return the plan without the victim, which goes to the front of the waiting queue (NAN-R22).
    The victim keeps no blocks (NAN-R21, NAN-R03), so all its tokens must be computed again
    (NAN-R23)."""
    others = ready + plan.running + plan.waiting
    return plan._replace(
        running=plan.running[:-1],
        waiting=(victim.rewound(), *plan.waiting),
        pool=block_manager.deallocate(plan.pool, victim, others, config.block_size),
        preempted=(*plan.preempted, victim.id),
    )


def longest_prefill(config: NanoConfig) -> int | None:
    """Return the maximum length of a sequence in tokens. It is the budget of a step, because after
    a preemption the whole sequence is prefilled in one step, including the tokens that it has
    generated (NAN-R12)."""
    return config.max_num_batched_tokens
