"""What a request that starts must find in the prefix cache."""

from collections.abc import Callable, Iterable

from ...model.observation import Step
from ..history.request_history import RequestHistory
from ..history.run_history import RunHistory


def hit_too_short(
    history: RunHistory,
    step: Step,
    starting: Iterable[RequestHistory],
    must_find: Callable[[RequestHistory], int],
) -> str | None:
    """One of the requests that start finds fewer tokens than one that runs holds of it."""
    for one in starting:
        hit, shared = history.hit_now(step, one), must_find(one)
        if hit is not None and hit < shared:
            return f"{one.id} finds {hit} tokens in the cache; one that runs holds {shared} of them"
    return None
