"""One step of the protocol: decide a batch, and complete it at once.

Source: continuous-batching page, "What the scheduler hands back", for the results of a batch.
"""

from typing import Any, NamedTuple

from ..members import changed, find, without
from ..pool import free_blocks
from . import kv_cache
from .config import LlmServingSimConfig
from .state import Batch, Decision, Plan, Revision, Sequence, State


def arrive(state: State, newcomer: Sequence) -> State:
    newcomer = newcomer._replace(arrival=state.arrived)
    return state._replace(waiting=(*state.waiting, newcomer), arrived=state.arrived + 1)


def abort(config: LlmServingSimConfig, state: State, request_id: str) -> State:
    """Remove a request as if it had finished. Neither the documentation page nor the code mentions
    aborts."""
    kept = tuple([entry for entry in state.deferred if entry[1].id != request_id])
    known = find(state.waiting + state.running, request_id) is not None
    if not known and kept == state.deferred:
        return state
    state = leave(config, state, request_id)
    return state._replace(aborted=(*state.aborted, request_id), deferred=kept)


def step(
    revision: Revision,
    config: LlmServingSimConfig,
    state: State,
    abort_inside: tuple[str, ...] = (),
) -> tuple[State, dict[str, Any]]:
    decision = revision.schedule(config, state)
    state, batch = decision.state, decision.batch
    for request_id in abort_inside:
        state = abort(config, state, request_id)
    done = Done()
    finished = dict.fromkeys(state.aborted, "aborted")
    due = batch_to_complete(config, state, batch)
    if due is not None:
        sequences = {sequence.id: sequence for sequence in (*state.waiting, *state.running)}
        state, done = add_done(revision, config, state, due.number)
        for name in done.finished:
            early = sequences[name].output_len < sequences[name].max_tokens
            finished[name] = "eos" if early else "length"
    state = state._replace(aborted=())
    seen = observe(config, state, decision, revision)
    seen |= {"kind": kind_of(revision, decision), "emitted": dict.fromkeys(done.emitted, 1)}
    return state, seen | {
        "finished": finished,
        "prompt_throughput": done.prompt_throughput,
        "decode_throughput": done.decode_throughput,
    }


def batch_to_complete(
    config: LlmServingSimConfig, state: State, batch: Batch | None
) -> Batch | None:
    """Return the batch that completes in this step. With one pipeline stage, this is `batch`, which
    was just built. With several stages, a step that builds a batch completes none; any other step
    completes the oldest batch in flight."""
    if config.pp_size == 1:
        return batch
    return state.inflight[0] if batch is None and state.inflight else None


def kind_of(revision: Revision, decision: Decision) -> str:
    if decision.batch is None:
        return "idle"
    decided = {sequence.id: sequence for sequence in decision.state.running}
    decodes = set()
    for name, tokens in decision.batch.scheduled:
        sequence = decided[name]
        behind = sequence.num_uncomputed_tokens + (tokens if revision.counts_early else 0)
        decodes.add(sequence.generated > 0 and behind == 1)
    if len(decodes) == 2:
        return "mixed"
    return "decode" if True in decodes else "prefill"


def observe(
    config: LlmServingSimConfig, state: State, decision: Decision, revision: Revision
) -> dict[str, Any]:
    """Return the step observation of the state and the decision (ALL-R13)."""
    scheduled = () if decision.batch is None else decision.batch.scheduled
    holders = [
        sequence
        for sequence in (*state.running, *state.waiting)
        if sequence.computed or sequence.blocks
    ]
    seen: dict[str, Any] = {
        "scheduled": dict(scheduled),
        "waiting": [sequence.id for sequence in state.waiting],
        "running": [sequence.id for sequence in state.running],
        "prefilling": [
            sequence.id
            for sequence in state.running
            if not sequence.generated or sequence.num_uncomputed_tokens > 1
        ],
        "preempted": [*decision.preempted],
        "blocks": {sequence.id: [*sequence.blocks] for sequence in holders},
    }
    if shows_computed(config, revision):
        seen["computed"] = {sequence.id: sequence.computed for sequence in holders}
    if config.enable_prefix_caching:
        seen["prefix_hit"] = {sequence.id: sequence.prefix_hit for sequence in holders}
    if config.num_blocks is not None:
        seen["free_blocks"] = free_blocks(state.pool)
    if config.num_blocks is not None and revision.promises:
        seen["reserved_blocks"] = kv_cache.promised(config, state.running)
    return seen


def shows_computed(config: LlmServingSimConfig, revision: Revision) -> bool:
    """Return whether the count of computed tokens includes those of every decision, as the protocol
    requires. In revision `documented`, the count leaves out tokens in flight."""
    return config.pp_size == 1 or revision.counts_early


def built(state: State, plan: Plan, counted: bool = False) -> Decision:
    """Return the state with the plan's batch in the pipeline. If nothing was scheduled, the state
    is unchanged.

    With `counted`, the batch's tokens count as computed at once, instead of when the batch
    completes (LSS-R16).
    """
    running = plan.running
    if counted:
        running = tuple(
            [
                sequence._replace(computed=sequence.computed + plan.scheduled.get(sequence.id, 0))
                for sequence in running
            ]
        )
    state = state._replace(waiting=plan.waiting, running=running, pool=plan.pool)
    if not plan.scheduled:
        return Decision(state, None, plan.preempted)
    batch = Batch(state.batches, tuple(plan.scheduled.items()))
    state = state._replace(inflight=(*state.inflight, batch), batches=state.batches + 1)
    return Decision(state, batch, plan.preempted)


class Done(NamedTuple):
    """The result of `add_done`: the tokens that count for each throughput, and the requests that
    finished or got a token."""

    prompt_throughput: int = 0
    decode_throughput: int = 0
    finished: tuple[str, ...] = ()
    emitted: tuple[str, ...] = ()


def add_done(
    revision: Revision, config: LlmServingSimConfig, state: State, number: int
) -> tuple[State, Done]:
    """Complete batch `number`. Requests whose known tokens are all computed emit a token (LSS-R32),
    and finished requests leave with their last token (ALL-R04). If no batch with this number is in
    flight, nothing changes (LSS-R22)."""
    batch = next((flight for flight in state.inflight if flight.number == number), None)
    if batch is None:
        return state, Done()
    sequences = {sequence.id: sequence for sequence in state.running + state.waiting}
    computed: dict[str, Sequence] = {}
    emitted, finished, prompt = [], [], 0
    for name, tokens in batch.scheduled:
        # A request that has finished or was aborted since the batch was built is in neither queue.
        sequence = sequences.get(name)
        if sequence is None:
            continue
        if not revision.counts_early:
            sequence = sequence._replace(computed=sequence.computed + tokens)
        prompt += revision.prompt_tokens(sequence, tokens)
        if sequence.num_uncomputed_tokens <= 0:
            sequence = sequence._replace(generated=sequence.generated + 1)
            emitted.append(name)
        if sequence.generated == sequence.output_len:
            finished.append(name)
        computed[name] = sequence
    state = state._replace(
        waiting=changed(state.waiting, computed),
        running=changed(state.running, computed),
        inflight=tuple([flight for flight in state.inflight if flight.number != number]),
    )
    for name in finished:
        state = leave(config, state, name)
    # LSS-R24
    return state, Done(prompt, len(emitted), tuple(finished), tuple(emitted))


def leave(config: LlmServingSimConfig, state: State, name: str) -> State:
    """Return the state without request `name`. Its blocks can be hit until they are handed out."""
    sequence = find(state.running + state.waiting, name)
    if sequence is None:
        return state
    return state._replace(
        waiting=without(state.waiting, name),
        running=without(state.running, name),
        pool=kv_cache.free(config, state.pool, sequence, state.running),
    )
