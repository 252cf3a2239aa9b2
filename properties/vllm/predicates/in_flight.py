"""Decisions on their way: which request is passed over, which is not admitted, and what comes.

Source: release 0.28.0: the scheduler's comments on tokens that are in flight, AsyncScheduler;
chunked-prefill chapter, code of the running clamp (num_output_placeholders).
"""

from ....model.observation import Step
from ...rules.predicate import Predicate
from ..history import in_flight
from ..history.run import VllmRun
from .decision import admitted, input_missing, kept, ran_before, round_may_end, waited_before


def scheduled_for_nothing(history: VllmRun, step: Step) -> str | None:
    """A running request that has nothing to compute until a token comes is passed over, and the
    round goes on behind it (V1-R06)."""
    passed = None
    left = history.config["max_num_batched_tokens"] - sum(step.scheduled.values())
    for one in ran_before(history):
        if one.id in (step.preempted or ()):
            continue
        if in_flight.passed_over(history.config, one):
            if one.id in step.scheduled:
                coming = (
                    f"{one.emitted} of {one.max_tokens} tokens, {one.tokens_in_flight} on their way"
                )
                return f"{one.id} is scheduled with {coming}"
            passed = one
        elif round_may_end(history, one):
            return None
        elif input_missing(history, step, one, one.computed):
            continue  # it stops there, and the round goes on (V1-R33)
        elif passed and one.id not in step.scheduled and left > 0 and not step.preempted:
            return f"{one.id}, behind {passed.id}, which has nothing to compute, has no turn"
    return None


def passed_over_beside_others(history: VllmRun, step: Step) -> bool:
    """A running request has nothing to compute, and another one is scheduled."""
    some = any(in_flight.passed_over(history.config, one) for one in kept(history, step))
    return some and bool(step.scheduled)


def admitted_too_early(history: VllmRun, step: Step) -> str | None:
    """A preempted request is not admitted while a decision is on its way that computes it
    (V1-R10)."""
    for one in admitted(history, step):
        if in_flight.computed_still(history, one):
            return f"{one.id} is admitted again while a step that computes it is on its way"
    return None


def one_is_set_aside(history: VllmRun, step: Step) -> bool:
    """A preempted request waits that is computed still, and requests may be admitted."""
    waiting = waited_before(history)
    aside = any(in_flight.computed_still(history, one) for one in waiting)
    return aside and not step.preempted


def out_of_turn(history: VllmRun, step: Step) -> str | None:
    """The tokens of a request come once, and in their order (V1-R19)."""
    for name, place in (step.emitted_at or {}).items():
        one = history.live.get(name)
        if one is not None and place != one.emitted:
            return f"{name} emits token {place} of its output when {one.emitted} have come"
    for name, tokens in (step.emitted or {}).items():
        if tokens and step.emitted_at is not None and name not in step.emitted_at:
            return f"{name} emits {tokens} tokens, and emitted_at does not say which"
    return None


def comes_late(history: VllmRun, step: Step) -> bool:
    """A token comes of a step that was decided before."""
    return bool(step.emitted_at)


PREDICATES = {
    "V1-R06": Predicate(scheduled_for_nothing, passed_over_beside_others),
    "V1-R10": Predicate(admitted_too_early, one_is_set_aside),
    "V1-R19": Predicate(out_of_turn, comes_late),
}
