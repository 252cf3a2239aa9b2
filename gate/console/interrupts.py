"""Ctrl-C and time limits: both end a run early and keep its results.

Python raises KeyboardInterrupt wherever the program happens to be. In a destructor or a callback,
the exception is swallowed. So the handler also records the interrupt, and long-running code calls
`check` between runs to raise a swallowed interrupt again.
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
    """Make SIGTERM (CI stops the job) and SIGHUP (the terminal closes) end a run as Ctrl-C does,
    keeping its results. If the parent process ignores one of these signals, leave it ignored."""
    ours = {signal.SIG_DFL, signal.default_int_handler}
    for number in SIGNALS:
        if signal.getsignal(number) in ours:
            signal.signal(number, press)
    raise_again(KeyboardInterrupt, _time_is_over)


def raise_again(kind: type[BaseException], handler: Callable[..., object]) -> None:
    """Raise exceptions of type `kind` again when Python swallows them.

    If a destructor or a callback of the garbage collector raises an exception, Python only prints
    it. With this hook, `handler` is called a moment later as the handler of SIGALRM, and raises the
    exception again.
    """

    def unraisable(swallowed: "sys.UnraisableHookArgs") -> None:
        if swallowed.exc_type is kind:
            signal.signal(signal.SIGALRM, handler)
            signal.setitimer(signal.ITIMER_REAL, SOON)
        else:
            sys.__unraisablehook__(swallowed)

    sys.unraisablehook = unraisable


def press(*_: object) -> None:
    global _pressed, _ever_pressed
    _pressed = _ever_pressed = True
    raise KeyboardInterrupt


def was_pressed() -> bool:
    return _ever_pressed


def check() -> None:
    """Raise KeyboardInterrupt again if an earlier one was swallowed."""
    if _pressed:
        raise KeyboardInterrupt


@contextmanager
def prefer_interrupt() -> Iterator[None]:
    """Turn errors in the block into KeyboardInterrupt if an interrupt caused them. For example,
    Hypothesis may raise AssertionError when it is interrupted."""
    try:
        yield
    except Exception:
        check()
        raise


def limit(seconds: float) -> None:
    """End the run after this many seconds as Ctrl-C would, keeping its results."""
    global _limit
    _limit = seconds
    signal.signal(signal.SIGALRM, _time_is_over)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def keep_results() -> None:
    """Switch the time limit off, because all runs have ended and the command only has to report its
    results.

    Without a time limit, leave the timer alone, because it may belong to a caller.
    """
    if _limit is not None:
        signal.setitimer(signal.ITIMER_REAL, 0)


def no_limit() -> None:
    global _limit, _over, _pressed
    signal.setitimer(signal.ITIMER_REAL, 0)
    if _limit is not None:
        _pressed = _pressed and not _over
    _limit, _over = None, False


def why() -> str:
    """Return why the run ended early. The last line of the output begins with this text."""
    return f"the time limit of {_limit:g} s was reached" if _over else "interrupted"


def _time_is_over(*_: object) -> None:
    global _over
    _over |= not _pressed  # after Ctrl-C, this alarm only repeats a swallowed interrupt
    press()
