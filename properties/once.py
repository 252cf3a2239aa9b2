"""What many predicates ask of the same step is worked out once."""

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from .ledger import Ledger

Asked = TypeVar("Asked", bound=Callable[..., Any])


def once(work: Asked) -> Asked:
    """A function of the ledger, or of it and a step, whose answer the ledger keeps until something
    is booked or its configuration is another. The answer is for all who ask: nobody may change it.
    """

    @wraps(work)
    def kept(ledger: "Ledger", step: Any = None) -> Any:
        known = ledger.answers.get(work)
        if known is not None and known[0] is step and known[1] is ledger.config:
            return known[2]
        answer = work(ledger) if step is None else work(ledger, step)
        ledger.answers[work] = (step, ledger.config, answer)
        return answer

    return cast(Asked, kept)
