"""One step of vLLM's scheduler: running requests first, then waiting ones, under one budget.

Source: cheat-sheet, "schedule() shape"; chunked-prefill chapter. There is no prefill and no
decode: every request has computed tokens that catch up with its known ones. Everything here is
pure: a state goes in, a state and what can be observed of the step come out.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from ..members import find, without
from ..pool import Pool, free_blocks
from . import kv_cache, queue, speculation
from .config import VllmConfig
from .state import Sequence, State


class Plan(NamedTuple):
    """A step half decided: what is left of the budget (tokens), and what runs so far.

    `scheduled` are the tokens of each request, in the order of their scheduling.
    """

    running: tuple[Sequence, ...]
    waiting: tuple[Sequence, ...]
    pool: Pool
    budget: int
    scheduled: dict[str, int]
    preempted: tuple[str, ...] = ()


# Picks the request that is preempted among the running requests of a plan.
Victim = Callable[[VllmConfig, Plan], Sequence]


def by_policy(config: VllmConfig, plan: Plan) -> Sequence:
    """A request that is preempted by the policy of the configuration."""
    return queue.victim(config, plan.running)


def arrive(config: VllmConfig, state: State, newcomer: Sequence) -> State:
    """A request enters the waiting queue."""
    newcomer = newcomer._replace(arrival=state.arrived)
    return state._replace(
        waiting=queue.enqueued(config, state.waiting, newcomer), arrived=state.arrived + 1
    )


def abort(config: VllmConfig, state: State, request_id: str) -> State:
    """The client gives up a request, wherever it is; unknown and finished ids change nothing."""
    found = find(state.waiting + state.running, request_id)
    if found is None:
        return state
    return state._replace(
        waiting=without(state.waiting, request_id),
        running=without(state.running, request_id),
        pool=kv_cache.free(config, state.pool, found, state.running),
        aborted=(*state.aborted, request_id),
    )


def schedule(config: VllmConfig, state: State, pick: Victim = by_policy) -> Plan:
    """Tokens that each request computes in this step, together within the budget (V1-R01, V1-I2),
    and the requests that `pick` has preempted."""
    plan = Plan(state.running, state.waiting, state.pool, config.max_num_batched_tokens, {})
    plan = advance_running(config, plan, pick)
    # A request that has just lost its blocks would only come back to lose them again (V1-R16).
    if not plan.preempted:
        plan = admit_waiting(config, plan)
    return plan


def advance_running(config: VllmConfig, plan: Plan, pick: Victim = by_policy) -> Plan:
    """Running requests go on in their order (V1-P01, V1CP-R03), at the cost of those admitted last;
    a request is preempted only where blocks are missing (V1-R05)."""
    place = 0
    while place < len(plan.running) and plan.budget > 0:
        one = plan.running[place]
        tokens = clamp(config, speculation.wanted(config, one), plan.budget)
        grown = kv_cache.grow(config, plan.pool, one, tokens)
        while grown is None:
            victim = pick(config, plan)
            # In front of this one a request may leave, by priority: the place moves along.
            place -= plan.running.index(victim) < place
            plan = preempt(config, plan, victim)
            if victim is one:
                return plan
            grown = kv_cache.grow(config, plan.pool, one, tokens)
        plan = scheduled(plan, place, *grown, tokens)
        place += 1
    return plan


def admit_waiting(config: VllmConfig, plan: Plan) -> Plan:
    """Waiting requests join in their order while slots are left (V1-I3); the first that cannot ends
    it (V1-R07, V1-R09), also where it must not be cut (V1CP-R07)."""
    while plan.waiting and plan.budget > 0 and len(plan.running) < config.max_num_seqs:
        one = plan.waiting[0]
        hit = kv_cache.prefix_hit(config, plan.pool, one)
        uncomputed = one.num_tokens - len(hit) * config.block_size
        if not config.enable_chunked_prefill and capped(config, uncomputed) > plan.budget:
            return plan
        tokens = clamp(config, uncomputed, plan.budget)
        admitted = kv_cache.admit(config, plan.pool, one, hit, tokens, bool(plan.running))
        if admitted is None:
            return plan
        plan = plan._replace(running=(*plan.running, one), waiting=plan.waiting[1:])
        plan = scheduled(plan, len(plan.running) - 1, *admitted, tokens)
    return plan


def clamp(config: VllmConfig, uncomputed: int, budget: int) -> int:
    """Tokens that a request may compute now, none beyond those known (V1-R02, V1-R04, V1CP-R02)."""
    return min(capped(config, uncomputed), budget)


def capped(config: VllmConfig, uncomputed: int) -> int:
    """Tokens of one request in one step, if there is a threshold (V1-R11)."""
    return min(uncomputed, config.long_prefill_token_threshold or uncomputed)


def scheduled(plan: Plan, place: int, one: Sequence, pool: Pool, tokens: int) -> Plan:
    """The plan in which the request at this place of the running ones computes `tokens`."""
    return plan._replace(
        running=(*plan.running[:place], one, *plan.running[place + 1 :]),
        pool=pool,
        budget=plan.budget - tokens,
        scheduled={**plan.scheduled, one.id: tokens},
    )


def preempt(config: VllmConfig, plan: Plan, victim: Sequence) -> Plan:
    """The plan without the victim, which gives back its blocks and its share of the budget, is
    counted (V1CP-R29), waits (V1-I1), and starts from nothing when it is admitted again (V1-I5,
    V1CP-R16)."""
    left = dict(plan.scheduled)
    returned = left.pop(victim.id, 0)
    return Plan(
        without(plan.running, victim.id),
        queue.put_back(config, plan.waiting, victim.rewound()._replace(drafted=0)),
        kv_cache.free(config, plan.pool, victim, plan.running),
        plan.budget + returned,
        left,
        (*plan.preempted, victim.id),
    )


def complete(
    config: VllmConfig, state: State, computed: dict[str, int]
) -> tuple[State, dict[str, int], dict[str, str]]:
    """Emit a token for each request that has caught up (V1-I4), and the drafts before it that are
    right; let the finished leave."""
    emitted: dict[str, int] = {}
    finished = dict.fromkeys(state.aborted, "aborted")
    running, pool = state.running, state.pool
    for request_id in computed:
        one = find(running, request_id)
        if one is None or one.num_uncomputed_tokens > 0:
            continue
        left = one.output_len - one.generated
        emitted[one.id] = min(1 + speculation.right(one), left)
        if emitted[one.id] == left:
            finished[one.id] = "eos" if one.output_len < one.max_tokens else "length"
            pool = kv_cache.free(config, pool, one, running)
            running = without(running, one.id)
    running = tuple(
        [
            speculation.verified(config, one, emitted[one.id]) if one.id in emitted else one
            for one in running
        ]
    )
    return state._replace(running=running, pool=pool, aborted=()), emitted, finished


def step(
    config: VllmConfig, state: State, abort_inside: tuple[str, ...] = ()
) -> tuple[State, dict[str, Any]]:
    """One scheduling decision and its completion: the next state and the step observation."""
    return carry_out(config, state, schedule(config, state), abort_inside)


def carry_out(
    config: VllmConfig, state: State, plan: Plan, abort_inside: tuple[str, ...] = ()
) -> tuple[State, dict[str, Any]]:
    """The completion of a decision: what was scheduled counts as computed (V1CP-R05).

    `abort_inside` are aborted after the decision was computed and before it completes: their
    tokens are not emitted.

    Returns the next state and the step observation of the target protocol.
    """
    kind = kind_of(plan)
    state = state._replace(
        waiting=plan.waiting,
        running=tuple(
            [
                one._replace(computed=one.computed + plan.scheduled.get(one.id, 0))
                for one in plan.running
            ]
        ),
        pool=plan.pool,
    )
    for request_id in abort_inside:
        state = abort(config, state, request_id)
    state, emitted, finished = complete(config, state, plan.scheduled)
    return state, observe(config, state, kind, plan, emitted, finished)


def kind_of(plan: Plan) -> str:
    """Whether requests that compute decode, prefill, or some the one and some the other."""
    decodes = {one.decodes for one in plan.running if one.id in plan.scheduled}
    if not decodes:
        return "idle"
    if len(decodes) == 2:
        return "mixed"
    return "decode" if True in decodes else "prefill"


def observe(
    config: VllmConfig,
    state: State,
    kind: str,
    plan: Plan,
    emitted: dict[str, int],
    finished: dict[str, str],
) -> dict[str, Any]:
    """The step observation, with every field that this model has."""
    holders = [one for one in (*state.running, *state.waiting) if one.computed or one.blocks]
    seen: dict[str, Any] = {
        "kind": kind,
        "scheduled": plan.scheduled,
        "emitted": emitted,
        "waiting": [one.id for one in state.waiting],
        "running": [one.id for one in state.running],
        "prefilling": [one.id for one in state.running if not one.decodes],
        "preempted": [*plan.preempted],
        "finished": finished,
        "computed": {one.id: one.computed for one in holders},
        "blocks": {one.id: [*one.blocks] for one in holders},
    }
    if config.enable_prefix_caching:
        seen["prefix_hit"] = {one.id: one.prefix_hit for one in holders}
    if config.num_blocks is not None:
        seen["free_blocks"] = free_blocks(state.pool)
    return seen
