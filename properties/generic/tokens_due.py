"""Check when tokens are emitted if there are drafts or several decisions in flight (GEN-R08,
GEN-R09).

Source: target protocol, "Optional features".
"""

from collections.abc import Iterator

from ...model.observation import Step
from ..vllm.history import speculation
from ..vllm.history.in_flight import completes
from ..vllm.history.request_history import VllmRequestHistory
from ..vllm.history.run import Coming, VllmRun, state_of


def emitted_too_early_or_late(history: VllmRun, step: Step) -> str | None:
    """Check that a decision computes only known tokens and proposed drafts. If decisions are made
    ahead, tokens in flight count as known. Check as well that, when the decision completes, a
    request emits a token if and only if the decision has computed the last of its known tokens. A
    request that was preempted in the meantime may lose this token."""
    ahead = speculation.decides_ahead(history.config)
    for name, tokens in reached(history, step).items():
        request = history.live[name]
        known = request.num_tokens - (0 if ahead else request.tokens_in_flight)
        if tokens > known + request.drafted:
            drafts = f", and {request.drafted} drafts proposed" if request.drafted else ""
            return f"{name} has {tokens} tokens computed, but {known} are known{drafts}"
    for request, is_whole in _completing(history, step):
        emitted = (step.emitted or {}).get(request.id, 0)
        if emitted and not is_whole:
            return f"{request.id} emits a token, but the decision did not compute all tokens"
        if is_whole and not emitted and not _may_be_lost(history, step, request):
            return f"the decision computed all tokens of {request.id}, but it emits none"
    return None


def reached(history: VllmRun, step: Step) -> dict[str, int]:
    """Return how many tokens of each request, including drafts, are computed once the decision is
    carried out. Omit requests whose prefix hit is unknown."""
    names = [name for name, tokens in step.scheduled.items() if tokens]
    counts = {name: _reached(history, step, name) for name in names}
    return {name: tokens for name, tokens in counts.items() if tokens is not None}


def _completing(history: VllmRun, step: Step) -> Iterator[tuple[VllmRequestHistory, bool]]:
    """Yield each request of the decision that completes in this step, and whether the decision has
    computed all of its known tokens."""
    flights = state_of(history).flights
    for name in completes(history, step):
        request = history.live.get(name)
        if request is None or name in history.aborts_inside:
            continue
        if flights:
            yield request, _follows(history, request, flights[0][name])
        elif (tokens := _reached(history, step, name)) is not None:
            yield request, tokens >= request.num_tokens


def _follows(history: VllmRun, request: VllmRequestHistory, coming: Coming | None) -> bool:
    """Return whether the token follows from all tokens that are known when it arrives. This is not
    so if the request was preempted, and started again before its token in flight arrived."""
    if coming is None:
        return False
    return bool(speculation.drafts(history.config)) or coming.computed == (
        request.prompt + request.emitted
    )


def _reached(history: VllmRun, step: Step, name: str) -> int | None:
    """Return how many tokens of a request are computed once the decision is carried out, or None if
    its prefix hit is unknown."""
    request = history.live.get(name)
    if request is None:
        return None
    hit = 0 if request.started else history.hit_now(step, request)
    return None if hit is None else request.computed + hit + step.scheduled.get(name, 0)


def _may_be_lost(history: VllmRun, step: Step, request: VllmRequestHistory) -> bool:
    """Return whether a preemption may have dropped the token that the request should emit."""
    flights = state_of(history).flights
    due = sum(flight.get(request.id) is not None for flight in flights)
    return request.id in (step.preempted or ()) or due > request.tokens_in_flight


def rejected_drafts(history: VllmRun, step: Step, name: str) -> int:
    """Return how many drafts of a request turn out to be wrong in the step and therefore do not
    count as computed."""
    emitted, request = (step.emitted or {}).get(name, 0), history.live.get(name)
    if request is None or not emitted or not speculation.drafts(history.config):
        return 0
    flights = state_of(history).flights
    if flights:
        coming = flights[0].get(name)
        drafts = 0 if coming is None else min(coming.drafts, request.drafts_in_flight)
    else:
        drafts = max((_reached(history, step, name) or 0) - request.num_tokens, 0)
    return max(drafts - (emitted - 1), 0)
