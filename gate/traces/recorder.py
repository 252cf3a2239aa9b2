"""Wrap a target so that its conversation is recorded in a trace, line by line."""

import gzip
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from ...model.faults import TargetFault
from ...model.observation import FIELDS
from ...model.target import Reply, Target
from ..console.option_checks import check_file, check_not_input
from ..files.disk import open_pipe
from ..files.scenario_file import FileError
from .trace_file import REFUSAL_KEYS, REPLY_KEYS


class Lines(Protocol):
    """A file opened for writing, compressed or not."""

    def write(self, line: bytes, /) -> int:
        """Append bytes."""

    def flush(self) -> None:
        """Make the bytes visible to readers."""


def check_trace_file(trace: Path, scenario: Path) -> None:
    check_file("--trace", trace)
    check_not_input("--trace", trace, "the scenario", scenario)


@contextmanager
def record_target(target: Target, trace: Path | None) -> Iterator[Target]:
    """Yield a target that records its conversation in `trace`, or `target` itself if `trace` is
    None."""
    if trace is None:
        yield target
        return
    try:
        with open(open_pipe(trace) if trace.is_fifo() else trace, "wb") as file:
            if trace.suffix == ".gz":
                with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packed:
                    yield Recorder(target, packed)
            else:
                yield Recorder(target, file)
    except OSError as error:
        raise FileError(f"{trace}: cannot be written to ({error.strerror or error})") from None


class Recorder:
    """Pass every operation on to the target, and record the request and the reply.

    Only those keys of a reply that the protocol defines are recorded, not keys that a target adds.
    If the target dies or hangs, the trace ends with a request that has no reply.
    """

    def __init__(self, target: Target, file: Lines) -> None:
        self._target = target
        self._file = file

    def start(self, system: str, revision: str, config: Mapping[str, Any]) -> Reply:
        self._write({"op": "start", "system": system, "revision": revision, "config": {**config}})
        return self._replied("start", self._target.start(system, revision, config))

    def add(self, request: Mapping[str, Any]) -> Reply:
        self._write({"op": "add", "request": {**request}})
        return self._replied("add", self._target.add(request))

    def abort(self, id: str, inside: bool = False) -> Reply:  # noqa: A002
        self._write({"op": "abort", "id": id} | ({"inside": True} if inside else {}))
        args = (id, True) if inside else (id,)
        return self._replied("abort", self._target.abort(*args))

    def control(self, kind: str) -> Reply:
        self._write({"op": "control", "kind": kind})
        return self._replied("control", self._target.control(kind))

    def step(self) -> Reply:
        self._write({"op": "step"})
        return self._replied("step", self._target.step())

    def stop(self) -> Reply:
        self._write({"op": "stop"})
        return self._replied("stop", self._target.stop())

    def _replied(self, operation: str, reply: Reply) -> Reply:
        valid = REPLY_KEYS[operation] | REFUSAL_KEYS
        recorded = {key: value for key, value in reply.items() if key in valid}
        if isinstance(recorded.get("step"), dict):
            recorded["step"] = {
                key: value for key, value in recorded["step"].items() if key in FIELDS
            }
        self._write(recorded)
        return reply

    def _write(self, line: dict[str, Any]) -> None:
        try:
            self._file.write(json.dumps(line).encode() + b"\n")
            self._file.flush()
        # Raise another error, so that this is not reported as a crash of the scheduler.
        except OSError as error:
            raise TargetFault(f"the trace cannot be written ({error.strerror or error})") from None
