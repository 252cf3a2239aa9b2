"""What a scheduler does where a configuration does not say (SPY-R33, V1CP-R06, V1CP-R09, V1CP-R21,
V1CP-R23).

Source: the documents, where they name a default. A target says its own in the reply to `start`.
"""

from typing import Any

from ...model.observation import Step
from ..history.run_history import RunHistory
from .predicate import Predicate


def default_is(key: str, value: Any) -> Predicate:
    """A configuration that does not give `key` means `value`."""

    def another(history: RunHistory[Any], step: Step) -> str | None:
        default = history.defaults.get(key, value)
        if history.step or default == value:
            return None
        return f"{key} is {default!r} where a configuration does not give it, expected {value!r}"

    def said(history: RunHistory[Any], step: Step) -> bool:
        return not history.step and key in history.defaults

    return Predicate(another, said)
