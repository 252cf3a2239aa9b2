"""A decision of vLLM's scheduler: running requests first, then waiting ones, under one budget.

Source: cheat-sheet, "schedule() shape", and chunked-prefill chapter, in their order. Prefill and
decode are not distinguished: every request computes its known tokens that are not computed yet.
Every function is pure: it takes a plan or a state, and returns a new one.

`kv_cache` decides whether a request gets blocks; `queue` decides the order of waiting requests and
which running request is preempted; `completion` carries a decision out. Features that the documents
only mention have their own modules. Every call into such a module is guarded by the feature's
switch, so a run without the feature never enters the module:

- `in_flight`: several decisions are computed at once (`config.depth`, `promised` tokens);
- `speculation`: a drafter proposes tokens (`config.drafts`, `drafted` tokens);
- `connector`: keys and values are loaded and sent (`config.loads`);
- `encoder`: parts of a prompt are encoded first (`config.encodes`, `inputs` of a request);
- `kv_groups`: not all layers keep the same tokens (`config.more_groups`, `tables` of a request);
- `cadence`: some steps hold prefills back (`plan.holds`, `held` requests);
- `mamba`: chunks end where Mamba layers can be cached (`config.caches_states`);
- `partial_hits`: prefix hits may end inside a block (`config.hits_inside`).
"""

from collections.abc import Callable

from ..members import find, without
from ..pool import Pool
from . import connector, encoder, in_flight, kv_cache, kv_groups, mamba, queue, speculation
from .config import VllmConfig
from .encoder import Fit
from .queue import Plan
from .revision import DOCUMENTED, Revision
from .state import Sequence, State

# Picks the running request of a plan that is to be preempted.
Victim = Callable[[VllmConfig, Plan], Sequence]


def by_policy(config: VllmConfig, plan: Plan) -> Sequence:
    """Return the request that the policy of the configuration preempts (V1CP-R13, V1CP-R14)."""
    return queue.victim(config, plan.running)


def schedule(
    config: VllmConfig, state: State, pick: Victim = by_policy, revision: Revision = DOCUMENTED
) -> Plan:
    """Return the plan of a step, in which requests together compute no more tokens than the budget
    allows (V1-R01, V1-I2). `pick` chooses the requests to preempt.

    The cheat-sheet: budget = max_num_batched_tokens; A) RUNNING; B) WAITING, if not preempted.
    """
    config, state = revision.begin(config, state)
    plan = advance_running(config, Plan.of(config, state), pick, revision)
    # After a preemption nothing is admitted: a newcomer would only lose its blocks again (V1-R16).
    if not plan.preempted:
        plan = admit_waiting(config, plan, revision)
    return plan


def advance_running(
    config: VllmConfig, plan: Plan, pick: Victim = by_policy, revision: Revision = DOCUMENTED
) -> Plan:
    """Schedule running requests in order (V1-P01, V1CP-R03). A request is preempted only if too few
    blocks are free (V1-R05). Those admitted last are preempted first, so that the first one always
    makes progress (ALL-R06). Each retry has one fewer possible victim, so the loop ends (ALL-R02).

    The cheat-sheet: A) RUNNING: n = clamp(num_tokens - num_computed, budget, threshold);
    allocate_slots; None -> preempt running.pop(); retry; commit; budget -= n.
    """
    place = 0
    while place < len(plan.running) and plan.budget > 0:
        sequence = plan.running[place]
        tokens, fit = clamp(config, behind(config, sequence), plan.budget), None
        if config.caches_states:
            tokens = mamba.next_chunk(config, sequence, tokens, revision.last_stop)
        if sequence.inputs:
            fit = revision.fit(config, plan, sequence, sequence.computed, tokens)
            tokens, sequence = fit.tokens, fit.sequence
            plan = plan._replace(encoder=fit.plan, running=_put(plan.running, place, sequence))
        if not tokens:  # V1-R06, V1-R33
            place += 1
            continue
        if config.more_groups:
            plan, sequence = kv_groups.slide(config, plan, place)
        grown = kv_cache.grow(config, plan.pool, sequence, tokens)
        while grown is None:
            victim = pick(config, plan)
            if config.loads and connector.is_written(plan.in_flight, victim):
                return plan  # preempting it would free no block now (V1-R24)
            # Under the priority policy, the victim may be in front of this request, which then
            # moves up by one place.
            place -= plan.running.index(victim) < place
            plan = preempt(config, plan, victim)
            if victim is sequence:
                if revision.ends_round(config):
                    return plan
                break
            grown = kv_cache.grow(config, plan.pool, sequence, tokens)
        if grown is not None:
            plan = scheduled(plan, place, *grown, tokens, fit)
            place += 1
    return plan


def admit_waiting(config: VllmConfig, plan: Plan, revision: Revision = DOCUMENTED) -> Plan:
    """Admit waiting requests in order while slots are left (V1-I3), those that hold blocks first
    (V1-R22). The first request that cannot join ends the loop (V1-R07, V1-R09), so that no other
    overtakes it (ALL-R05). With chunking off, a request that fits only in part also ends the loop
    (V1CP-R07).

    The cheat-sheet: B) WAITING: while budget>0 and len(running)<max_num_seqs and not preempted:
    get_computed_blocks (prefix cache) -> num_computed; clamp; allocate; None -> break; admit.
    """
    beside, slots = plan, config.slots
    for sequence in (*plan.parked, *plan.waiting):
        if plan.budget <= 0 or len(plan.running) >= slots:
            return plan
        still_computed = plan.in_flight and in_flight.is_still_computed(plan.in_flight, sequence)
        if still_computed or queue.lacks_adapter_slot(config, plan, sequence):
            plan = plan._replace(waiting=queue.set_aside(plan.waiting, sequence))
            continue
        if config.loads:
            ready, plan = connector.ready(config, plan, sequence)
            if ready is None:
                continue
            sequence = ready
        hit, sequence = kv_cache.found(config, plan.pool, sequence, bool(plan.running))
        loaded = connector.offered(config, sequence, hit) if config.loads else 0
        if loaded and not config.loads_in_step:
            after = connector.parked(config, plan, sequence, hit, loaded, revision.has_room)
            if after is None:
                return plan
            plan = after
            continue
        uncomputed = sequence.num_uncomputed_tokens - len(hit) * config.block_size - loaded
        start = sequence.num_tokens - uncomputed
        if config.drafts and (padding := revision.padding(config, beside, sequence, start)):
            uncomputed += padding
            if uncomputed > plan.budget:
                return plan  # the request waits, because it must not join without its padding
        if not config.enable_chunked_prefill and capped(config, uncomputed) > plan.budget:
            return plan
        if plan.holds and sequence.num_tokens - start > 1:
            return plan  # V1-R97
        tokens, fit = clamp(config, uncomputed, plan.budget), None
        if config.caches_states:
            last = revision.last_stop
            tokens = mamba.first_chunk(config, plan, sequence, len(hit), tokens, last)
            if not tokens:
                return plan
        if sequence.inputs:
            fit = revision.fit(config, plan, sequence, start, tokens)
            if not fit.tokens:
                continue  # V1-R33
            tokens, sequence = fit.tokens, fit.sequence
            plan = plan._replace(encoder=fit.plan)
        admit = connector.admit if sequence.blocks else kv_cache.admit
        admitted = admit(config, plan.pool, sequence, hit, loaded + tokens, bool(plan.running))
        if admitted is None:
            if sequence.needs:
                plan = plan._replace(encoder=encoder.refuse(plan.encoder, sequence, plan.running))
            return plan
        if config.loads_in_step:
            joined, pool = admitted
            admitted = connector.loads_now(config, joined, loaded), pool
        waiting, others = without(plan.waiting, sequence.id), without(plan.parked, sequence.id)
        plan = plan._replace(running=(*plan.running, sequence), waiting=waiting, parked=others)
        plan = scheduled(plan, len(plan.running) - 1, *admitted, tokens, fit)
    return plan


def behind(config: VllmConfig, sequence: Sequence) -> int:
    """Return how many tokens a running request has to compute, including drafts. Return 0 if it
    waits for a token in flight (V1-R06)."""
    if sequence.promised and in_flight.passed_over(config, sequence):
        return 0
    if sequence.held or sequence.rests:  # V1-R97, V1-R50
        return 0
    return speculation.wanted(config, sequence) if config.drafts else sequence.num_uncomputed_tokens


def clamp(config: VllmConfig, uncomputed: int, budget: int) -> int:
    """Return how many known tokens a request may compute now (V1-R02, V1-R04, V1CP-R02)."""
    return min(capped(config, uncomputed), budget)


def capped(config: VllmConfig, uncomputed: int) -> int:
    """Return how many tokens a request may compute in a step: at most the threshold (V1-R11)."""
    return min(uncomputed, config.long_prefill_token_threshold or uncomputed)


def scheduled(
    plan: Plan, place: int, sequence: Sequence, pool: Pool, tokens: int, fit: Fit | None = None
) -> Plan:
    """Return the plan in which the running request at `place` computes `tokens` tokens and the
    given inputs."""
    if fit is not None:
        sequence, computes = encoder.scheduled(fit, plan.encoder, sequence)
        plan = plan._replace(encoder=computes)
    return plan._replace(
        running=_put(plan.running, place, sequence),
        pool=pool,
        budget=plan.budget - tokens,
        scheduled={**plan.scheduled, sequence.id: tokens},
    )


def _put(running: tuple[Sequence, ...], place: int, sequence: Sequence) -> tuple[Sequence, ...]:
    return (*running[:place], sequence, *running[place + 1 :])


def preempt(config: VllmConfig, plan: Plan, victim: Sequence) -> Plan:
    """Return the plan without the victim. The victim gives back its blocks and its share of the
    budget, is counted as preempted (V1CP-R29), waits (V1-I1, ALL-R03), and starts from its first
    token when admitted again (V1-I5, V1CP-R16)."""
    lost = victim.rewound()._replace(drafted=0, promised=0, hoped=0, aside=False, needs=())
    others = dict(plan.scheduled)
    returned = others.pop(victim.id, 0)
    return Plan(
        without(plan.running, victim.id),
        queue.put_back(config, plan.waiting, lost),
        kv_cache.free(config, plan.pool, victim, plan.holders),
        plan.budget + returned,
        others,
        (*plan.preempted, victim.id),
        *(plan.in_flight, plan.parked, plan.leaving),
        encoder.take_back_inputs(plan.encoder, victim, plan.running)
        if victim.inputs
        else plan.encoder,
    )


def arrive(config: VllmConfig, state: State, newcomer: Sequence) -> State:
    newcomer = newcomer._replace(arrival=state.arrived)
    waiting = queue.enqueued(config, state.waiting, newcomer)
    return state._replace(waiting=waiting, arrived=state.arrived + 1)


def abort(config: VllmConfig, state: State, request_id: str) -> State:
    """Remove a request from whichever queue it is in. Ids of unknown or finished requests have no
    effect."""
    sequence = find(state.waiting + state.running + state.parked, request_id)
    if sequence is None:
        return state
    state = state._replace(
        waiting=without(state.waiting, request_id),
        running=without(state.running, request_id),
        parked=without(state.parked, request_id),
        aborted=(*state.aborted, request_id),
    )
    if sequence.needs:
        state = encoder.left(state, sequence)
    return (connector.abort if config.loads else free)(config, state, sequence)


def free(config: VllmConfig, state: State, sequence: Sequence) -> State:
    return state._replace(pool=kv_cache.free(config, state.pool, sequence, state.holders))
