"""A target behind a pipe: a process that answers JSON Lines within time limits.

Each line that is sent is answered by one line. After a fault, replies could no longer be matched to
requests. So the process and everything that it has started are killed before the fault is raised,
and the next `start` spawns a new process.
"""

import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from ...model.faults import TargetBroken, TargetDied, TargetNotStarted, ending, excerpt
from ..files.reading import check_unique
from .child import DEATH_PATIENCE, Child, Tail
from .target_spec import MEMORY_LIMIT

RESTART_LIMIT = 30.0  # seconds; the lowest limit of a `start` in a process that has started before

Reply = dict[str, Any]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class PipeTarget:
    """A scheduler under test in its own process, which the first `start` spawns.

    Every operation returns the reply as it is, even if its "ok" is false, and may raise a
    TargetFault. Two threads must not use it at once.

    `start_limit` (seconds) applies until the first successful `start` in a new process, which
    includes the imports. Later calls of `start` get `step_limit` or 30 s, whichever is greater.
    Every other operation gets `step_limit`. `memory_limit` (MiB resident) applies to the process
    itself, if the system reports it (Linux).
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        folder: Path | None = None,
        start_limit: float = 120.0,
        step_limit: float = 10.0,
        memory_limit: int = MEMORY_LIMIT,
    ) -> None:
        if not command:
            raise ValueError("the command of a target has at least one word")
        self.command = tuple(command)
        self._env = env
        self._folder = folder
        self._start_limit = start_limit
        self._step_limit = step_limit
        self._memory_limit = memory_limit
        self._child: Child | None = None
        self._stderr = Tail()
        self._has_answered = False
        self._has_started = False
        self._is_fresh = False  # output before the first `start` counts as output of that start

    @property
    def stderr_tail(self) -> str:
        """Return the last 8 KiB that the process has written to stderr since the last `start`."""
        return self._stderr.text()

    @property
    def process_id(self) -> int | None:
        return None if self._child is None else self._child.process_id

    def begin(self) -> None:
        """Spawn the process now, so that it can load what it needs while others work."""
        if self._child is None:
            self._child = self._spawn()
            self._has_started, self._is_fresh = False, True

    def start(self, system: str, revision: str, config: Mapping[str, Any]) -> Reply:
        """Start a run, in the existing process or in a new one."""
        self.begin()
        if not self._is_fresh:
            self._stderr.clear()
        self._is_fresh = False
        limit = max(self._step_limit, RESTART_LIMIT) if self._has_started else self._start_limit
        question = {"op": "start", "system": system, "revision": revision, "config": config}
        reply = self._ask(question, limit)
        self._has_started |= isinstance(reply, dict) and reply.get("ok") is True
        return reply

    def add(self, request: Mapping[str, Any]) -> Reply:
        return self._ask({"op": "add", "request": request}, self._step_limit)

    def abort(self, id: str, inside: bool = False) -> Reply:  # noqa: A002 (the protocol's word)
        when = {"inside": True} if inside else {}
        return self._ask({"op": "abort", "id": id, **when}, self._step_limit)

    def control(self, kind: str) -> Reply:
        return self._ask({"op": "control", "kind": kind}, self._step_limit)

    def step(self) -> Reply:
        return self._ask({"op": "step"}, self._step_limit)

    def stop(self) -> Reply:
        """End the run; the process stays and may be started again."""
        if self._child is None:
            return {"ok": True}
        return self._ask({"op": "stop"}, self._step_limit)

    def close(self) -> None:
        """Ask the process to exit, then end it and everything that it has started. May be called
        again."""
        self._end(nicely=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _spawn(self) -> Child:
        self._stderr = Tail()
        try:
            child = Child(self.command, self._env, self._folder, self._stderr, self._memory_limit)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise TargetNotStarted(self.command, why, "") from None
        # Also ends the process when this object is forgotten and when the interpreter exits.
        self._forget = weakref.finalize(self, child.end, nicely=True)
        return child

    def _ask(self, question: Mapping[str, Any], limit: float) -> Reply:
        op, line, child = question["op"], _encode(question) + b"\n", self._child
        if child is None:
            raise TargetNotStarted(self.command, f"{op!r} came before 'start'", self.stderr_tail)
        try:
            reply = read_reply(op, child.exchange(op, line, limit))
        except EOFError:
            returncode = child.returncode_soon(DEATH_PATIENCE)
            self._end()
            if returncode is None:
                raise TargetBroken(op, "it closed its output but kept running", "") from None
            if not self._has_answered:
                why = f"it ended with {ending(returncode)} before it answered the first start"
                raise TargetNotStarted(self.command, why, self.stderr_tail) from None
            raise TargetDied(op, returncode, self.stderr_tail) from None
        except BaseException:
            self._end()
            raise
        self._has_answered = True
        return reply

    def _end(self, *, nicely: bool = False) -> None:
        if self._child is not None:
            self._child.end(nicely=nicely)
            self._forget.detach()
            self._child = None


def read_reply(op: str, line: bytes) -> Reply:
    """Return the reply in a line. Raise TargetBroken if the line is not a reply."""
    try:
        reply = _decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise TargetBroken(op, "the reply is not JSON", excerpt(line)) from None
    if isinstance(reply, dict) and isinstance(reply.get("ok"), bool):
        try:
            check_unique(line, reply)
        except (ValueError, RecursionError) as error:
            raise TargetBroken(op, f"the reply is not JSON: {error}", excerpt(line)) from None
        return reply
    raise TargetBroken(op, 'the reply is not an object with "ok" true or false', excerpt(line))
