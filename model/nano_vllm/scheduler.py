"""One step of the protocol: the revision decides, and the decision completes at once.

Source: the slide deck on nano-vLLM, chapters 4 "Prefill vs Decode" and 9 "Scheduler -> GPU". Every
function is pure: it takes a state, and returns a state and the observation of the step.
"""

from collections.abc import Callable
from typing import Any

from ..members import changed, find, without
from ..pool import free_blocks
from . import block_manager
from .config import NanoConfig
from .state import Plan, Sequence, State

Schedule = Callable[[NanoConfig, State], Plan]


def arrive(state: State, newcomer: Sequence) -> State:
    """Put a request at the back of the waiting queue (NAN-R06)."""
    return state._replace(waiting=(*state.waiting, newcomer))


def abort(config: NanoConfig, state: State, request_id: str) -> State:
    """Remove a request from whichever queue it is in. Ids of unknown or finished requests have no
    effect.

    Neither the slide deck nor the release has aborts, so the request leaves like a finished one.
    """
    sequence = find(state.waiting + state.running, request_id)
    if sequence is None:
        return state
    others = state.waiting + state.running
    return state._replace(
        waiting=without(state.waiting, request_id),
        running=without(state.running, request_id),
        pool=block_manager.deallocate(state.pool, sequence, others, config.block_size),
        aborted=(*state.aborted, request_id),
    )


def step(
    config: NanoConfig, state: State, schedule: Schedule, abort_inside: tuple[str, ...] = ()
) -> tuple[State, dict[str, Any]]:
    plan = schedule(config, state)
    state = state._replace(waiting=plan.waiting, running=plan.running, pool=plan.pool)
    for request_id in abort_inside:
        state = abort(config, state, request_id)
    slots = slot_blocks(config, state, plan)
    state, emitted, finished = postprocess(config, state, plan)
    return state, observe(state, plan, emitted, finished, slots)


def postprocess(
    config: NanoConfig, state: State, plan: Plan
) -> tuple[State, dict[str, int], dict[str, str]]:
    """Count and publish the computed tokens, and append a token to each request whose known tokens
    are all computed. Finished requests leave with their last token (ALL-R04)."""
    emitted: dict[str, int] = {}
    finished = dict.fromkeys(state.aborted, "aborted")
    sequences = {sequence.id: sequence for sequence in state.running + state.waiting}
    computed: dict[str, Sequence] = {}
    leaving, pool = [], state.pool
    for request_id, tokens in plan.scheduled.items():
        if request_id not in sequences:
            continue
        sequence = sequences[request_id]
        sequence = sequence._replace(computed=sequence.computed + tokens)
        sequence, pool = block_manager.hash_blocks(config, pool, sequence)
        if caught_up(sequence):
            sequence = sequence._replace(generated=sequence.generated + 1)
            emitted[sequence.id] = 1
        computed[sequence.id] = sequence
        if sequence.generated == sequence.output_len:
            finished[sequence.id] = "eos" if sequence.output_len < sequence.max_tokens else "length"
            leaving.append(sequence)
    running, waiting = changed(state.running, computed), changed(state.waiting, computed)
    for sequence in leaving:
        pool = block_manager.deallocate(pool, sequence, running + waiting, config.block_size)
        running = without(running, sequence.id)
    return State(waiting, running, pool), emitted, finished


def caught_up(sequence: Sequence) -> bool:
    """Return whether all known tokens are computed. The step then generates the next token
    (NAN-R13)."""
    return sequence.computed == sequence.num_tokens


def slot_blocks(config: NanoConfig, state: State, plan: Plan) -> dict[str, list[int]]:
    """Return, for each scheduled sequence, the blocks to which the step writes (NAN-R27)."""
    written = {}
    for sequence in (*state.running, *state.waiting):
        if sequence.id in plan.scheduled:
            last = sequence.computed + plan.scheduled[sequence.id] - 1
            table = sequence.blocks[
                sequence.computed // config.block_size : last // config.block_size + 1
            ]
            written[sequence.id] = [*table]
    return written


def observe(
    state: State,
    plan: Plan,
    emitted: dict[str, int],
    finished: dict[str, str],
    slots: dict[str, list[int]],
) -> dict[str, Any]:
    """Return the step observation, with every field that this model has (ALL-R13)."""
    holders = [sequence for sequence in (*state.running, *state.waiting) if sequence.blocks]
    kind = "prefill" if plan.is_prefill else "decode"
    return {
        "kind": kind if plan.scheduled else "idle",
        "scheduled": plan.scheduled,
        "emitted": emitted,
        "waiting": [sequence.id for sequence in state.waiting],
        "running": [sequence.id for sequence in state.running],
        "prefilling": [sequence.id for sequence in state.waiting if sequence.blocks],
        "preempted": [*plan.preempted],
        "finished": finished,
        "computed": {sequence.id: sequence.computed for sequence in holders},
        "prefix_hit": {sequence.id: sequence.prefix_hit for sequence in holders},
        "blocks": {sequence.id: [*sequence.blocks] for sequence in holders},
        "free_blocks": free_blocks(state.pool),
        "slot_blocks": slots,
    }
