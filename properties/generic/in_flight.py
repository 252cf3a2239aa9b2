"""When a token is due if several decisions are in flight (GEN-R08).

Source: target protocol, "Steps in flight".
"""

from collections.abc import Iterator

from ...model.observation import Step
from ..vllm.history import speculation
from ..vllm.history.in_flight import completes
from ..vllm.history.request_history import VllmRequestHistory
from ..vllm.history.run import VllmRun, state_of


def emitted_too_early_or_late(history: VllmRun, step: Step) -> str | None:
    """A decision computes only known tokens; a token in flight is known if decisions are made
    ahead. When the decision completes, it emits a token for each request of which it computed all
    of them. A request that was preempted in the meantime may lose its token."""
    ahead = speculation.decides_ahead(history.config)
    for name, tokens in step.scheduled.items():
        request, reached = history.live.get(name), _reached(history, step, name)
        if request is None or reached is None or name in (step.preempted or ()):
            continue
        known = request.num_tokens - (0 if ahead else request.tokens_in_flight)
        if tokens and reached > known:
            return f"{name} has {reached} tokens computed, but {known} are known"
    for request, is_whole in _completing(history, step):
        emitted = (step.emitted or {}).get(request.id, 0)
        if emitted and not is_whole:
            return f"{request.id} emits a token, but the decision left some tokens uncomputed"
        if is_whole and not emitted and not _lost(history, step, request):
            return f"the decision computed all tokens of {request.id}, but it emits none"
    return None


def _completing(history: VllmRun, step: Step) -> Iterator[tuple[VllmRequestHistory, bool]]:
    """Return the requests of the decision that completes, and whether it computed all tokens."""
    flights = state_of(history).flights
    for name in completes(history, step):
        request = history.live.get(name)
        if request is None or name in history.aborts_inside:
            continue
        if flights:
            yield request, flights[0][name] is not None
        elif (reached := _reached(history, step, name)) is not None:
            yield request, reached >= request.num_tokens


def _reached(history: VllmRun, step: Step, name: str) -> int | None:
    """Return how many tokens the decision leaves computed; None if the prefix hit is unknown."""
    request = history.live.get(name)
    if request is None:
        return None
    hit = 0 if request.started else history.hit_now(step, request)
    return None if hit is None else request.computed + hit + step.scheduled[name]


def _lost(history: VllmRun, step: Step, request: VllmRequestHistory) -> bool:
    """Return whether a preemption may have dropped the token that is due."""
    flights = state_of(history).flights
    due = sum(flight.get(request.id) is not None for flight in flights)
    return request.id in (step.preempted or ()) or due > request.tokens_in_flight
