"""Tokens: what is computed is counted once, and a token comes out when all before it is computed.

Source: target protocol, The step observation: scheduled, computed, emitted.
"""

from collections.abc import Iterator

from ....model.observation import Step
from ...history.request_history import RequestHistory
from ...history.run_history import RunHistory
from ...rules.predicate import Predicate


def emitted_too_early_or_late(history: RunHistory, step: Step) -> str | None:
    """A request emits a token in a step that leaves it with all its tokens computed, in no other
    step, and computes none beyond these (GEN-R08)."""
    for one, computed in _computing(history, step):
        known, emitted = one.prompt + one.emitted, (step.emitted or {}).get(one.id, 0)
        if computed > known:
            return f"{one.id} has {computed} tokens computed, and {known} are known"
        if emitted and computed < known:
            return f"{one.id} emits a token, {computed} of its {known} tokens are computed"
        if not emitted and computed >= known:
            return f"{one.id} has all its {known} tokens computed, and emits none"
    return None


def one_is_computed_in_part(history: RunHistory, step: Step) -> bool:
    """A step leaves a prompt computed in part."""
    return any(computed < one.prompt for one, computed in _computing(history, step))


def counted_wrongly(history: RunHistory, step: Step) -> str | None:
    """What is computed of a request grows by what a step schedules of it; only a preemption takes
    it away (GEN-R09)."""
    before = (history.last.computed or {}) if history.last is not None else {}
    for name, computed in (step.computed or {}).items():
        if name not in before or name in (step.preempted or ()) or name not in history.live:
            continue
        expected = before[name] + step.scheduled.get(name, 0)
        if computed != expected:
            tokens = step.scheduled.get(name, 0)
            return (
                f"{name} had {before[name]} tokens computed, {tokens} are scheduled, now it has "
                f"{computed}"
            )
    return None


def one_goes_on(history: RunHistory, step: Step) -> bool:
    """A request goes on of which something was computed before."""
    before = (history.last.computed or {}) if history.last is not None else {}
    return any(before.get(name) for name in step.scheduled)


def cut_although_off(history: RunHistory, step: Step) -> str | None:
    """With chunked prefill off a request that is scheduled has its whole prompt computed after the
    step (GEN-R10)."""
    if history.config["enable_chunked_prefill"]:
        return None
    for one, computed in _computing(history, step):
        if computed < one.prompt:
            return f"{one.id} has {computed} of {one.prompt} prompt tokens computed after its step"
    return None


def one_is_whole(history: RunHistory, step: Step) -> bool:
    """With chunked prefill off a request starts."""
    if history.config["enable_chunked_prefill"]:
        return False
    return any(not one.started for one, _ in _computing(history, step))


def _computing(history: RunHistory, step: Step) -> Iterator[tuple[RequestHistory, int]]:
    """Requests that are scheduled and stay, with their tokens computed after the step."""
    leaves = {*(step.finished or ()), *(step.preempted or ()), *history.aborts_inside}
    for name, tokens in step.scheduled.items():
        one = history.live.get(name)
        if one is not None and tokens and name not in leaves:
            yield one, (step.computed or {}).get(name, 0)


PREDICATES = {
    "GEN-R08": Predicate(emitted_too_early_or_late, one_is_computed_in_part),
    "GEN-R09": Predicate(counted_wrongly, one_goes_on),
    "GEN-R10": Predicate(cut_although_off, one_is_whole),
}
