"""Serve a Python target on stdin and stdout: one JSON request per line in, one JSON reply per line
out.

Standard library only: this file also runs inside the environment of a release under test.
"""

import contextlib
import faulthandler
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, BinaryIO, Protocol

Reply = dict[str, Any]


class Target(Protocol):
    """A scheduler under test. Each operation returns a reply of the protocol.

    A target that accepts control events declares them in its reply to `start` and has a method
    `control`. Other targets need no such method.
    """

    def start(self, system: str, revision: str, config: dict[str, Any]) -> Reply:
        """Discard the previous run and start a new one with this configuration."""

    def add(self, request: dict[str, Any]) -> Reply:
        """Add a request to the waiting queue."""

    def abort(self, id: str, inside: bool = False) -> Reply:  # noqa: A002 - the wire's name
        """Abort a request now, or inside the next step."""

    def step(self) -> Reply:
        """Make one scheduling decision and complete it."""

    def stop(self) -> Reply:
        """Discard the run."""


class Interrupted(BaseException):
    """Raised by Ctrl-C and similar signals. The target itself may raise a KeyboardInterrupt, which
    is a crash."""


class ProtocolError(Exception):
    """Raised if a request cannot be understood. Targets may raise it too."""


# The keys of each operation with their types, and the keys that are optional.
OPERATIONS: dict[str, dict[str, type]] = {
    "start": {"system": str, "revision": str, "config": dict},
    "add": {"request": dict},
    "abort": {"id": str, "inside": bool},
    "control": {"kind": str},
    "step": {},
    "stop": {},
}
REQUIRED = tuple(name for name in OPERATIONS if name != "control")
OPTIONAL = frozenset({"inside"})
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TYPE_NAMES = {str: "a string", dict: "an object", bool: "true or false"}
HANGING = (
    "Calls that do not return (most recent call first):\n"  # followed by frames and a blank line
)
LOOKS, LOOK_SECONDS = 10, 0.02
MOST_FRAMES = 40


def serve(target: Target) -> None:
    """Answer requests until stdin ends, until nobody reads the replies, or until Ctrl-C is pressed.

    SIGUSR1 prints the target's stack to stderr, so that a client can see where the target hangs. A
    fatal signal, such as a segmentation fault, also prints the stack. If the target hangs in Python
    code, a second stack follows after a moment, with only the calls that do not return.
    """
    signal.signal(signal.SIGUSR1, _look_for_hanging_calls)
    faulthandler.register(signal.SIGUSR1, file=2, chain=True)
    faulthandler.enable(file=2, all_threads=False)
    for number in SIGNALS:
        if callable(
            signal.getsignal(number)
        ):  # by default, the signal ends the process or is ignored
            signal.signal(number, _interrupt)
    replies = _claim_stdout()
    try:
        for line in sys.stdin.buffer:
            reply = _encode(answer(target, line))
            try:
                replies.write(reply)
                replies.flush()
            except BrokenPipeError:
                return
    except Interrupted:
        return
    finally:
        _close(replies)


def _interrupt(*_: object) -> None:
    raise Interrupted


def _look_for_hanging_calls(_: int, frame: FrameType | None) -> None:
    """Look at the stack several times, and print the frames that are always on it to stderr.

    A loop may call other functions, so a single stack does not show which function contains it.
    """
    calls, looks = _calls(frame), 0

    def look(_: int, frame: FrameType | None) -> None:
        nonlocal calls, looks
        current = {*_calls(frame)}
        calls, looks = [call for call in calls if call in current], looks + 1
        if looks == LOOKS:
            signal.setitimer(signal.ITIMER_REAL, 0)
            os.write(2, f"{HANGING}{''.join(map(_frame_line, calls[:MOST_FRAMES]))}\n".encode())

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, LOOK_SECONDS, LOOK_SECONDS)


def _calls(frame: FrameType | None) -> list[FrameType]:
    """Return the frames of the stack, innermost first."""
    calls = []
    while frame is not None:
        calls.append(frame)
        frame = frame.f_back
    return calls


def _frame_line(call: FrameType) -> str:
    code = call.f_code
    return f'  File "{code.co_filename}", line {call.f_lineno} in {code.co_name}\n'


def answer(target: Target, line: bytes) -> Reply:
    """Return the reply to one line. If the target raises an exception, the reply has the error
    `crashed`."""
    try:
        operation, arguments = _parse(line)
        return _call(target, operation, arguments)
    except ProtocolError as error:
        return {"ok": False, "error": "protocol", "message": str(error)}
    except Interrupted:
        raise
    except BaseException as error:  # such as SystemExit and asyncio.CancelledError
        return crash_reply(error)


def _call(target: Target, operation: str, arguments: dict[str, Any]) -> Reply:
    """Call the method with positional arguments, because the target may use any parameter names."""
    names = [name for name in OPERATIONS[operation] if name in arguments]
    method: Callable[..., Reply] | None = getattr(target, operation, None)
    valid = f"valid: a method {operation}({_list(['self', *names])})"
    if method is None:
        raise ProtocolError(f"{type(target).__name__} has no {operation}; {valid}")
    try:
        return method(*[arguments[name] for name in names])
    except TypeError as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is not None:
            raise  # the method itself raised this error
        raise ProtocolError(f"its {operation} cannot be called ({error}); {valid}") from None


def crash_reply(error: BaseException) -> Reply:
    """Return the reply to an operation that raised an exception. If the exception has no message,
    as with a bare `assert`, the reply quotes the line of code that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    try:
        words = str(error) or (frames[-1].line if frames else "")
    except Exception as second:
        words = f"str() failed: {type(second).__name__}"
    return {
        "ok": False,
        "error": "crashed",
        "message": _unicode(f"{type(error).__name__}: {words}"),
        "traceback": _unicode("".join(traceback.format_exception(error))),
    }


def _unicode(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


def _parse(line: bytes) -> tuple[str, dict[str, Any]]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(
            f"not a line of JSON ({error}): {_quote(line)}; valid: an object such as "
            '{"op": "step"}'
        ) from error
    if not isinstance(message, dict):
        raise ProtocolError(f"not a JSON object: {_quote(line)}; valid: {{'op': ...}}")
    if "op" not in message:
        raise ProtocolError(f"key 'op' is missing; valid operations are {_list(OPERATIONS)}")
    operation = message.pop("op")
    if not isinstance(operation, str) or operation not in OPERATIONS:
        raise ProtocolError(
            f"unknown operation {operation!r}; valid operations are {_list(OPERATIONS)}"
        )
    _check_arguments(operation, message)
    return operation, message


def _check_arguments(operation: str, arguments: dict[str, Any]) -> None:
    expected = OPERATIONS[operation]
    valid = f"valid keys of {operation!r} are {_list(['op', *expected])}"
    for key in expected:
        if key not in arguments and key not in OPTIONAL:
            raise ProtocolError(f"key {key!r} of {operation!r} is missing; {valid}")
    for key, value in arguments.items():
        if key not in expected:
            raise ProtocolError(f"unknown key {key!r} of {operation!r}; {valid}")
        if not isinstance(value, expected[key]):
            raise ProtocolError(
                f"{key!r} of {operation!r} is {value!r}; valid: {TYPE_NAMES[expected[key]]}"
            )


def _claim_stdout() -> BinaryIO:
    """Keep the real stdout for replies, and send all other output to stderr.

    C libraries print to descriptor 1, so redirect the descriptor itself and not only `sys.stdout`.
    The redirection stays in place after the last request, so that exit handlers cannot print among
    the replies.
    """
    sys.stdout.flush()
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return replies


def _encode(reply: Reply) -> bytes:
    try:
        text = json.dumps(reply)
    except Exception as error:  # a subclass of dict may raise anything
        why = crash_reply(error)["message"]
        valid = "valid: dict, list, str, int, float, bool and None"
        message = f"the reply cannot be written as JSON ({why}); {valid}"
        text = json.dumps({"ok": False, "error": "protocol", "message": message})
    return text.encode() + b"\n"


def _close(replies: BinaryIO) -> None:
    # Closing flushes the buffer, which raises an error if the reader is gone.
    with contextlib.suppress(BrokenPipeError):
        replies.close()


def _quote(line: bytes, limit: int = 200) -> str:
    text = line.decode(errors="backslashreplace").rstrip("\r\n")
    return repr(text if len(text) <= limit else text[:limit] + "...")


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)
