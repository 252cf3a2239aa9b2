"""Run a user's own function, such as a formula or a rule, with a time limit."""

import os
import signal
import threading
from collections.abc import Callable
from typing import NoReturn, TypeVar

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
        SystemExit: the function calls `os._exit`. Otherwise, `os._exit(0)` would end the command
            with the exit code of a pass.
    """
    if threading.current_thread() is not threading.main_thread():
        return function(*args, **named)
    signal.signal(signal.SIGVTALRM, _end)
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT)
    leave = os._exit
    os._exit = _refusing(leave, os.getpid())  # type: ignore[assignment]
    try:
        return function(*args, **named)
    finally:
        os._exit = leave
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _refusing(leave: Callable[[int], NoReturn], process: int) -> Callable[[int], NoReturn]:
    """Return a stand-in for `os._exit`. It still ends other processes that the code has forked."""

    def refuse(status: int) -> NoReturn:
        if os.getpid() != process:
            leave(status)
        raise SystemExit(f"os._exit({status})")

    return refuse


def _end(*_: object) -> None:
    raise EndlessCode(f"it did not end within {LIMIT:g} s")
