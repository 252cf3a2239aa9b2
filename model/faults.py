"""Faults of a target itself, as opposed to rules that its scheduler breaks.

The gate reports a fault as a hang (rule "never hangs"), a crash, or a broken target. The message of
a fault is one line that says what happened, and during which operation.
"""

import signal
from collections.abc import Sequence


class TargetFault(Exception):  # noqa: N818 (faults, as opposed to errors of ours)
    """The target did not answer as the protocol requires."""


class ConfigRefused(TargetFault):
    """The target reports that it cannot run with a configuration."""


class TargetCrashed(TargetFault):
    """The scheduler raised an exception during the operation `op`; `details` is the traceback."""

    def __init__(self, op: str, message: str, details: str = "") -> None:
        super().__init__(op, message, details)
        self.op = op
        self.message = message
        self.details = details

    def __str__(self) -> str:
        return f"the scheduler raised at {self.op!r}: {self.message}"


class TargetHung(TargetFault):
    """No complete reply to `op` came within `seconds`, so the process group was killed.

    `details` is the stack of the process, if the process is a Python target that schedproof itself
    serves.
    """

    def __init__(self, op: str, seconds: float, details: str = "") -> None:
        super().__init__(op, seconds, details)
        self.op = op
        self.seconds = seconds
        self.details = details

    def __str__(self) -> str:
        return f"target hung: no reply to {self.op!r} within {self.seconds:g} s"


class TargetTooLarge(TargetFault):
    """The process used more memory (MiB) than allowed, and was killed while it answered `op`."""

    def __init__(self, op: str, used: int, limit: int) -> None:
        super().__init__(op, used, limit)
        self.op = op
        self.used = used
        self.limit = limit

    def __str__(self) -> str:
        return (
            f"target killed at {self.op!r}: it uses {self.used} MiB of memory; "
            f"the limit is {self.limit}"
        )


class TargetDied(TargetFault):
    """The process ended before it answered `op`.

    `returncode` is as in `subprocess`: the exit code, or the negated number of the signal.
    """

    def __init__(self, op: str, returncode: int, stderr_tail: str) -> None:
        super().__init__(op, returncode, stderr_tail)
        self.op = op
        self.returncode = returncode
        self.stderr_tail = stderr_tail

    def __str__(self) -> str:
        hint = ""
        if self.op == "start" and self.returncode == 0:
            hint = " (it must keep running after a stop, since a start may follow)"
        return (
            f"target died: it ended with {ending(self.returncode)} before it answered "
            f"{self.op!r}{hint}{last_words(self.stderr_tail)}"
        )


class TargetBroken(TargetFault):
    """The target answered `op` with output that the protocol does not allow. `line_excerpt` is the
    beginning of this output."""

    def __init__(self, op: str, why: str, line_excerpt: str) -> None:
        super().__init__(op, why, line_excerpt)
        self.op = op
        self.why = why
        self.line_excerpt = line_excerpt

    def __str__(self) -> str:
        excerpt = f": {self.line_excerpt!r}" if self.line_excerpt else ""
        return f"broken target: at {self.op!r} {self.why}{excerpt}"


class AdapterFault(TargetBroken):
    """The reply has a fault that only an adapter can cause, for example a method that cannot be
    called, or a field that is missing or has the wrong type."""

    def __str__(self) -> str:
        return f"ADAPTER: at {self.op!r} {self.why}"


class TargetNotStarted(TargetFault):
    """The target's process could not be started, or ended before its first reply."""

    def __init__(self, command: Sequence[str], why: str, stderr_tail: str) -> None:
        super().__init__(command, why, stderr_tail)
        self.command = command
        self.why = why
        self.stderr_tail = stderr_tail

    def __str__(self) -> str:
        # The command may contain a whole program (python -c), so only its first word is shown.
        return f"target not started: {self.command[0]!r}: {self.why}{last_words(self.stderr_tail)}"


def ending(returncode: int) -> str:
    """Describe how a process ended: "exit code 3", "signal SIGKILL"."""
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return f"signal {signal.Signals(-returncode).name}"
    except ValueError:
        return f"signal {-returncode}"


def last_words(stderr_tail: str) -> str:
    """Return the end of a message: the last non-blank line of stderr, or "" if there is none. If
    Python has printed the stack of a fatal signal, use the line that names the signal instead."""
    lines = [line.strip() for line in stderr_tail.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith("Fatal Python error: ")]
    return f"; its last words: {(fatal or lines)[-1][:200]}" if lines else ""


def excerpt(line: bytes | bytearray) -> str:
    """Return the beginning of an unreadable line (200 bytes)."""
    return line[:200].decode(errors="replace").rstrip("\n")
