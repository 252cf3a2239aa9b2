"""One step of vLLM's scheduler: running requests first, then waiting ones, under one budget.

Source: cheat-sheet, "schedule() shape", and chunked-prefill chapter, in their order. Prefill and
decode are not distinguished: the computed tokens of every request catch up with its known ones.
Every function is pure: it takes a state, and returns a state and the observation of the step.

`kv_cache` decides whether a request gets blocks; `queue` decides the order of waiting requests and
which running request is preempted. Features that the documents only mention have their own modules.
Every call into such a module is guarded by the feature's switch, so a run without the feature never
enters it:

- `in_flight`: several decisions are computed at once (`config.depth`, `promised` tokens);
- `speculation`: a drafter proposes tokens (`config.drafts`, `drafted` tokens);
- `connector`: keys and values are loaded and sent (`config.loads`);
- `encoder`: parts of a prompt are encoded first (`config.encodes`, `inputs` of a request);
- `kv_groups`: not all layers keep the same tokens (`config.more_groups`, `tables` of a request);
- `cadence`: some steps hold prefills back (`plan.holds`, `held` requests);
- `mamba`: chunks end where Mamba layers can be cached (`config.caches_states`);
- `partial_hits`: prefix hits may end inside a block (`config.hits_inside`).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..members import changed, find, without
from ..pool import Pool, free_blocks
from . import (
    connector,
    encoder,
    in_flight,
    kv_cache,
    kv_groups,
    mamba,
    partial_hits,
    queue,
    speculation,
)
from .config import VllmConfig
from .encoder import Fit
from .queue import Plan
from .revision import DOCUMENTED, Revision
from .state import Coming, Flight, Sequence, State

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
    """Schedule running requests in order (V1-P01, V1CP-R03). Preempt those admitted last, so that
    the first always makes progress (ALL-R06). A request is preempted only if too few blocks are
    free (V1-R05). Each retry has one fewer possible victim, so the loop ends (ALL-R02).

    The cheat-sheet: A) RUNNING: n = clamp(num_tokens - num_computed, budget, threshold);
    allocate_slots; None -> preempt running.pop(); retry; commit; budget -= n.
    """
    place = 0
    while place < len(plan.running) and plan.budget > 0:
        sequence = plan.running[place]
        tokens, fit = clamp(config, behind(config, sequence), plan.budget), None
        if config.caches_states:
            start, junction = sequence.computed, sequence.junction
            tokens = mamba.chunk(config, sequence, start, tokens, junction, revision.last_stop)
        if sequence.inputs:
            start, stops = sequence.computed, (revision.stop_before, revision.stop_at_split)
            fit = encoder.fit(config, plan.encoder, sequence, start, tokens, plan.running, *stops)
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
        hit: tuple[int, ...] = ()
        if config.hits_inside and not sequence.blocks:
            runs = bool(plan.running)
            hit, sequence = kv_cache.hit_inside(config, plan.pool, sequence, runs)
        elif not sequence.blocks:
            hit = kv_cache.prefix_hit(config, plan.pool, sequence)
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
            last, cached = revision.last_stop, len(hit)
            tokens = mamba.first_chunk(config, plan.pool, sequence, cached, tokens, last)
            if not tokens or mamba.is_being_computed(config, plan, sequence, cached):
                return plan
        if sequence.inputs:
            stops = revision.stop_before, revision.stop_at_split
            fit = encoder.fit(config, plan.encoder, sequence, start, tokens, plan.running, *stops)
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
        state = state._replace(
            outputs=encoder.release_outputs(state.outputs, sequence, state.running)
        )
    return (connector.abort if config.loads else free)(config, state, sequence)


def free(config: VllmConfig, state: State, sequence: Sequence) -> State:
    return state._replace(pool=kv_cache.free(config, state.pool, sequence, state.holders))


def carry_out(
    config: VllmConfig,
    state: State,
    plan: Plan,
    abort_inside: tuple[str, ...] = (),
    revision: Revision = DOCUMENTED,
) -> tuple[State, dict[str, Any]]:
    """Count the scheduled tokens as computed (V1CP-R05), and complete the oldest decision."""
    kind, several, reports = kind_of(plan), config.depth > 1, True
    if config.hits_inside:
        plan = plan._replace(pool=partial_hits.copies_made(plan.pool, plan.holders))
    running = tuple(
        [
            sequence._replace(computed=sequence.computed + plan.scheduled.get(sequence.id, 0))
            for sequence in plan.running
        ]
    )
    flight = tokens_in_flight(running, plan.scheduled)
    state = state._replace(
        waiting=plan.waiting,
        running=in_flight.set_off(config, running, flight) if several else running,
        pool=plan.pool,
        in_flight=(*plan.in_flight, flight) if flight else plan.in_flight,
        parked=plan.parked,
        leaving=plan.leaving,
        outputs=plan.encoder.outputs,
    )
    for request_id in abort_inside:
        state = abort(config, state, request_id)
    places: dict[str, int] = {}
    if several:
        reports = in_flight.completes(config, state, bool(flight))
        state, flight = in_flight.complete_oldest(config, state, bool(flight))
        places = in_flight.places(config, state, flight)
    else:
        state = state._replace(in_flight=())
    if config.loads and flight:
        state = connector.finish_write(config, state)
    failed: dict[str, str] = {}
    if config.loads_in_step:
        state, flight, failed = connector.fall_back(config, state, flight, plan.running)
    state, emitted, finished = complete(config, state, flight, revision)
    finished |= failed
    if config.loads and reports:
        state, failed = connector.fail(config, state)
        finished |= failed
        state = connector.count_down(config, state)
    seen = observe(config, state, kind, plan, emitted, finished)
    if several:
        seen["emitted_at"] = {name: places[name] for name in emitted if name in places}
    return state, seen


def tokens_in_flight(computing: Iterable[Sequence], scheduled: Mapping[str, int]) -> Flight:
    """Return, for each request, the token that the decision will yield, or None if some of the
    request's known tokens remain uncomputed (V1-R19). Tokens computed beyond the known ones are
    drafts."""
    return {
        sequence.id: Coming(sequence.generated + sequence.promised, -missing, sequence.drafted)
        if (missing := sequence.num_uncomputed_tokens) <= 0
        else None
        for sequence in computing
        if sequence.id in scheduled
    }


def complete(
    config: VllmConfig, state: State, flight: Flight, revision: Revision = DOCUMENTED
) -> tuple[State, dict[str, int], dict[str, str]]:
    """For each request whose known tokens were all computed, emit the correct drafts and then a new
    token (V1-I4). Finished requests leave with their last token (ALL-R04)."""
    emitted: dict[str, int] = {}
    finished = dict.fromkeys(state.aborted, "aborted")
    state = state._replace(aborted=())
    known = {}
    for request_id, coming in flight.items():
        if config.encodes:
            state = encoder.release_passed(config, state, request_id)
        sequence = find(state.running, request_id) or find(state.waiting, request_id)
        if sequence is None or coming is None:
            continue
        remaining = sequence.output_len - sequence.generated
        emitted[sequence.id] = 1
        if sequence.promised:
            sequence = in_flight.deliver(sequence, coming)
        if config.drafts:
            drafts = speculation.proposed(sequence, coming)
            emitted[sequence.id] = min(1 + speculation.correct_drafts(sequence, drafts), remaining)
            sequence = speculation.verify(config, sequence, drafts, emitted[sequence.id], flight)
        else:
            sequence = sequence._replace(generated=sequence.generated + 1)
        if revision.publishes(config):
            sequence, pool = in_flight.publish(config, state.pool, sequence)
            state = state._replace(pool=pool)
        known[sequence.id] = sequence
        if emitted[sequence.id] == remaining:
            finished[sequence.id] = "eos" if sequence.output_len < sequence.max_tokens else "length"
            state = state._replace(
                running=without(state.running, sequence.id),
                waiting=without(state.waiting, sequence.id),
            )
            if sequence.needs:
                state = state._replace(
                    outputs=encoder.release_outputs(state.outputs, sequence, state.running)
                )
            state = (connector.send_or_free if config.loads else free)(config, state, sequence)
    running, waiting = changed(state.running, known), changed(state.waiting, known)
    return state._replace(running=running, waiting=waiting), emitted, finished


def kind_of(plan: Plan) -> str:
    decodes = {sequence.decodes for sequence in plan.running if sequence.id in plan.scheduled}
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
    """Return the step observation, with every field that this model has (ALL-R13)."""
    waiting = connector.in_line(config, state) if state.parked else state.waiting
    holders = [
        sequence for sequence in (*state.running, *waiting) if sequence.computed or sequence.blocks
    ]
    seen: dict[str, Any] = {
        "kind": kind,
        "scheduled": plan.scheduled,
        "emitted": emitted,
        "waiting": [sequence.id for sequence in waiting],
        "running": [sequence.id for sequence in state.running],
        "prefilling": [sequence.id for sequence in state.running if not sequence.decodes],
        "preempted": [*plan.preempted],
        "finished": finished,
        "computed": {sequence.id: sequence.computed for sequence in holders},
        "blocks": {sequence.id: [*sequence.blocks] for sequence in (*holders, *state.leaving)},
    }
    if config.more_groups:
        seen["group_blocks"] = {s.id: [[*t] for t in s.tables] for s in (*holders, *state.leaving)}
    if config.enable_prefix_caching:
        seen["prefix_hit"] = {sequence.id: sequence.prefix_hit for sequence in holders}
    if config.encodes:
        seen |= encoder.encoder_fields(plan.encoder, plan.running)
    if config.loads:
        seen["parked"] = [sequence.id for sequence in state.parked if sequence.blocks]
    if config.num_blocks is not None:
        seen["free_blocks"] = free_blocks(state.pool)
    return seen
