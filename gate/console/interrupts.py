"""Ctrl-C that is not lost.

Python raises KeyboardInterrupt wherever the program is: also in a destructor or in a callback that
swallows it. So the handler notes it as well, and long work asks `check` between two runs.
"""

import signal

_pressed = False


def install() -> None:
    """SIGTERM (a CI that stops a job) and SIGHUP (a terminal that closes) end a run as Ctrl-C does:
    with what it has. Signals that this process was started to ignore stay ignored."""
    ours = {signal.SIG_DFL, signal.default_int_handler}
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) in ours:
            signal.signal(number, press)


def press(*_: object) -> None:
    """Note the signal, and raise KeyboardInterrupt here."""
    global _pressed
    _pressed = True
    raise KeyboardInterrupt


def check() -> None:
    """Raise KeyboardInterrupt once more where one was lost."""
    if _pressed:
        raise KeyboardInterrupt
