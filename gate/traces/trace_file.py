"""Read trace files: conversations with a target as JSON Lines, each request followed by its reply.

A file may be compressed (gzip) and larger than memory, because it is read line by line. An error
message names the file, the line, the JSON path and the value. If the recorder was killed, the last
line may be incomplete, or the last request may have no reply; everything before that counts.

A reply to "step" contains the blocks of every request, or `block_changes`: how the blocks differ
from those of the previous step.
"""

import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple

import msgspec
from msgspec.structs import replace

from ...model.errors import InputError
from ...model.faults import TargetBroken
from ...model.observation import FIELDS, NULLABLE, Count, Step
from ...model.replies import DECLARED, DEFAULTS, read_started
from ...model.scenario import CONTROLS, OF_FEATURES, Request, check_requests
from ...model.systems import check_size, full_config, resolve_revision
from ..files.disk import FileError, check_unique, describe_error, quote
from .run_events import (
    Aborted,
    Added,
    Begun,
    Controlled,
    Crashed,
    Cut,
    Event,
    NotBegun,
    Rejected,
    Stepped,
    Stopped,
)

GZIP = b"\x1f\x8b"


class Source(NamedTuple):
    """An open trace: its name for messages, its lines, and the number of bytes read so far."""

    name: str
    lines: BinaryIO
    position: Callable[[], int]
    size: int | None


@contextmanager
def open_trace(file: str) -> Iterator[Source]:
    """Open the trace in a file, or on stdin for `-`. Raise FileError if the file cannot be read."""
    name = "stdin" if file == "-" else file
    try:
        raw = io.BufferedReader(_raw(file), 1 << 16)
        packed = raw.peek(2)[:2] == GZIP
        size = os.fstat(raw.fileno()).st_size or None
    except OSError as error:
        raise FileError(f"{name}: cannot be read ({error.strerror})") from None
    except ValueError as error:  # a NUL in the path
        raise FileError(f"{name!a}: {error}") from None
    with raw:
        lines = io.BufferedReader(_Unpacked(raw), 1 << 16) if packed else raw
        yield Source(name, lines, raw.tell if raw.seekable() else lambda: 0, size)


class _Unpacked(io.RawIOBase):
    """The content of a compressed file, which may be cut off. GzipFile itself would lose the last
    64 KiB before that point."""

    def __init__(self, raw: BinaryIO) -> None:
        self._file = gzip.GzipFile(fileobj=raw)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read1(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _raw(file: str) -> io.FileIO:
    return io.FileIO(os.dup(0) if file == "-" else file)


MAX_LINE = 8 * 1024 * 1024
MAX_BLANK = 10_000  # in a row; a small compressed file could contain billions of them
STEP = b'{"op": "step"}\n'  # the most frequent line, byte by byte as the recorder writes it
CHANGES = "block_changes"
WITH_CHANGES = NULLABLE | {"blocks"}  # fields that may be absent from a step with `block_changes`
Tables = dict[str, tuple[Count, ...]]
# For each request: how many of its previous blocks remain, and the blocks after them; null if it no
# longer has any blocks.
BlockChanges = dict[str, tuple[Count, tuple[Count, ...]] | None]
REQUEST_KEYS = {
    "start": {"op", "system", "revision", "config"},
    "add": {"op", "request"},
    "abort": {"op", "id", "inside"},
    "control": {"op", "kind"},
    "step": {"op"},
    "stop": {"op"},
}
REPLY_KEYS = {
    "start": {"ok", "name", "version", "observes", DEFAULTS, DECLARED},
    "add": {"ok"},
    "abort": {"ok"},
    "control": {"ok", "done"},
    "step": {"ok", "step", CHANGES},
    "stop": {"ok"},
}
MAY_MISS = {DEFAULTS, DECLARED, CHANGES}
REFUSAL_KEYS = {"ok", "error", "message", "traceback"}
ERRORS = {
    "start": ("config", "crashed"),
    "add": ("rejected", "crashed"),
    "abort": ("unsupported", "crashed"),
    "control": ("crashed",),
    "step": ("crashed",),
    "stop": ("crashed",),
}
ADDED_KEYS = (
    *("id", "prompt", "max_tokens", "output_len", "priority", "accepted", "encoder_inputs"),
    *OF_FEATURES,
)
DECODE = msgspec.json.Decoder().decode
UNFINISHED = "Input data was truncated"  # msgspec's message for such a line


class _UnfinishedError(ValueError):
    """Raised if a line contains only the beginning of an object."""


def read_trace(
    source: Source, system: str | None = None, revision: str | None = None
) -> Iterator[Event]:
    """Yield the events in order. If `system` or `revision` is given, it replaces the recorded
    one."""
    reading = _Reading(source, system, revision)
    while (event := reading.next()) is not None:
        yield event
        if isinstance(event, Cut):
            return


class _Reading:
    def __init__(self, source: Source, system: str | None, revision: str | None) -> None:
        self._name = source.name
        self._lines = source.lines
        self._system = system
        self._revision = revision
        self._number = 0
        self._promised: frozenset[str] | None = None
        self._tables: Tables = {}  # the blocks of the previous step
        self._began = 0
        self._terms: tuple[str, str, dict[str, Any]]

    def next(self) -> Event | None:
        line = self._line()
        if not isinstance(line, bytes):
            return line
        number = self._number
        request = self._request(line)
        if isinstance(request, Cut):
            return request
        operation = request["op"]
        if self._promised is None and operation not in ("start", "stop"):
            raise self._error(f'$.op: "{operation}" before the target accepted a start')
        line = self._line()
        if line is None:
            why = "the record ends there, or the target died or hung during this operation"
            return Cut(number, f'its "{operation}" has no reply: {why}')
        if isinstance(line, Cut):
            return line
        reply = self._object(line)
        if isinstance(reply, Cut):
            return reply
        if operation == "step" and reply.get("ok") is True:
            return Stepped(number, self._step(reply))
        self._check_reply(operation, reply)
        return self._happened(number, operation, request, reply)

    def _line(self) -> bytes | Cut | None:
        for _ in range(MAX_BLANK):
            try:
                line = self._lines.readline(MAX_LINE + 1)
            except EOFError:  # raised by a truncated compressed file
                return Cut(self._number + 1, "the compressed file is truncated there")
            except (zlib.error, gzip.BadGzipFile) as error:
                self._number += 1
                raise self._error(f"the compressed file is damaged ({error})") from None
            except OSError as error:
                raise self._error(f"cannot be read any further ({error.strerror})") from None
            if not line:
                return None
            self._number += 1
            if len(line) > MAX_LINE:
                raise self._error(f"longer than {MAX_LINE} bytes, the limit for a line of a trace")
            if not line.isspace():
                return line
        raise self._error(f"{MAX_BLANK:,} blank lines in a row; valid: one object per line")

    def _object(self, line: bytes) -> dict[str, Any] | Cut:
        try:
            return _read_line(line)
        except ValueError as error:
            if isinstance(error, _UnfinishedError) and not line.endswith(b"\n"):
                return Cut(self._number, "the last line is truncated")
            raise self._error(str(error)) from None

    def _request(self, line: bytes) -> dict[str, Any] | Cut:
        if line == STEP:
            return {"op": "step"}
        request = self._object(line)
        if isinstance(request, Cut):
            return request
        operation = request.get("op")
        if "op" not in request and "ok" in request:
            raise self._error("a reply without its request; valid: a line with op")
        if not isinstance(operation, str) or operation not in REQUEST_KEYS:
            raise self._error(f"$.op: {quote(operation)}; valid: {', '.join(REQUEST_KEYS)}")
        valid = REQUEST_KEYS[operation]
        self._check_keys("$", request, valid, valid - {"inside"})
        return request

    def _check_reply(self, operation: str, reply: dict[str, Any]) -> None:
        ok = reply.get("ok")
        if "ok" not in reply and "op" in reply:
            raise self._error(f'the reply to "{operation}" is missing; valid: a line with ok')
        if ok is True:
            valid = REPLY_KEYS[operation]
            self._check_keys("$", reply, valid, valid - MAY_MISS)
            return
        if ok is not False:
            raise self._error(f"$.ok: {quote(ok)}; valid: true or false")
        self._check_keys("$", reply, REFUSAL_KEYS, {"error"})
        if reply["error"] not in ERRORS[operation]:
            valid_here = " or ".join(ERRORS[operation])
            given = quote(reply["error"])
            raise self._error(f'$.error: {given} to "{operation}"; valid: {valid_here}')

    def _happened(
        self, number: int, operation: str, request: dict[str, Any], reply: dict[str, Any]
    ) -> Event:
        if operation == "start":
            return self._begun(number, request, reply)
        if reply.get("error") == "crashed":
            return Crashed(number, str(reply.get("message", "")))
        if operation == "add":
            added = self._added(number, request["request"])
            if reply["ok"]:
                return added
            return Rejected(number, operation, added.request, str(reply.get("message", "")))
        if operation == "abort":
            for key, kind, valid in (("id", str, "a string"), ("inside", bool, "true or false")):
                if key in request and not isinstance(request[key], kind):
                    self._number = number
                    raise self._error(f"$.{key}: {quote(request[key])}; valid: {valid}")
            if reply["ok"]:
                return Aborted(number, request["id"], request.get("inside", False))
            return Rejected(number, operation)
        if operation == "control":
            kind, done = request["kind"], reply["done"]
            if kind not in CONTROLS:
                self._number = number
                raise self._error(f"$.kind: {quote(kind)}; valid: {', '.join(CONTROLS)}")
            if not isinstance(done, bool):
                raise self._error(f"$.done: {quote(done)}; valid: true or false")
            return Controlled(number, kind, done)
        self._promised = None
        return Stopped(number)

    def _begun(self, number: int, request: dict[str, Any], reply: dict[str, Any]) -> Event:
        self._promised = None
        if not reply["ok"]:
            message = str(reply.get("message", ""))
            crashed = reply["error"] == "crashed"
            return NotBegun(
                number,
                f"{reply['error']}: {message}",
                (*self._meant(request), message) if crashed else None,
            )
        try:
            started = read_started(reply)
        except TargetBroken as error:
            raise self._error(f"$: {error.why}") from None
        self._number = number
        system, revision = self._meant(request)
        config = request["config"]
        if not isinstance(config, Mapping):
            raise self._error(f"$.config: {quote(config)}; valid: an object")
        try:
            full = full_config(system, revision, config)
        except InputError as error:
            raise self._error(str(error)) from None
        self._check_keys("$.config", config, full, full)
        self._number = number + 1
        self._promised = started.observes
        self._tables = {}
        self._began, self._terms = number, (system, revision, full)
        return Begun(number, system, revision, full, started)

    def _meant(self, request: dict[str, Any]) -> tuple[str, str]:
        system = request["system"] if self._system is None else self._system
        revision = request["revision"] if self._revision is None else self._revision
        for path, value in (("$.system", system), ("$.revision", revision)):
            if not isinstance(value, str):
                raise self._error(f"{path}: {quote(value)}; valid: a string")
        try:
            return system, resolve_revision(system, revision)
        except InputError as error:
            raise self._error(str(error)) from None

    def _added(self, number: int, values: Any) -> Added:
        reply_line, self._number = self._number, number
        if not isinstance(values, dict):
            raise self._error(f"$.request: {quote(values)}; valid: an object")
        self._check_keys("$.request", values, ADDED_KEYS, ("id", "prompt", "max_tokens"))
        try:
            request = msgspec.convert({"arrival": 0, **values}, Request)
            check_requests((request,))
            check_size(*self._terms, (request,))
        except msgspec.ValidationError as error:
            raise self._error(describe_error("$.request", error, values)) from None
        except InputError as error:
            raise self._error(str(error).replace("$.requests[0]", "$.request")) from None
        self._number = reply_line
        return Added(number, request, request.output_len is None)

    def _step(self, reply: dict[str, Any]) -> Step:
        seen, changes = reply.get("step"), reply.get(CHANGES)
        assert self._promised is not None
        known, may_miss = (2, NULLABLE) if changes is None else (3, WITH_CHANGES)
        if type(seen) is dict and len(reply) == known and seen.keys() <= FIELDS:
            missing = [name for name in self._promised if seen.get(name) is None]
            if not missing or may_miss.issuperset(missing):
                try:
                    step = msgspec.convert(seen, Step)
                except msgspec.ValidationError as error:
                    raise self._error(describe_error("$.step", error, seen)) from None
                if (step.kind == "idle") != (not step.scheduled):
                    many = len(step.scheduled)
                    raise self._error(f'$.step.kind: "{step.kind}" with {many} requests scheduled')
                if changes is not None:
                    step = replace(step, blocks=self._changed(changes, step))
                self._tables = step.blocks or {}
                return step
        self._check_reply("step", reply)
        if not isinstance(seen, dict):
            raise self._error(f"$.step: {quote(seen)}; valid: the step observation")
        self._check_keys("$.step", seen, sorted(FIELDS), ())
        absent = min(name for name in self._promised - may_miss if seen.get(name) is None)
        raise self._error(
            f"$.step.{absent}: {'null' if absent in seen else 'missing'}, but promised in "
            f"`observes` by the start on line {self._began}"
        )

    def _changed(self, changes: Any, step: Step) -> Tables:
        """Return the blocks after a step. The table of a request stays the same object if its
        blocks did not change, which makes comparisons cheap."""
        if step.blocks is not None:
            raise self._error(f"$.{CHANGES}: $.step.blocks is given as well; valid: one of the two")
        try:
            read = msgspec.convert(changes, BlockChanges)
        except msgspec.ValidationError as error:
            raise self._error(describe_error(f"$.{CHANGES}", error, changes)) from None
        tables = {**self._tables}
        for name, change in read.items():
            before = tables.pop(name, ())
            if change is None:
                continue
            kept, new = change
            if kept > len(before):
                place = f"$.{CHANGES}.{ascii(name)[1:-1]:.60}[0]"
                raise self._error(
                    f"{place}: {kept}; valid: 0 to {len(before)}, its blocks before the step"
                )
            tables[name] = before[:kept] + new
        return tables

    def _check_keys(self, path: str, value: Mapping[str, Any], valid: Any, needed: Any) -> None:
        for key in value:
            if key not in valid:
                place = f"{path}.{ascii(key)[1:-1]:.60}"
                raise self._error(f"{place}: unknown key; valid: {', '.join(sorted(valid))}")
        for key in sorted(needed):
            if key not in value:
                raise self._error(f"{path}.{key}: missing; valid: {', '.join(sorted(valid))}")

    def _error(self, problem: str) -> FileError:
        return FileError(f"{self._name}: line {self._number}: {problem}")


def _read_line(line: bytes) -> dict[str, Any]:
    """Return the JSON object in a line. It must have unique keys, finite numbers and valid Unicode.

    Otherwise raise a ValueError that describes the problem without the line number.
    """
    try:
        value = DECODE(line)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        # Not every release of msgspec raises a UnicodeDecodeError for this.
        try:
            line.decode()
        except UnicodeDecodeError as wrong:
            raise ValueError(f"not UTF-8 ({wrong.reason})") from None
        reason = str(error).removeprefix("JSON is malformed: ")
        kind = (
            _UnfinishedError if reason == UNFINISHED and line.lstrip()[:1] == b"{" else ValueError
        )
        raise kind(f"not JSON ({reason}): {_begins(line)}; valid: one object per line") from None
    if type(value) is not dict:
        raise ValueError(f"{quote(value)}; valid: one object per line")
    try:
        check_unique(line, value)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    return value


def _begins(line: bytes) -> str:
    return ascii(line[:40].decode(errors="replace").rstrip("\r\n"))
