"""Compute values that many predicates share, once per step."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

Work = TypeVar("Work", bound=Callable[..., Any])


def once(work: Work) -> Work:
    """Decorate a function of the history, or of the history and a step: cache its result until the
    history changes.

    Callers share the result and must not change it.
    """

    @wraps(work)
    def kept(history: Any, step: Any = None) -> Any:
        known = history.answers.get(work)
        if known is not None:
            asked, config, answer = known
            if asked is step and config is history.config:
                return answer
        answer = work(history) if step is None else work(history, step)
        history.answers[work] = (step, history.config, answer)
        return answer

    return cast(Work, kept)
