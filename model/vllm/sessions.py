"""Sessions: requests that continue with another input after a turn has ended.

Source: release 0.33.0: Scheduler._handle_stopped_request, Scheduler._update_request_as_session. A
session that waits for its next input keeps its blocks and its slot.
"""

from typing import Any

from msgspec.structs import replace

from ..members import changed, without
from ..scenario import Turn
from . import completion, grammars, kv_cache, queue, scheduler
from .config import VllmConfig
from .connector import in_line
from .queue import Plan
from .revision import Revision
from .state import Grammar, Sequence, State


def of(newcomer: Sequence, turns: tuple[Turn, ...]) -> Sequence:
    """Return the first turn of a session. In every turn except the last, `output_len` is one larger
    than the turn's output, because the model would otherwise end the request."""
    return newcomer._replace(turns=turns, output_len=newcomer.output_len + 1)


def step(
    config: VllmConfig, state: State, abort_inside: tuple[str, ...], revision: Revision
) -> tuple[State, dict[str, Any]]:
    """Make one decision and complete it. Between two turns, a session waits (V1-I1), and the
    observation lists it as parked."""
    state = state._replace(
        parked=tuple([count_down(sequence) for sequence in state.parked]),
        waiting=tuple([count_down(sequence) for sequence in state.waiting]),
    )
    before, plan = state, decide(config, state, revision)
    state, seen = completion.carry_out(config, state, plan, abort_inside, revision)
    for sequence in (*state.running, *state.waiting):
        if sequence.turns and sequence.generated == sequence.output_len - 1:
            over = end_turn(sequence)
            state = revision.queue_session(remove(state, sequence.id), over)
            if over.computed:
                seen["computed"][over.id] = over.computed
    if config.has_grammars:
        seen |= grammars.fields(config, before, plan, state, seen["emitted"])
    state, line = with_holders(state), in_line(config, state)
    names = [sequence.id for sequence in (*state.running, *line)]
    if config.enable_prefix_caching:
        # A session may begin and end a turn in one step.
        waiting = {sequence.id for sequence in line} - plan.scheduled.keys()
        hits = seen["prefix_hit"].items()
        seen["prefix_hit"] = {name: hit for name, hit in hits if name not in waiting}
    return state, seen | {
        "running": [sequence.id for sequence in state.running],
        "waiting": [sequence.id for sequence in line],
        "parked": [sequence.id for sequence in line if sequence.blocks],
        "blocks": {name: seen["blocks"][name] for name in names if name in seen["blocks"]},
    }


def count_down(sequence: Sequence) -> Sequence:
    """Return a session that has waited one more step for its next input. If the input is due, begin
    the next turn."""
    if sequence.awaits is None:
        return sequence
    return sequence._replace(awaits=sequence.awaits - 1) if sequence.awaits else new_turn(sequence)


def new_turn(sequence: Sequence) -> Sequence:
    """Return a session at the beginning of its next turn. Only the tokens of the new input are to
    be computed (V1-R45), and the turn has its own grammar (V1-R59)."""
    turn, *others = sequence.turns
    return sequence._replace(
        content=(*sequence.content, *turn.prompt),
        prompt=sequence.prompt + turn.prompt_len,
        max_tokens=turn.max_tokens,
        output_len=turn.tokens_to_emit + bool(others),
        turns=tuple(others),
        awaits=None,
        grammar=Grammar(turn.grammar_ends) if turn.grammar_ends else None,
    )


def remove(state: State, name: str) -> State:
    """Take a session whose turn has ended out of the queues, and return the state. A token that was
    decided ahead is discarded when it arrives (V1-R45)."""
    flights = [
        {other: coming for other, coming in flight.items() if other != name}
        for flight in state.in_flight
    ]
    running, waiting = without(state.running, name), without(state.waiting, name)
    return state._replace(running=running, waiting=waiting, in_flight=tuple(flights))


def end_turn(sequence: Sequence) -> Sequence:
    """Return a session after a turn has ended. The turn's last token is dropped, even if it was
    computed ahead. From now on, the other tokens count as prompt (V1-R45)."""
    kept = sequence.generated - 1
    content = (*sequence.content, (f"out:{sequence.id}", kept)) if kept else sequence.content
    delay = sequence.turns[0].delay
    waits = sequence._replace(
        content=content,
        prompt=sequence.prompt + kept,
        computed=sequence.computed - sequence.promised,
        generated=0,
        promised=0,
        awaits=delay,
        aside=False,
    )
    return new_turn(waits) if delay is None else waits


def decide(config: VllmConfig, state: State, revision: Revision) -> Plan:
    """Return the decision of a step. A session is not scheduled before its next input arrives
    (V1-R44). Until then, it keeps its slot (V1-R46)."""
    config, state = revision.begin(config, state)
    plan = scheduler.advance_running(config, Plan.of(config, state), revision=revision)
    later = [sequence for sequence in (*plan.parked, *plan.waiting) if sequence.awaits is not None]
    if plan.preempted:
        first, *_ = (*plan.parked, *plan.waiting)
        stuck = not (later or plan.running or first.blocks)
        return give_back(config, plan, gone) if stuck and (gone := last_holder(plan)) else plan
    config = replace(config, max_num_active_seqs=None, max_num_seqs=config.slots - len(later))
    parked = tuple([sequence for sequence in plan.parked if sequence.awaits is None])
    waiting = tuple([sequence for sequence in plan.waiting if sequence.awaits is None])
    ready = plan._replace(parked=parked, waiting=waiting, leaving=(*plan.leaving, *later))
    after = scheduler.admit_waiting(config, ready, revision)
    while not (after.running or later) and (gone := last_holder(after)):
        after = admit_first(config, give_back(config, after, gone), revision)
    if later:
        line = {sequence.id: sequence for sequence in (*later, *after.parked, *after.waiting)}
        parked = tuple([line[held.id] for held in plan.parked if held.id in line])
        waiting = tuple([line[held.id] for held in plan.waiting if held.id in line])
        after = after._replace(parked=parked, waiting=waiting)
    decided: Plan = with_holders(after)
    return decided


def admit_first(config: VllmConfig, plan: Plan, revision: Revision) -> Plan:
    first = (*plan.parked, *plan.waiting)[0]
    alone = plan._replace(parked=(), waiting=(first,))
    after = scheduler.admit_waiting(config, alone, revision)
    if not after.running:
        return plan
    parked, waiting = without(plan.parked, first.id), without(plan.waiting, first.id)
    return after._replace(parked=parked, waiting=waiting)


def last_holder(plan: Plan) -> Sequence | None:
    """Return the last waiting request that holds blocks, except for the first in line."""
    _, *line = (*plan.parked, *plan.waiting) or (None,)
    return next((sequence for sequence in reversed(line) if sequence.blocks), None)


def give_back(config: VllmConfig, plan: Plan, sequence: Sequence) -> Plan:
    """Return the plan after a waiting session has given its blocks back. If no session ever did so,
    sessions could wait for one another's blocks forever (V1-R48). The session keeps its place."""
    lost, parked = sequence.rewound()._replace(aside=False), without(plan.parked, sequence.id)
    if sequence.aside or len(parked) < len(plan.parked):
        waiting = queue.put_back(config, without(plan.waiting, lost.id), lost)
    else:
        waiting = changed(plan.waiting, {lost.id: lost})
    plan = plan._replace(
        pool=kv_cache.free(config, plan.pool, sequence, plan.holders),
        parked=parked,
        waiting=waiting,
        preempted=(*plan.preempted, lost.id),
    )
    given_back: Plan = with_holders(plan)
    return given_back


def with_holders(state: Any) -> Any:
    """Record in `leaving` the waiting sessions that have blocks, and return the new state or plan.
    They must be recorded because they are neither running nor parked."""
    held = tuple([sequence for sequence in state.waiting if sequence.blocks])
    return state._replace(leaving=held)


def abort(config: VllmConfig, state: State, request_id: str) -> State:
    aborted: State = with_holders(scheduler.abort(config, state, request_id))
    return aborted
