"""Decisions in flight: the scheduler makes the next decision before the previous one is computed.

Source: chunked-prefill chapter, code of the running clamp (num_output_placeholders); release
0.28.0: AsyncScheduler, and the engine core's queue of batches. A token in flight is *promised*,
because it will arrive. Drafts in flight are *hoped for*, because they may be wrong.
"""

from collections.abc import Mapping
from typing import NamedTuple

from .. import allocator
from ..pool import Pool
from . import kv_groups, partial_hits, speculation
from .config import VllmConfig
from .queue import Plan
from .state import Coming, Flight, Sequence, State


def set_off(
    config: VllmConfig, running: tuple[Sequence, ...], flight: Flight
) -> tuple[Sequence, ...]:
    """Return the running requests after a decision has been sent to the worker. The decision's
    tokens are now promised, and its drafts are hoped for. If the next step is decided ahead, new
    drafts are proposed before this decision completes."""
    if not flight:
        return running
    ahead = config.drafts > 0 and config.decides_ahead
    drafts = speculation.drafts_after(config, len(flight)) if ahead else 0
    turn = config.turn
    return tuple([_ahead(sequence, flight.get(sequence.id), drafts, turn) for sequence in running])


def _ahead(sequence: Sequence, coming: Coming | None, drafts: int, turn: int) -> Sequence:
    if coming is None:
        return sequence
    return sequence._replace(
        promised=sequence.promised + 1,
        hoped=sequence.hoped + coming.drafts,
        drafted=drafts,
        rests=turn,
    )


def count_down(state: State) -> State:
    """Return the state at the start of a step. Each resting request has one step less to rest."""

    def rested(sequences: tuple[Sequence, ...]) -> tuple[Sequence, ...]:
        return tuple([s._replace(rests=s.rests - 1) if s.rests else s for s in sequences])

    return state._replace(running=rested(state.running), waiting=rested(state.waiting))


def hold_grammars(state: State) -> State:
    """Return the state at the start of a step. A request that has both a grammar and a token in
    flight must rest, unless the token comes with the oldest decision. Otherwise, the next mask
    would be made before that token has arrived (V1-R64)."""
    later = {name for flight in state.in_flight[1:] for name in flight if flight[name] is not None}
    running = [
        sequence._replace(rests=int(sequence.id in later))
        if sequence.grammar is not None
        else sequence
        for sequence in state.running
    ]
    return state._replace(running=tuple(running))


def is_decided(state: State) -> bool:
    """Return whether the engine core asks the scheduler for a decision in the coming step. Only
    such steps count for requests that rest.

    While everything is paused, the engine core asks only if a request has ended since the last
    decision, because the worker must be told. While new requests are paused, the core also asks if
    a request is running.

    Source: release 0.33.0: EngineCore.step_with_batch_queue, Scheduler.has_requests.
    """
    if not state.pause or state.ended or state.aborted:
        return True
    return state.pause == "pause_new" and bool(state.running)


def note_ends(before: State, after: State) -> State:
    """Return the state after a step, with a record of whether a request has ended in the step."""
    return after._replace(ended=_unfinished(after) < _unfinished(before))


def _unfinished(state: State) -> int:
    return len(state.running) + len(state.waiting) + len(state.parked)


def is_waited_for(config: VllmConfig, state: State, decided: bool) -> bool:
    """Return whether the scheduler waits for the oldest decision. It waits if the pipeline is full,
    if this step decided nothing, or if a mask depends on a token in flight."""
    if not decided or len(state.in_flight) >= config.depth:
        return True
    return state.mask_waits


def mask_waits(plan: Plan) -> bool:
    """Return whether the plan computes a request that has both a grammar and a token in flight.

    Source: release 0.33.0: AsyncScheduler, pending_structured_output_tokens.
    """
    names = {s.id for s in plan.running if s.grammar is not None} & plan.scheduled.keys()
    return any(flight.get(name) is not None for flight in plan.in_flight for name in names)


def completes(config: VllmConfig, state: State, decided: bool) -> bool:
    """Return whether a decision completes in this step: the scheduler waits for it, or it completes
    early. If a recording says whether a decision completes, follow the recording."""
    if state.completes_next is not None:
        return state.completes_next
    return is_waited_for(config, state, decided) or state.early < config.early


def count_early(config: VllmConfig, state: State, decided: bool) -> State:
    """Update the count of consecutive early completions, and return the new state."""
    if not config.early:
        return state
    early = state.early < config.early and not is_waited_for(config, state, decided)
    return state._replace(early=state.early + 1 if early else 0)


class Completion(NamedTuple):
    """The decision that completes in a step. `flight` is what the decision yields, `reports`
    whether the worker reports anything, and `places` the position of each first token, as the
    function `places` returns it. There are no positions if only one decision is ever in flight."""

    flight: Flight
    reports: bool = True
    places: Mapping[str, int] | None = None


def complete(config: VllmConfig, state: State, flight: Flight) -> tuple[State, Completion]:
    """Return the state and the decision that completes in the step in which `flight` is decided."""
    reports = completes(config, state, bool(flight))
    state, oldest = complete_oldest(config, state, bool(flight))
    return state, Completion(oldest, reports, places(config, state, oldest))


def complete_oldest(config: VllmConfig, state: State, decided: bool) -> tuple[State, Flight]:
    """Return the state and the oldest decision, if one completes in this step."""
    reports = completes(config, state, decided)
    state = count_early(config, state, decided)
    if state.completes_next is not None:
        state = state._replace(completes_next=None)
    if not state.in_flight or not reports:
        return state, {}
    flight, *rest = state.in_flight
    if config.more_groups:
        running = [
            sequence._replace(begun=sequence.begun[1:]) if sequence.id in flight else sequence
            for sequence in state.running
        ]
        state = state._replace(running=tuple(running))
    return state._replace(in_flight=tuple(rest)), flight


def places(config: VllmConfig, state: State, flight: Flight) -> dict[str, int]:
    """Return where the tokens of a completing decision begin in the output of each request.

    Without drafts, a position is known when the decision is made. With drafts, earlier decisions
    may have yielded fewer tokens than hoped. The position is then the number of tokens that the
    request has generated, if it still runs or waits.
    """
    generated = {sequence.id: sequence.generated for sequence in (*state.running, *state.waiting)}
    return {
        name: generated.get(name, coming.place) if config.drafts else coming.place
        for name, coming in flight.items()
        if coming is not None
    }


def publish(config: VllmConfig, pool: Pool, sequence: Sequence) -> tuple[Sequence, Pool]:
    """Publish the blocks of a request that known tokens fill. Return the request and the pool.
    Tokens and drafts in flight do not count."""
    if not config.enable_prefix_caching:
        return sequence, pool
    covered = sequence.computed - sequence.promised - sequence.hoped
    if sequence.tables:
        sequence, pool = kv_groups.publish_full(config, pool, sequence, covered)
        size = config.block_size
        covered = kv_groups.findable(config, sequence, covered, size) * size
    sequence, pool = allocator.publish_full(pool, sequence, covered, config.block_size)
    if config.hits_inside:
        known = sequence.computed - sequence.promised - sequence.hoped
        return partial_hits.name_tails(config, pool, sequence, min(known, sequence.num_tokens))
    return sequence, pool


def deliver(sequence: Sequence, coming: Coming) -> Sequence:
    """Return the request after a promised token has arrived. A request that has been preempted
    since has no promised tokens."""
    return sequence._replace(
        promised=max(sequence.promised - 1, 0), hoped=max(sequence.hoped - coming.drafts, 0)
    )


def passed_over(config: VllmConfig, sequence: Sequence) -> bool:
    """Return whether a running request has nothing to compute until a promised token arrives.

    There are three possible reasons: that token is the request's last one; the next token is not
    decided ahead (V1-R06); or the tokens in flight would fill all positions if every draft were
    correct.
    """
    if not config.decides_ahead or sequence.generated + sequence.promised >= sequence.max_tokens:
        return True
    return config.drafts > 0 and speculation.wanted(config, sequence) <= 0


def is_still_computed(in_flight: tuple[Flight, ...], sequence: Sequence) -> bool:
    """Return whether a preempted request is still being computed. The request is not admitted again
    before the results arrive, because they belong to it (V1-R10)."""
    return any(sequence.id in flight for flight in in_flight)
