"""The entry point of every command. It runs before the slow imports, which take a second."""

import atexit
import errno
import os
import signal
import sys
import threading
import traceback
from contextlib import suppress
from typing import Any

from ..console import INCONCLUSIVE, USAGE, interrupts, shortened

# The place of an error that names no file. Asking for a working directory that was removed is one.
NAMELESS = {
    errno.ENOENT: "the working directory",
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF), "stdout"),
}


def main() -> None:
    """Run the command line. Print one line, not a traceback, for an internal error or if Ctrl-C
    comes during loading."""
    _open_closed_streams()
    interrupts.install()
    try:
        _run()
    except SystemExit as left:
        if interrupts.was_pressed() or _has_threads():
            _end_with(left.code)
        raise


def _has_threads() -> bool:
    """Return whether a thread of the user's code, such as a rule, would keep this process alive."""
    others = (thread for thread in threading.enumerate() if thread is not threading.main_thread())
    return any(not thread.daemon for thread in others)


def _open_closed_streams() -> None:
    """Open the null device for each standard stream that the caller has closed (`>&-`).

    Otherwise the next file to be opened would get the stream's descriptor, and child processes
    would print into that file.
    """
    for name, mode, number in (("stdin", "r", 0), ("stdout", "w", 1), ("stderr", "w", 2)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # `open` takes the lowest free descriptor
            setattr(sys, name, open(number, mode, errors="replace", closefd=False))  # noqa: SIM115


def _run() -> None:
    try:
        from .app import main as run

        try:
            run()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(_said("interrupted", INCONCLUSIVE))
    except BrokenPipeError:  # the reader of our output is gone, for example `head`
        _silence()
        sys.exit(INCONCLUSIVE)
    except OSError as error:
        _silence()
        place = error.filename or NAMELESS.get(error.errno or 0, "")
        sys.exit(_said(f"{place}{': ' * bool(place)}{error.strerror}", USAGE))
    except SystemExit:
        raise
    except BaseException as error:  # a bug in schedproof, so nothing was judged
        sys.exit(_said(_internal(error), INCONCLUSIVE))


def _end_with(code: Any) -> None:
    """Exit with this code.

    `sys.exit` is not enough: after a KeyboardInterrupt in code that runs from a string, as in the
    `dataclass` decorator, Python would kill its own process with SIGINT. This function therefore
    does what Python does when it exits.
    """
    # The process is ending, so ignore further signals.
    for number in (*interrupts.SIGNALS, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    atexit._run_exitfuncs()
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else INCONCLUSIVE)


def _internal(error: BaseException) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    words = " ".join(str(error).split()) or "no message"
    where = f"{os.path.basename(place.filename)}:{place.lineno}, in {place.name}"
    return f"internal error, no verdict: {type(error).__name__}: {words:.200} ({where})"


def _said(message: str, code: int) -> int:
    with suppress(OSError):  # the exit code still reports the failure
        print(f"schedproof: {shortened(message)}", file=sys.stderr, flush=True)
    return code


def _silence() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
