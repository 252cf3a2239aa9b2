"""What a client sees of a step: the decision, what came of it, and the state after it."""

from typing import Any

from ..pool import free_blocks
from . import connector, encoder
from .config import VllmConfig
from .queue import Plan
from .state import State


def kind_of(plan: Plan) -> str:
    """Whether requests that compute decode, prefill, or some the one and some the other."""
    decodes = {one.decodes for one in plan.running if one.id in plan.scheduled}
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
    holders = [one for one in (*state.running, *waiting) if one.computed or one.blocks]
    seen: dict[str, Any] = {
        "kind": kind,
        "scheduled": plan.scheduled,
        "emitted": emitted,
        "waiting": [one.id for one in waiting],
        "running": [one.id for one in state.running],
        "prefilling": [one.id for one in state.running if not one.decodes],
        "preempted": [*plan.preempted],
        "finished": finished,
        "computed": {one.id: one.computed for one in holders},
        "blocks": {one.id: [*one.blocks] for one in (*holders, *state.leaving)},
    }
    if config.enable_prefix_caching:
        seen["prefix_hit"] = {one.id: one.prefix_hit for one in holders}
    if config.encodes:
        seen |= encoder.seen(plan.encoder, plan.running)
    if config.loads:
        seen["parked"] = [one.id for one in state.parked if one.blocks]
    if config.num_blocks is not None:
        seen["free_blocks"] = free_blocks(state.pool)
    return seen
