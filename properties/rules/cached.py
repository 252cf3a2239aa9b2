"""What requests share, and what one that starts must find in the prefix cache."""

from collections.abc import Callable, Iterable
from typing import Any

from ...model.observation import Step
from ..history.content import common_prefix_len
from ..history.run_history import RunHistory


def hit_too_short(
    history: RunHistory[Any],
    step: Step,
    starting: Iterable[Any],
    must_find: Callable[[Any], int],
) -> str | None:
    """One of the requests that start finds fewer tokens than one that runs holds of it."""
    for one in starting:
        hit, shared = history.hit_now(step, one), must_find(one)
        if hit is not None and hit < shared:
            return f"{one.id} finds {hit} tokens in the cache; one that runs holds {shared} of them"
    return None


def in_common_after(history: RunHistory[Any], step: Step, name: str, other: str) -> int:
    """Tokens at the start that two requests share, with what they emit in this step."""
    if not history.requests.keys() >= {name, other}:
        return 0  # of a request that was never made nothing is known
    contents = []
    for one in (history.requests[name], history.requests[other]):
        emitted = one.emitted + (step.emitted or {}).get(one.id, 0)
        contents.append((*one.content, (f"out:{one.id}", emitted)) if emitted else one.content)
    return common_prefix_len(*contents)
