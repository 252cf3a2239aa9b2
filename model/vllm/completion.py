"""The end of a step: tokens arrive, requests end, and the step is observed.

Source: cheat-sheet, "update_from_output", and chunked-prefill chapter. Features have their own
modules, as in `scheduler`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ..members import changed, find, without
from ..pool import free_blocks
from . import connector, encoder, in_flight, partial_hits, speculation
from .config import VllmConfig
from .queue import Plan
from .revision import DOCUMENTED, Revision
from .scheduler import abort, free
from .state import Coming, Flight, Sequence, State


def carry_out(
    config: VllmConfig,
    state: State,
    plan: Plan,
    abort_inside: tuple[str, ...] = (),
    revision: Revision = DOCUMENTED,
) -> tuple[State, dict[str, Any]]:
    """Count the scheduled tokens as computed (V1CP-R05), and complete the oldest decision."""
    kind = kind_of(plan)
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
        running=in_flight.set_off(config, running, flight) if config.depth > 1 else running,
        pool=plan.pool,
        in_flight=(*plan.in_flight, flight) if flight else plan.in_flight,
        parked=plan.parked,
        leaving=plan.leaving,
        outputs=plan.encoder.outputs,
    )
    for request_id in abort_inside:
        state = abort(config, state, request_id)
    oldest = in_flight.Completion(flight)
    if config.depth > 1:
        state, oldest = in_flight.complete(config, state, flight)
    else:
        state = state._replace(in_flight=())
    flight, failed = oldest.flight, dict[str, str]()
    if config.loads and flight:
        state, flight, failed = connector.complete(
            config, state, flight, plan.running, revision.free_late
        )
    state, emitted, finished = complete(config, state, flight, revision)
    finished |= failed
    if config.loads and oldest.reports:
        state, failed = connector.report(config, state)
        finished |= failed
    seen = observe(config, state, kind, plan, emitted, finished)
    if oldest.places is not None:
        places = oldest.places
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
            sequence, tokens = speculation.emit(config, sequence, coming, flight, remaining)
            emitted[sequence.id] = tokens
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
                state = encoder.left(state, sequence)
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
    """Return the observation of the step, without the fields of features (ALL-R13)."""
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
    if config.enable_prefix_caching:
        seen["prefix_hit"] = {sequence.id: sequence.prefix_hit for sequence in holders}
    if config.num_blocks is not None:
        seen["free_blocks"] = free_blocks(state.pool)
    return seen
