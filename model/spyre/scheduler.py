"""One step of Spyre's scheduler: decide, compute, complete.

Source: Spyre scheduling page, "Priority rules"; releases 2.1.2 and 2.5.2 where `Revision` says so.
Everything here is pure: a state goes in, a state and what can be observed of the step come out.
"""

from typing import Any, Literal

from msgspec.structs import replace

from ..members import without
from ..pool import free_blocks
from ..record import Record
from . import admission, blocks, forward, pausing
from .config import SpyreConfig
from .forward import Forward
from .revision import Revision
from .state import Sequence, State


class Decision(Record, frozen=True):
    """What runs in this step: the chunk of one request, the decode batch, or nothing.

    An idle step has a member where a prompt was chosen for which there was no room.
    """

    kind: Literal["prefill", "decode", "idle"]
    members: tuple[Sequence, ...] = ()


def arrive(state: State, newcomer: Sequence) -> State:
    """A request enters the waiting queue at its end."""
    return state._replace(waiting=(*state.waiting, newcomer))


def abort(
    config: SpyreConfig, revision: Revision, state: State, request_id: str, *, inside: bool = False
) -> State:
    """The client gives up a request, wherever it is; unknown and finished ids change nothing.

    `inside`: between the decision of a step and its completion, else between two steps.
    """
    all_requests = state.waiting + state.running + state.paused
    found = next((one for one in all_requests if one.id == request_id), None)
    if found is None:
        return state
    after = state._replace(
        waiting=without(state.waiting, request_id),
        running=without(state.running, request_id),
        paused=without(state.paused, request_id),
        aborted=(*state.aborted, request_id),
    )
    if found.blocks:
        after = after._replace(pool=blocks.release(config, revision, after, found))
        if revision.leaks_reservations and not inside:
            promised = blocks.at_end(config, revision, found) - len(found.blocks)
            after = after._replace(lost_blocks=state.lost_blocks + promised)
    return after


def decide(config: SpyreConfig, revision: Revision, state: State) -> tuple[State, Decision]:
    """Prefill if a request may, else decode, else nothing (SPY-R35).

    In a step that is no prefill, releases that can pause first settle which requests sit out.
    """
    chosen = admission.candidate(config, revision, state)
    if chosen is not None:
        starts_without_promise = chosen.computed == 0 and not revision.reserves_blocks
        if starts_without_promise and not blocks.fits_prompt(config, state, chosen):
            return state, Decision("idle", (chosen,))
        return state, Decision("prefill", (chosen,))
    if revision.pauses:
        state = pausing.pause_and_resume(config, state)
    decoding = state.decoding
    if decoding:
        return state, Decision("decode", decoding)
    return state, Decision("idle")


def compute(
    config: SpyreConfig, revision: Revision, state: State, decision: Decision
) -> tuple[State, Forward]:
    """Run the model on what was decided: tokens, blocks and tkv move on, nothing is emitted."""
    if decision.kind == "prefill":
        return forward.compute_chunk(config, revision, state, decision.members[0])
    if decision.kind == "decode":
        return forward.compute_decode(config, state)
    return forward.compute_nothing(state, after_choice=bool(decision.members))


def complete(
    config: SpyreConfig, revision: Revision, state: State, computed: Forward
) -> tuple[State, dict[str, int], dict[str, str]]:
    """Emit a token for each computed request whose prompt is done (SPY-R20); let the finished
    leave."""
    emitted: dict[str, int] = {}
    finished: dict[str, str] = dict.fromkeys(state.aborted, "aborted")
    running: list[Sequence] = []
    leaving: list[Sequence] = []
    for one in state.running:
        if one.id in computed.scheduled and one.computed >= one.prompt:
            emitted[one.id] = 1
            one = replace(one, generated=one.generated + 1)
            if one.generated == one.output_len:
                finished[one.id] = "eos" if one.output_len < one.max_tokens else "length"
                leaving.append(one)
        running.append(one)
    state = replace(state, running=tuple(running), aborted=())
    for one in leaving:
        state = state._replace(running=without(state.running, one.id))
        state = state._replace(pool=blocks.release(config, revision, state, one))
    return state, emitted, finished


def step(
    config: SpyreConfig, revision: Revision, state: State, abort_inside: tuple[str, ...] = ()
) -> tuple[State, dict[str, Any]]:
    """One scheduling decision and its completion.

    `abort_inside` are aborted after the decision was computed and before it completes: their
    tokens are not emitted.

    Returns the next state and the step observation of the target protocol.
    """
    state, decision = decide(config, revision, state)
    state, computed = compute(config, revision, state, decision)
    for request_id in abort_inside:
        state = abort(config, revision, state, request_id, inside=True)
    state, emitted, finished = complete(config, revision, state, computed)
    return state, observe(config, revision, state, decision, computed, emitted, finished)


def observe(
    config: SpyreConfig,
    revision: Revision,
    state: State,
    decision: Decision,
    computed: Forward,
    emitted: dict[str, int],
    finished: dict[str, str],
) -> dict[str, Any]:
    """The step observation, with every field that this model has."""
    prefilling, admitted = state.prefilling, state.admitted
    seen: dict[str, Any] = {
        "kind": decision.kind,
        "scheduled": computed.scheduled,
        "emitted": emitted,
        "tkv": computed.tkv or None,
        "left_pad_blocks": computed.left_pad_blocks,
        "slot_blocks": computed.slot_blocks,
        "waiting": [one.id for one in state.waiting],
        "running": [one.id for one in state.running],
        "prefilling": [prefilling.id] if prefilling else [],
        "finished": finished,
        "computed": {one.id: one.computed for one in admitted},
        "blocks": {one.id: [*one.blocks] for one in admitted},
    }
    if revision.pauses:
        seen["paused"] = [one.id for one in state.paused]
    if config.prefix_caching:
        seen["prefix_hit"] = {one.id: one.prefix_hit for one in admitted}
    if revision.reserves_blocks:
        seen["reserved_blocks"] = blocks.reserved(config, revision, state)
    if config.num_blocks is not None:
        seen["free_blocks"] = free_blocks(state.pool)
    return seen
