"""Run a user's own function, such as a formula or a rule, with a time limit."""

import signal
import threading
from collections.abc import Callable
from typing import TypeVar

LIMIT = 5.0  # CPU seconds for one call; no formula or rule needs a thousandth of that
Value = TypeVar("Value")


class EndlessCode(BaseException):
    """Raised if a call to the user's code does not end. It is not an `Exception`, so that user code
    does not catch it by accident."""


def describe_exception(error: BaseException) -> str:
    """Return the exception's type and message. This works even if its `__str__` raises an
    exception."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as second:
        return f"{type(error).__name__}: str() failed: {type(second).__name__}"


def call_limited(function: Callable[..., Value], *args: object, **named: object) -> Value:
    """Call the function with a time limit. In a thread other than the main thread, there is no
    limit.

    Raises:
        EndlessCode: the call takes longer than `LIMIT`.
    """
    if threading.current_thread() is not threading.main_thread():
        return function(*args, **named)
    signal.signal(signal.SIGVTALRM, _end)
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT)
    try:
        return function(*args, **named)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _end(*_: object) -> None:
    raise EndlessCode(f"it did not end within {LIMIT:g} s")
