"""One step of nano-vLLM's scheduler: prefill a request that can be admitted, else decode all.

Source: deck, chapters 6 "Reading schedule()" and 8 "Preemption". Everything here is pure: a state
goes in, a state and what can be observed of the step come out.
"""

from typing import Any

from ..members import changed, find, without
from ..pool import Pool, blocks_for, fits, free_blocks
from ..record import Record
from . import block_manager
from .config import NanoConfig
from .state import Sequence, State


class Plan(Record, frozen=True):
    """A decision. `scheduled` are the tokens of each sequence, in scheduling order."""

    running: tuple[Sequence, ...]
    waiting: tuple[Sequence, ...]
    pool: Pool
    scheduled: dict[str, int]
    is_prefill: bool
    preempted: tuple[str, ...] = ()


def arrive(state: State, newcomer: Sequence) -> State:
    """A request goes to the back of the waiting queue (NAN-R06)."""
    return state._replace(waiting=(*state.waiting, newcomer))


def abort(config: NanoConfig, state: State, request_id: str) -> State:
    """The client gives a request up, wherever it is; unknown and finished ids change nothing.

    Neither the deck nor the release knows aborts: it leaves as one that has finished does.
    """
    found = find(state.waiting + state.running, request_id)
    if found is None:
        return state
    others = state.waiting + state.running
    return state._replace(
        waiting=without(state.waiting, request_id),
        running=without(state.running, request_id),
        pool=block_manager.deallocate(state.pool, found, others, config.block_size),
        aborted=(*state.aborted, request_id),
    )


def schedule(config: NanoConfig, state: State, chunked: bool) -> Plan:
    """Prefill has strict priority: only if no request is admitted the running sequences decode
    (NAN-R10, NAN-R11)."""
    plan = (prefill_in_chunks if chunked else prefill)(config, state)
    return plan if plan.scheduled else decode(config, state)


def prefill(config: NanoConfig, state: State) -> Plan:
    """Waiting sequences are admitted in their order (NAN-R07), each with its whole prompt
    (NAN-R12); the first that fails a gate stops the loop. `max_num_seqs` bounds requests that run
    (NAN-R40)."""
    plan = Plan(state.running, state.waiting, state.pool, {}, True)
    budget = config.max_num_batched_tokens
    while plan.waiting and len(plan.running) < config.max_num_seqs:
        one = plan.waiting[0]
        hit = block_manager.prefix_hit(config, plan.pool, one)
        # What is cached is skipped and costs no budget (NAN-R08).
        tokens = one.num_tokens - len(hit) * config.block_size
        # The gate counts whole sequences, blocks that could be shared included (NAN-R09).
        needed = blocks_for(one.num_tokens, config.block_size)
        if tokens > budget or not fits(plan.pool, needed):
            break
        one, pool = block_manager.allocate(config, plan.pool, one, hit)
        plan = admitted(plan, one, pool, tokens)
        budget -= tokens
    return plan


def prefill_in_chunks(config: NanoConfig, state: State) -> Plan:
    """As `prefill`, but the first sequence of a step may be computed in part: it stays at the head
    of the queue, with all its blocks. `max_num_seqs` bounds those of this step only."""
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


def admitted(plan: Plan, one: Sequence, pool: Pool, tokens: int) -> Plan:
    """The plan in which the head of the queue runs, behind all others (NAN-R15), and computes
    `tokens`."""
    return plan._replace(
        running=(*plan.running, one),
        waiting=plan.waiting[1:],
        pool=pool,
        scheduled={**plan.scheduled, one.id: tokens},
    )


def decode(config: NanoConfig, state: State) -> Plan:
    """Running sequences get a token each (NAN-R04, NAN-R14), from the front; where no block is left
    for one, the last of the queue is preempted, itself if it is the last (NAN-R19)."""
    ready: tuple[Sequence, ...] = ()
    plan = Plan(state.running, state.waiting, state.pool, {}, False)
    while plan.running and len(ready) < config.max_num_seqs:
        one = plan.running[0]
        if not block_manager.can_append(config, plan.pool, one):
            plan = preempt(config, plan, plan.running[-1], ready)
            continue
        one, pool = block_manager.may_append(config, plan.pool, one)
        ready = (*ready, one)
        plan = plan._replace(
            running=plan.running[1:], pool=pool, scheduled={**plan.scheduled, one.id: 1}
        )
    return plan._replace(running=ready + plan.running)


def preempt(config: NanoConfig, plan: Plan, victim: Sequence, ready: tuple[Sequence, ...]) -> Plan:
    """The plan without the victim, which goes to the front of the waiting queue (NAN-R22) with
    nothing: no block (NAN-R21, NAN-R03), and all to be computed again (NAN-R23)."""
    others = ready + plan.running + plan.waiting
    return plan._replace(
        running=plan.running[:-1],
        waiting=(victim.rewound(), *plan.waiting),
        pool=block_manager.deallocate(plan.pool, victim, others, config.block_size),
        preempted=(*plan.preempted, victim.id),
    )


def postprocess(
    config: NanoConfig, state: State, plan: Plan
) -> tuple[State, dict[str, int], dict[str, str]]:
    """Count and publish what was computed; append a token where all is; let the finished leave."""
    emitted: dict[str, int] = {}
    finished = dict.fromkeys(state.aborted, "aborted")
    there = {one.id: one for one in state.running + state.waiting}
    computed: dict[str, Sequence] = {}
    leaving, pool = [], state.pool
    for request_id, tokens in plan.scheduled.items():
        if request_id not in there:
            continue
        one = there[request_id]
        one = one._replace(computed=one.computed + tokens)
        one, pool = block_manager.hash_blocks(config, pool, one)
        if caught_up(one):
            one = one._replace(generated=one.generated + 1)
            emitted[one.id] = 1
        computed[one.id] = one
        if one.generated == one.output_len:
            finished[one.id] = "eos" if one.output_len < one.max_tokens else "length"
            leaving.append(one)
    running, waiting = changed(state.running, computed), changed(state.waiting, computed)
    for one in leaving:
        pool = block_manager.deallocate(pool, one, running + waiting, config.block_size)
        running = without(running, one.id)
    return State(waiting, running, pool), emitted, finished


def caught_up(one: Sequence) -> bool:
    """All its known tokens are computed, so that the next one comes out (NAN-R13)."""
    return one.computed == one.num_tokens


def step(
    config: NanoConfig, state: State, chunked: bool, abort_inside: tuple[str, ...] = ()
) -> tuple[State, dict[str, Any]]:
    """One decision and its completion: the next state and the step observation.

    `abort_inside` are aborted after the decision and before it completes.
    """
    plan = schedule(config, state, chunked)
    state = state._replace(waiting=plan.waiting, running=plan.running, pool=plan.pool)
    for request_id in abort_inside:
        state = abort(config, state, request_id)
    slots = slot_blocks(config, state, plan)
    state, emitted, finished = postprocess(config, state, plan)
    return state, observe(state, plan, emitted, finished, slots)


def slot_blocks(config: NanoConfig, state: State, plan: Plan) -> dict[str, list[int]]:
    """The blocks that a step writes to, for each scheduled sequence (NAN-R27)."""
    written = {}
    for one in (*state.running, *state.waiting):
        if one.id in plan.scheduled:
            last = one.computed + plan.scheduled[one.id] - 1
            table = one.blocks[one.computed // config.block_size : last // config.block_size + 1]
            written[one.id] = [*table]
    return written


def observe(
    state: State,
    plan: Plan,
    emitted: dict[str, int],
    finished: dict[str, str],
    slots: dict[str, list[int]],
) -> dict[str, Any]:
    """The step observation, with every field that this model has."""
    holders = [one for one in (*state.running, *state.waiting) if one.blocks]
    kind = "prefill" if plan.is_prefill else "decode"
    return {
        "kind": kind if plan.scheduled else "idle",
        "scheduled": plan.scheduled,
        "emitted": emitted,
        "waiting": [one.id for one in state.waiting],
        "running": [one.id for one in state.running],
        "prefilling": [one.id for one in state.waiting if one.blocks],
        "preempted": [*plan.preempted],
        "finished": finished,
        "computed": {one.id: one.computed for one in holders},
        "prefix_hit": {one.id: one.prefix_hit for one in holders},
        "blocks": {one.id: [*one.blocks] for one in holders},
        "free_blocks": free_blocks(state.pool),
        "slot_blocks": slots,
    }
