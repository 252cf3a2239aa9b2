"""One step of Spyre's scheduler: decide, compute, complete.

Source: Spyre scheduling page, "Priority rules"; release 2.1.2 where `Revision` says so.
Everything here is pure: a state goes in, a state and what can be observed of the step come out.
"""

from typing import Any, Literal, NamedTuple

from . import admission, padding, tkv
from .config import SpyreConfig
from .pool import Pool, give_back, take
from .revision import Revision
from .state import Sequence, State


class Decision(NamedTuple):
    """What runs in this step: the chunk of one request, the decode batch, or nothing."""

    kind: Literal["prefill", "decode", "idle"]
    members: tuple[Sequence, ...] = ()


class Forward(NamedTuple):
    """What the model runner computed: real tokens, dummy blocks and the tkv it reports."""

    scheduled: dict[str, int]
    left_pad_blocks: dict[str, int]
    tkv: int


def arrive(state: State, newcomer: Sequence) -> State:
    """A request enters the waiting queue at its end."""
    return state._replace(waiting=(*state.waiting, newcomer))


def abort(state: State, request_id: str) -> State:
    """The client gives up a request, wherever it is; unknown and finished ids change nothing."""
    found = [one for one in state.waiting + state.running if one.id == request_id]
    if not found:
        return state
    return state._replace(
        waiting=_without(state.waiting, {request_id}),
        running=_without(state.running, {request_id}),
        pool=give_back(state.pool, found[0].blocks),
        aborted=(*state.aborted, request_id),
    )


def decide(config: SpyreConfig, revision: Revision, state: State) -> Decision:
    """Prefill if one may go, else decode, else nothing.

    The ongoing prefill is the only candidate while there is one; otherwise the head of the queue
    is, and if it cannot go nobody behind it can (strict first come, first served).
    """
    candidate = state.prefilling or (state.waiting[0] if state.waiting else None)
    if candidate and admission.may_prefill(config, revision, state, candidate):
        return Decision("prefill", (candidate,))
    if state.decoding:
        return Decision("decode", state.decoding)
    return Decision("idle")


def compute(
    config: SpyreConfig, revision: Revision, state: State, decision: Decision
) -> tuple[State, Forward]:
    """Run the model on what was decided: tokens, blocks and tkv move on, nothing is emitted."""
    if decision.kind == "prefill":
        return compute_chunk(config, revision, state, decision.members[0])
    if decision.kind == "decode":
        return compute_decode(config, state)
    return state._replace(tkv=0, last_step_was_prefill=False), Forward({}, {}, 0)


def compute_chunk(
    config: SpyreConfig, revision: Revision, state: State, one: Sequence
) -> tuple[State, Forward]:
    """One prefill chunk. The request moves to the front of the running queue."""
    tokens = padding.next_chunk(one.prompt, one.computed, config.chunk_size, config.block_size)
    pad = padding.left_padding_blocks(one.prompt, config.chunk_size, config.block_size)
    given = min(config.chunk_size, one.prompt) if one.computed == 0 else tokens
    covered = one.computed + (given if revision.whole_first_chunk else tokens)
    computed = one._replace(computed=one.computed + tokens)
    computed, pool = _hold(config, computed, covered, state.pool)
    runner_tkv = prefill_tkv(config, state, one, ends=computed.prefilled)
    after = state._replace(
        waiting=_without(state.waiting, {one.id}),
        running=(computed, *_without(state.running, {one.id})),
        last_step_was_prefill=True,
        tkv=runner_tkv,
        runner_tkv=runner_tkv,
        pool=pool,
    )
    if not revision.stale_tkv:
        batch = [member.computed for member in after.decoding]
        return after, Forward(
            {one.id: tokens}, {one.id: pad}, tkv.max_tkv(batch, config.block_size)
        )
    return after, Forward({one.id: tokens}, {one.id: pad}, runner_tkv)


def prefill_tkv(config: SpyreConfig, state: State, one: Sequence, *, ends: bool) -> int:
    """The tkv that releases up to 2.3 report after a chunk: the old one until the last chunk.

    Only a first chunk that meets an empty decode batch starts a new count.
    """
    current = state.runner_tkv
    if one.computed == 0 and not state.decoding:
        current = one.prompt
    if ends:
        return tkv.tkv_after_last_chunk(one.prompt, current, config.block_size)
    return current


def compute_decode(config: SpyreConfig, state: State) -> tuple[State, Forward]:
    """One token for every decoding request; whoever prefills goes to the end of the queue."""
    pool = state.pool
    grown: list[Sequence] = []
    for one in state.decoding:
        longer, pool = _hold(config, one, one.computed + 1, pool)
        grown.append(longer._replace(computed=one.computed + 1))
    lengths = [one.computed for one in grown]
    pads = tkv.left_pad_blocks(lengths, config.block_size)
    reached = tkv.max_tkv(lengths, config.block_size)
    after = state._replace(
        running=(*grown, *(one for one in state.running if not one.prefilled)),
        last_step_was_prefill=False,
        tkv=reached,
        runner_tkv=reached,
        pool=pool,
    )
    forward = Forward(
        {one.id: 1 for one in grown},
        {one.id: pad for one, pad in zip(grown, pads, strict=True)},
        reached,
    )
    return after, forward


def complete(state: State, forward: Forward) -> tuple[State, dict[str, int], dict[str, str]]:
    """Emit a token for each computed request whose prompt is done; let the finished leave."""
    emitted: dict[str, int] = {}
    finished: dict[str, str] = dict.fromkeys(state.aborted, "aborted")
    running: list[Sequence] = []
    pool = state.pool
    for one in state.running:
        if one.id not in forward.scheduled or not one.prefilled:
            running.append(one)
            continue
        emitted[one.id] = 1
        generated = one.generated + 1
        if generated == one.output_len:
            finished[one.id] = "eos" if one.output_len < one.max_tokens else "length"
            pool = give_back(pool, one.blocks)
        else:
            running.append(one._replace(generated=generated))
    after = state._replace(running=tuple(running), pool=pool, aborted=())
    return after, emitted, finished


def step(
    config: SpyreConfig, revision: Revision, state: State, abort_inside: tuple[str, ...] = ()
) -> tuple[State, dict[str, Any]]:
    """One scheduling decision and its completion.

    `abort_inside` are aborted after the decision was computed and before it completes: their
    tokens are not emitted.

    Returns the next state and the step observation of the target protocol.
    """
    decision = decide(config, revision, state)
    state, forward = compute(config, revision, state, decision)
    for request_id in abort_inside:
        state = abort(state, request_id)
    state, emitted, finished = complete(state, forward)
    return state, observe(config, state, decision, forward, emitted, finished)


def observe(
    config: SpyreConfig,
    state: State,
    decision: Decision,
    forward: Forward,
    emitted: dict[str, int],
    finished: dict[str, str],
) -> dict[str, Any]:
    """The step observation, with every field that this model has."""
    prefilling = state.prefilling
    seen: dict[str, Any] = {
        "kind": decision.kind,
        "scheduled": forward.scheduled,
        "emitted": emitted,
        "tkv": forward.tkv or None,
        "left_pad_blocks": forward.left_pad_blocks,
        "waiting": [one.id for one in state.waiting],
        "running": [one.id for one in state.running],
        "prefilling": [prefilling.id] if prefilling else [],
        "finished": finished,
        "computed": {one.id: one.computed for one in state.running},
        "blocks": {one.id: list(one.blocks) for one in state.running},
    }
    if config.num_blocks is not None:
        held = sum(len(one.blocks) for one in state.running)
        promised = sum(admission.blocks_at_end(config, one) for one in state.running)
        seen["free_blocks"] = config.num_blocks - held
        seen["reserved_blocks"] = max(promised - held, 0)
    return seen


def _hold(config: SpyreConfig, one: Sequence, covered: int, pool: Pool) -> tuple[Sequence, Pool]:
    """The request with blocks for its first `covered` tokens."""
    if covered <= len(one.blocks) * config.block_size:
        return one, pool
    missing = padding.blocks_for(covered, config.block_size) - len(one.blocks)
    new, pool = take(pool, missing)
    return one._replace(blocks=one.blocks + new), pool


def _without(queue: tuple[Sequence, ...], ids: set[str]) -> tuple[Sequence, ...]:
    return tuple(one for one in queue if one.id not in ids)
