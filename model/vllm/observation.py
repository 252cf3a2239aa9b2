"""The observation of a step: the decision, its results, and the state after it."""

from typing import Any

from ..pool import free_blocks
from . import connector, encoder
from .config import VllmConfig
from .queue import Plan
from .state import State


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
    """Return the step observation of the target protocol, with every field that this model has
    (ALL-R13)."""
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
    if config.more_groups:
        seen["group_blocks"] = {
            sequence.id: [[*t] for t in sequence.tables] for sequence in holders
        }
    if config.enable_prefix_caching:
        seen["prefix_hit"] = {sequence.id: sequence.prefix_hit for sequence in holders}
    if config.encodes:
        seen |= encoder.seen(plan.encoder, plan.running)
    if config.loads:
        seen["parked"] = [sequence.id for sequence in state.parked if sequence.blocks]
    if config.num_blocks is not None:
        seen["free_blocks"] = free_blocks(state.pool)
    return seen
