"""Serve a real release: the parts of the protocol that all systems share.

Standard library only: this file runs inside the environment of a release under test.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from . import protocol_checks
from .jsonl import ProtocolError, Reply
from .overrides import Override

REASONS = {"length": "length", "stop": "eos", "abort": "aborted", "error": "error"}
OVERRIDES = "overrides"  # a key of the reply to `start` that only `schedproof doctor` reads
BEYOND_START_UP = "SCHEDPROOF_BEYOND_START_UP"  # an environment variable of the target's process


class StartUp(NamedTuple):
    """Whether a server of this release would start with a configuration, or None if this is
    unknown. `why` names the check that passed, or gives the reason for a failure."""

    starts: bool | None
    why: str


def checked_start(by: str, check: Callable[[], None]) -> StartUp:
    """Run a release's start-up check. Messages refer to it as `by`. Raise RefusedError if it fails,
    unless the user chose to ignore failures."""
    try:
        check()
    except protocol_checks.RefusedError as refusal:
        if BEYOND_START_UP not in os.environ:
            raise
        return StartUp(False, str(refusal))
    return StartUp(True, by)


class Hosted(NamedTuple):
    """An engine that serves the protocol, and the content of its reply to `start`.

    `defaults` contains the release's default values of configuration keys, as far as they are
    known. `start_up` says whether a server would start with this configuration; None if the
    scheduler has no server. `controls` lists the control events that the engine accepts, and
    `overrides` the methods of the release that the user's scheduler class overrides.
    """

    engine: Any
    name: str
    version: str
    observes: list[str]
    defaults: Mapping[str, Any] = MappingProxyType({})
    start_up: StartUp | None = None
    controls: tuple[str, ...] = ()
    overrides: Sequence[Override] = ()


class HostedTarget:
    """Serve the operations of the protocol. Each system has a subclass that opens the engine, adds
    requests to it and steps it."""

    def __init__(self) -> None:
        self._engine: Any = None
        self._inside: list[str] = []  # aborts to perform inside the next step
        self._aborted: list[str] = []  # aborts to report with the next step

    def open(self, system: str, config: dict[str, Any]) -> Hosted:
        """Return a fresh engine; raise RefusedError if it does not support the configuration."""
        raise NotImplementedError

    def admit(self, engine: Any, request: protocol_checks.CheckedRequest) -> None:
        """Queue a request. Raise RefusedError if the release refuses it."""
        raise NotImplementedError

    def advance(self, engine: Any) -> dict[str, Any]:
        """Make one decision, call `abort_inside`, complete the decision, and return the step."""
        raise NotImplementedError

    def start(self, system: str, revision: str, config: dict[str, Any]) -> Reply:
        """Start a fresh scheduler. `revision` is ignored, because it only says which model the
        target is compared with."""
        self.stop()
        try:
            hosted = self.open(system, config)
        except protocol_checks.RefusedError as refusal:
            return {"ok": False, "error": "config", "message": str(refusal)}
        self._engine = hosted.engine
        start_up = {"start_up": hosted.start_up._asdict()} if hosted.start_up else {}
        return {
            "ok": True,
            "name": hosted.name,
            "version": hosted.version,
            "observes": hosted.observes,
            "defaults": dict(hosted.defaults),
            **start_up,
            **({"controls": [*hosted.controls]} if hosted.controls else {}),
            **({OVERRIDES: [*hosted.overrides]} if hosted.overrides else {}),
        }

    def add(self, request: dict[str, Any]) -> Reply:
        engine = self._started()
        parsed = protocol_checks.read_request(request)
        try:
            self.admit(engine, parsed)
        except protocol_checks.RefusedError as refusal:
            return {"ok": False, "error": "rejected", "message": str(refusal)}
        return {"ok": True}

    def abort(self, id: str, inside: bool = False) -> Reply:  # noqa: A002
        engine = self._started()
        if inside:
            self._inside.append(id)
        elif engine.abort(id):
            self._aborted.append(id)
        return {"ok": True}

    def control(self, kind: str) -> Reply:
        """Perform a control event before the next decision. In the reply, `done` says whether
        the event was possible."""
        return {"ok": True, "done": bool(self._started().control(kind))}

    def abort_inside(self, engine: Any) -> list[str]:
        """Perform the aborts that the client requested inside the step. Return all requests whose
        aborts this step reports. The engine core does the same with aborts that arrive while the
        model runs.
        """
        self._aborted += [name for name in self._inside if engine.abort(name)]
        return self._aborted

    def step(self) -> Reply:
        seen = self.advance(self._started())
        self._inside, self._aborted = [], []
        return {"ok": True, "step": seen}

    def stop(self) -> Reply:
        self._engine = None
        self._inside, self._aborted = [], []
        return {"ok": True}

    def _started(self) -> Any:
        if self._engine is None:
            raise ProtocolError("nothing is started; send 'start' first")
        return self._engine


def outputs(completion: Any, aborted: list[str]) -> dict[str, dict[str, Any]]:
    emitted: dict[str, int] = {}
    finished = dict.fromkeys(aborted, "aborted")
    for client in completion.values():
        for output in client.outputs:
            if output.new_token_ids:
                emitted[output.request_id] = len(output.new_token_ids)
            if output.finish_reason is not None:
                finished[output.request_id] = REASONS[str(output.finish_reason)]
    return {"emitted": emitted, "finished": finished}


def kind_of(decodes: set[bool]) -> str:
    """Return the kind of a step. `decodes` says, for each scheduled request, whether it decodes."""
    if not decodes:
        return "idle"
    if len(decodes) == 2:
        return "mixed"
    return "decode" if True in decodes else "prefill"


def ids(requests: Any) -> list[str]:
    return [request.request_id for request in requests]
