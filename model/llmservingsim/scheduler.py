"""One step of the protocol: decide a batch, and complete it at once."""

from typing import Any

from ..members import find
from ..pool import free_blocks
from . import kv_cache
from .completion import Done, add_done, leave
from .config import LlmServingSimConfig
from .state import Decision, Revision, Sequence, State


def arrive(state: State, newcomer: Sequence) -> State:
    newcomer = newcomer._replace(arrival=state.arrived)
    return state._replace(waiting=(*state.waiting, newcomer), arrived=state.arrived + 1)


def abort(config: LlmServingSimConfig, state: State, request_id: str) -> State:
    """Remove a request as if it had finished, since neither the page nor the code mentions aborts.
    Unknown and finished ids change nothing."""
    if find(state.waiting + state.running, request_id) is None:
        return state
    state = leave(config, state, request_id)
    return state._replace(aborted=(*state.aborted, request_id))


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
    if batch is not None:
        running = {sequence.id: sequence for sequence in state.running}
        state, done = add_done(revision, config, state, batch.number)
        for name in done.finished:
            early = running[name].output_len < running[name].max_tokens
            finished[name] = "eos" if early else "length"
    state = state._replace(aborted=())
    seen = observe(config, state, decision, revision.promises)
    seen |= {"kind": kind_of(revision, decision), "emitted": dict.fromkeys(done.emitted, 1)}
    return state, seen | {
        "finished": finished,
        "prompt_throughput": done.prompt_throughput,
        "decode_throughput": done.decode_throughput,
    }


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
    config: LlmServingSimConfig, state: State, decision: Decision, promises: bool
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
        "prefilling": [sequence.id for sequence in state.running if not sequence.decodes],
        "preempted": [*decision.preempted],
        "computed": {sequence.id: sequence.computed for sequence in holders},
        "blocks": {sequence.id: [*sequence.blocks] for sequence in holders},
    }
    if config.enable_prefix_caching:
        seen["prefix_hit"] = {sequence.id: sequence.prefix_hit for sequence in holders}
    if config.num_blocks is not None:
        seen["free_blocks"] = free_blocks(state.pool)
    if config.num_blocks is not None and promises:
        seen["reserved_blocks"] = kv_cache.promised(config, state.running)
    return seen
