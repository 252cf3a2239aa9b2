"""Ctrl-C that is not lost, and the end of a time limit, which is the same.

Python raises KeyboardInterrupt wherever the program is: also in a destructor or in a callback that
swallows it. So the handler notes it as well, long work asks `check` between two runs, and what was
swallowed is raised again.
"""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SOON = 0.01  # seconds

_pressed = False
_ever_pressed = False
_limit: float | None = None
_over = False


def install() -> None:
    """SIGTERM (a CI that stops a job) and SIGHUP (a terminal that closes) end a run as Ctrl-C does:
    with what it has. Signals that this process was started to ignore stay ignored."""
    ours = {signal.SIG_DFL, signal.default_int_handler}
    for number in SIGNALS:
        if signal.getsignal(number) in ours:
            signal.signal(number, press)
    raise_again(KeyboardInterrupt, _time_is_over)


def raise_again(kind: type[BaseException], handler: Callable[..., object]) -> None:
    """Where a destructor or a callback of the garbage collector swallows an exception of this kind,
    and Python would print it, run the handler of SIGALRM, which raises it, a moment later."""

    def unraisable(swallowed: "sys.UnraisableHookArgs") -> None:
        if swallowed.exc_type is kind:
            signal.signal(signal.SIGALRM, handler)
            signal.setitimer(signal.ITIMER_REAL, SOON)
        else:
            sys.__unraisablehook__(swallowed)

    sys.unraisablehook = unraisable


def press(*_: object) -> None:
    """Note the signal, and raise KeyboardInterrupt here."""
    global _pressed, _ever_pressed
    _pressed = _ever_pressed = True
    raise KeyboardInterrupt


def was_pressed() -> bool:
    return _ever_pressed


def check() -> None:
    """Raise KeyboardInterrupt once more where one was lost."""
    if _pressed:
        raise KeyboardInterrupt


@contextmanager
def instead() -> Iterator[None]:
    """KeyboardInterrupt in the place of an error that it led to: Hypothesis, interrupted between
    two of its own steps, raises an AssertionError."""
    try:
        yield
    except Exception:
        check()
        raise


def limit(seconds: float) -> None:
    """When so many seconds are over, the run ends as Ctrl-C ends it: with what it has."""
    global _limit
    _limit = seconds
    signal.signal(signal.SIGALRM, _time_is_over)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def no_limit() -> None:
    """The run has ended: no time limit is asked for any more."""
    global _limit, _over, _pressed
    signal.setitimer(signal.ITIMER_REAL, 0)
    if _limit is not None:
        _pressed = _pressed and not _over
    _limit, _over = None, False


def why() -> str:
    """Why the run was broken off, as its last line begins."""
    return f"the time limit of {_limit:g} s is over" if _over else "interrupted"


def _time_is_over(*_: object) -> None:
    global _over
    _over |= not _pressed  # else it was swallowed
    press()
