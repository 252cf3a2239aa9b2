"""Turn a plan into a batch in the pipeline, and record its results once it has completed.

Source: continuous-batching page, "What the scheduler hands back".
"""

from typing import NamedTuple

from ..members import changed, find, without
from . import kv_cache
from .config import LlmServingSimConfig
from .state import Batch, Decision, Plan, Revision, Sequence, State


def built(state: State, plan: Plan, counted: bool = False) -> Decision:
    """Return the state with the plan's batch in the pipeline; unchanged if nothing was scheduled.

    `counted`: the batch's tokens count as computed from now on, instead of from its completion on
    (LSS-R16).
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
    """Complete the batch with this number: requests that have caught up emit a token (LSS-R32), and
    finished ones leave with their last token (ALL-R04). A number that is not in flight changes
    nothing (LSS-R22)."""
    batch = next((flight for flight in state.inflight if flight.number == number), None)
    if batch is None:
        return state, Done()
    sequences = {sequence.id: sequence for sequence in state.running + state.waiting}
    computed: dict[str, Sequence] = {}
    emitted, finished, prompt = [], [], 0
    for name, tokens in batch.scheduled:
        # A request that has finished or was aborted since the batch was built is in neither queue.
        # queue.
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
    """Return the state without a request. Its blocks are free, but can be hit until they are handed
    out again."""
    sequence = find(state.running + state.waiting, name)
    if sequence is None:
        return state
    return state._replace(
        waiting=without(state.waiting, name),
        running=without(state.running, name),
        pool=kv_cache.free(config, state.pool, sequence, state.running),
    )
