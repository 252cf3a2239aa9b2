"""One step of Spyre's scheduler: decide, compute, complete.

The revision decides, and this module carries out the decision. Every function is pure: it takes a
state, and returns a state and the observation of the step.
"""

from typing import Any

from msgspec.structs import replace

from ..members import find, without
from ..pool import free_blocks
from . import blocks, documented, forward
from .config import SpyreConfig
from .forward import Forward
from .revision import Revision
from .state import Decision, Sequence, State


def arrive(state: State, newcomer: Sequence) -> State:
    """Put a request at the end of the waiting queue (ALL-R03)."""
    return state._replace(waiting=(*state.waiting, newcomer))


def abort(
    config: SpyreConfig, revision: Revision, state: State, request_id: str, *, inside: bool = False
) -> State:
    """Abort a request and remove it from its queue (SPY-R61). Ids of unknown or finished requests
    have no effect.

    `inside` means that the abort comes between a step's decision and its completion, not between
    two steps.
    """
    request = find(state.waiting + state.running + state.paused, request_id)
    if request is None:
        return state
    after = state._replace(
        waiting=without(state.waiting, request_id),
        running=without(state.running, request_id),
        paused=without(state.paused, request_id),
        aborted=(*state.aborted, request_id),
    )
    if request.blocks:
        lost = revision.lost_blocks(config, revision, request, inside)
        pool = blocks.release(config, revision, after, request)
        after = after._replace(pool=pool, lost_blocks=state.lost_blocks + lost)
    return after


def compute(
    config: SpyreConfig, revision: Revision, state: State, decision: Decision
) -> tuple[State, Forward]:
    """Carry out the forward pass of the decision. Computed tokens, blocks and tkv advance, but no
    token is emitted."""
    if decision.kind == "prefill":
        return forward.compute_chunk(config, revision, state, decision.members[0])
    if decision.kind == "decode":
        return forward.compute_decode(config, state)
    return forward.compute_nothing(state, after_choice=bool(decision.members))


def complete(
    config: SpyreConfig, revision: Revision, state: State, computed: Forward
) -> tuple[State, dict[str, int], dict[str, str]]:
    """Emit a token for each request of the step whose whole prompt is computed (SPY-R20), and
    remove requests that have emitted their last token (ALL-R04)."""
    emitted: dict[str, int] = {}
    finished: dict[str, str] = dict.fromkeys(state.aborted, "aborted")
    running: list[Sequence] = []
    leaving: list[Sequence] = []
    scheduled = computed.scheduled
    for request in state.running:
        if request.id in scheduled and documented.emits_token(request):
            emitted[request.id] = 1
            request = replace(request, generated=request.generated + 1)
            if request.generated == request.output_len:
                early = request.output_len < request.max_tokens
                finished[request.id] = "eos" if early else "length"
                leaving.append(request)
        running.append(request)
    state = replace(state, running=tuple(running), aborted=())
    for request in leaving:
        state = state._replace(running=without(state.running, request.id))
        state = state._replace(pool=blocks.release(config, revision, state, request))
    return state, emitted, finished


def step(
    config: SpyreConfig, revision: Revision, state: State, abort_inside: tuple[str, ...] = ()
) -> tuple[State, dict[str, Any]]:
    """Make one scheduling decision and complete it. Every loop visits each request or block once,
    so a step always ends (ALL-R02)."""
    state, decision = revision.decide(config, revision, state)
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
    """Return the step observation, with every field that this model has (ALL-R13)."""
    prefilling, admitted = state.prefilling, state.admitted
    seen: dict[str, Any] = {
        "kind": decision.kind,
        "scheduled": computed.scheduled,
        "emitted": emitted,
        "tkv": computed.tkv or None,
        "left_pad_blocks": computed.left_pad_blocks,
        "slot_blocks": computed.slot_blocks,
        "waiting": [request.id for request in state.waiting],
        "running": [request.id for request in state.running],
        "prefilling": [prefilling.id] if prefilling else [],
        "finished": finished,
        "computed": {request.id: request.computed for request in admitted},
        "blocks": {request.id: [*request.blocks] for request in admitted},
    }
    if "paused" in revision.shows:
        seen["paused"] = [request.id for request in state.paused]
    if config.prefix_caching:
        seen["prefix_hit"] = {request.id: request.prefix_hit for request in admitted}
    if "reserved_blocks" in revision.shows:
        seen["reserved_blocks"] = blocks.reserved(config, revision, state)
    if config.num_blocks is not None:
        seen["free_blocks"] = free_blocks(state.pool)
    return seen
