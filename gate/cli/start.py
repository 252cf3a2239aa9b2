"""Where every command begins, before the modules that it needs are loaded (that takes a second)."""

import os
import sys

from ..console.exit_codes import INCONCLUSIVE, USAGE


def main() -> None:
    """Run the command line; Ctrl-C while it loads, and a full disk behind stdout, are one line."""
    try:
        from .app import main as run

        try:
            run()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(_said("interrupted", INCONCLUSIVE))
    except BrokenPipeError:  # the reader has seen enough
        _silence()
        sys.exit(INCONCLUSIVE)
    except OSError as error:
        _silence()
        sys.exit(_said(f"{error.filename or 'stdout'}: {error.strerror}", USAGE))


def _said(message: str, code: int) -> int:
    print(f"schedproof: {message}", file=sys.stderr)
    return code


def _silence() -> None:
    """What is still buffered has nowhere to go."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
