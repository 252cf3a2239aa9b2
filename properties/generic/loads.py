"""Loads by a connector: how many tokens a request may start with (GEN-R19).

Source: target protocol, "Loads".
"""

from ...model.observation import Step
from ..history.prefix_hits import caches
from ..vllm.history import loads
from ..vllm.history.request_history import VllmRequestHistory
from ..vllm.history.run import VllmRun


def starts_with_too_much(history: VllmRun, step: Step) -> str | None:
    """Check that a request starts with at most the tokens that were loaded or are cached. After a
    failed load, only the whole blocks before the failure count."""
    for request in _starting(history, step):
        start = (step.computed or {})[request.id] - step.scheduled[request.id]
        cached = history.max_hit(step, request) if caches(history.config) else 0
        loaded = loads.tokens_loaded(history.config, request)
        if start > max(loaded, cached):
            return f"{request.id} starts with {start} tokens, but {loaded} were loaded"
    return None


def one_starts_with_loaded_tokens(history: VllmRun, step: Step) -> bool:
    return any(True for _ in _starting(history, step))


def _starting(history: VllmRun, step: Step) -> list[VllmRequestHistory]:
    requests = [history.live[name] for name in step.scheduled if name in history.live]
    return [
        request
        for request in requests
        if request.tokens_loading and not request.started and request.id in (step.computed or {})
    ]


def may_be_passed(history: VllmRun, step: Step, request: VllmRequestHistory) -> bool:
    """Return whether later requests may start before an unstarted one. They may in three cases: its
    load fails; its load has begun, perhaps without being shown, because it finished in the same
    step; or the connector might not have answered yet."""
    begun = request.parked_since is not None or request.id in (step.parked or ())
    begun = begun or (request.external > 0 and not request.load_steps)
    return begun or request.load_fails_at is not None or history.features.place_unknown(request)
