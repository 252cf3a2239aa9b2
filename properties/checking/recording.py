"""Record a target's replies and replay them, to compare a later version with them."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ...model.faults import ConfigRefused, TargetBroken, TargetCrashed, TargetFault, TargetHung
from ...model.replies import read_ok, read_started, read_step
from ...model.target import Reply, Target
from .differential_target import NO_REQUEST
from .session import CRASHES_AND_HANGS, call_target

Answer = tuple[str, dict[str, Any]]


class RecordError(TargetFault):
    """Raised if a recording does not fit the run, or contains an invalid reply. The message is one
    line."""


class Recorder:
    """A target that keeps its replies since the last start in `answers`.

    A crash counts as a reply, even if the process died or grew too large. A hang is recorded with
    the number of seconds after which it was noticed.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self.answers: list[Answer] = []

    def start(self, system: str, revision: str, config: Mapping[str, Any]) -> Reply:
        self.answers = []
        return self._note("start", self._target.start, system, revision, config)

    def add(self, request: Mapping[str, Any]) -> Reply:
        return self._note("add", self._target.add, request)

    def abort(self, id: str, inside: bool = False) -> Reply:  # noqa: A002
        return self._note("abort", self._target.abort, id, *((True,) if inside else ()))

    def control(self, kind: str) -> Reply:
        return self._note("control", self._target.control, kind)

    def step(self) -> Reply:
        return self._note("step", self._target.step)

    def stop(self) -> Reply:
        """Stop the target; this is not recorded."""
        return self._target.stop()

    def _note(self, op: str, method: Any, *args: Any) -> Reply:
        try:
            reply = call_target(op, method, *args)
        except TargetHung as fault:
            hung = {"message": str(fault), "seconds": fault.seconds}
            self.answers.append((op, {"ok": False, "error": "hung", **hung}))
            raise
        except CRASHES_AND_HANGS as fault:
            message = fault.message if isinstance(fault, TargetCrashed) else str(fault)
            self.answers.append((op, {"ok": False, "error": "crashed", "message": message}))
            raise
        self.answers.append((op, msgspec.to_builtins(reply)))
        return reply


class Recorded:
    """A target that returns recorded replies, as long as it receives the recorded calls.

    A recording has one configuration, that of the first `start`. In any other configuration, the
    target starts, but shows nothing. Its methods raise RecordError for a call that was not
    recorded, and for a recorded reply that is not valid.
    """

    def __init__(self, answers: Sequence[Answer]) -> None:
        self._answers = list(answers)
        self._place = 0
        self._observes: frozenset[str] = frozenset()
        self._config: Mapping[str, Any] | None = None

    def start(self, system: str, revision: str, config: Mapping[str, Any]) -> Reply:
        if self._config is None:
            self._config = config
        elif self._config != config:
            return {"ok": True, "name": "", "version": "", "observes": []}
        self._place = 0
        reply = self._next("start")
        _raise_hang("start", reply)
        try:
            self._observes = read_started(reply).observes
        except TargetBroken as error:
            raise RecordError(self._one_line(error)) from None
        except ConfigRefused:
            pass
        return reply

    def add(self, request: Mapping[str, Any]) -> Reply:
        return self._checked("add")

    def abort(self, id: str, inside: bool = False) -> Reply:  # noqa: A002
        """Return the recorded reply. If the id is NO_REQUEST, the reply says only whether the
        target supported aborts."""
        if id != NO_REQUEST:
            return self._checked("abort")
        op, reply = (*self._answers, ("", {"ok": True}))[self._place]
        return reply if op == "abort" and reply.get("error") == "unsupported" else {"ok": True}

    def control(self, kind: str) -> Reply:
        return self._checked("control")

    def step(self) -> Reply:
        reply = self._checked("step")
        try:
            read_step(reply, self._observes)
        except TargetBroken as error:
            raise RecordError(self._one_line(error)) from None
        return reply

    def stop(self) -> Reply:
        return {"ok": True}

    def _checked(self, op: str) -> Reply:
        reply = self._next(op)
        _raise_hang(op, reply)
        try:
            read_ok(op, reply)
        except TargetBroken as error:
            raise RecordError(self._one_line(error)) from None
        return reply

    def _next(self, op: str) -> Reply:
        """Return the next reply. Skip recorded aborts that this run does not make.

        Raise ConfigRefused if a skipped abort had an effect, because this run would then differ
        from the recorded one.
        """
        while op != "abort" and self._left() and self._answers[self._place][0] == "abort":
            if self._answers[self._place][1].get("ok") is True:
                raise ConfigRefused("the recorded target could abort, but this one cannot")
            self._place += 1
        if not self._left() or self._answers[self._place][0] != op:
            method = self._answers[self._place][0] if self._left() else "nothing"
            raise RecordError(
                f"$.answers[{self._place}]: {method!r:.40}; the scenario asks for {op!r}"
            )
        self._place += 1
        return self._answers[self._place - 1][1]

    def _left(self) -> bool:
        return self._place < len(self._answers)

    def _one_line(self, error: TargetBroken) -> str:
        return f"$.answers[{self._place - 1}]: {error.why}"


def _raise_hang(op: str, reply: Mapping[str, Any]) -> None:
    if reply.get("error") == "hung":
        seconds = reply.get("seconds")
        raise TargetHung(op, seconds if isinstance(seconds, int | float) else 0.0)
