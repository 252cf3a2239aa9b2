"""Prefill at intervals: after a step that computes prompts, some steps only decode.

Source: release 0.33.0: SchedulerConfig.prefill_schedule_interval, and the comments of
Scheduler.schedule on the local prefill cadence.
"""

from .config import VllmConfig
from .queue import Plan
from .state import Cadence, State


def begin(state: State) -> State:
    """Mark the prefills that the coming step holds back (V1-R97), and return the new state.

    No prefill is held back if no request decodes, or if the last step that could admit requests
    left some requests waiting.
    """
    known = state.cadence or Cadence()
    decodes = any(sequence.id not in known.prefilling for sequence in state.running)
    holds = known.left > 0 and not known.crowded and decodes
    running = [
        sequence._replace(held=holds and sequence.id in known.prefilling)
        for sequence in state.running
    ]
    return state._replace(running=tuple(running), cadence=known._replace(holds=holds))


def after(config: VllmConfig, before: State, plan: Plan) -> Cadence:
    """Return what this decision means for later steps: whether they may hold prefills back."""
    known, ran = before.cadence or Cadence(), {sequence.id for sequence in before.running}
    prefilling, carries = [], False
    for sequence in plan.running:
        tokens = plan.scheduled.get(sequence.id)
        went_on = sequence.id in known.prefilling
        if tokens is not None:
            missing = sequence.num_uncomputed_tokens
            carries = carries or (went_on if sequence.id in ran else missing > 1)
            went_on = missing > tokens
        if went_on:
            prefilling.append(sequence.id)
    left = config.prefill_interval - 1 if carries else max(known.left - bool(plan.scheduled), 0)
    aside = [s.id for s in plan.waiting if s.aside or s.id in known.aside]
    crowded = known.crowded
    if not (plan.preempted or plan.holds or before.pause == "pause_all"):
        crowded = len(plan.waiting) > len(aside)
    return Cadence(left, crowded, tuple(prefilling), tuple(aside))
