"""The ledger of a campaign: a file of JSON lines from which the campaign resumes.

The first line contains the settings; each further line contains an item and its result. Lines are
only ever appended. If a killed process or a full disk leaves an incomplete line at the end, that
line is dropped and its item runs again.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import RawIOBase
from pathlib import Path
from typing import Any

import msgspec
from filelock import FileLock, Timeout

from ...model.scenario import check_requests
from ...model.systems import full_config, resolve_revision
from ...properties.shrinking.shrink import size
from ...spec.catalogue import CatalogueError, load, select
from ..files.disk import FileError, check_regular, decode_json, name_file_in_errors, write
from .items import (
    EXAMPLES,
    Failure,
    Item,
    Result,
    Sample,
    Settings,
    Shrinking,
    canonical,
    digest_of,
)

FORMAT = "schedproof/campaign@1"


class LedgerError(FileError):
    """Raised if a file is not a ledger or cannot be used. The message is a single line."""


class Header(msgspec.Struct, frozen=True):
    """The first line of a ledger."""

    format: str
    settings: Settings


class Done(msgspec.Struct, frozen=True):
    """A finished item. `result` must not depend on the worker; the other fields may."""

    item: Item
    result: Result
    seconds: float = 0.0
    worker: str = ""


@dataclass
class Ledger:
    """The settings of a campaign, and totals over its items. `length` is the size of the file in
    bytes."""

    path: Path
    settings: Settings
    length: int = 0
    items: int = 0
    incomplete: int = 0
    scenarios: int = 0
    steps: int = 0
    seconds: float = 0.0
    exercised: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    findings: dict[str, Failure | None] = field(default_factory=dict)
    _file: RawIOBase | None = None
    _ids: set[str] = field(default_factory=set)
    _smallest: dict[tuple[str, str, str], tuple[Any, Shrinking]] = field(default_factory=dict)

    def __contains__(self, item: Item) -> bool:
        return digest_of(item) in self._ids

    def write(self, done: Done) -> None:
        """Append a finished item. If the ledger already contains it, keep the first result."""
        assert self._file is not None
        if done.item in self:
            return
        self._add(done)
        line, problem = canonical(done) + b"\n", "No space left on device"
        try:
            if self._file.write(line) == len(line):
                return
        except OSError as error:
            problem = error.strerror or problem
        raise LedgerError(f"{self.path}: cannot be written to ({problem})")

    def is_new(self, failure: Failure) -> bool:
        return _shape_of(failure) not in self._smallest

    def failures_to_shrink(self) -> dict[str, Shrinking]:
        """Return the failures that still have to be shrunk, by item id. If several failures of a
        revision have the same shape, return only the smallest."""
        questions = [question for _, (_, question) in sorted(self._smallest.items())]
        return {digest_of(question): question for question in questions}

    def _add(self, done: Done) -> None:
        item, result, name = done.item, done.result, digest_of(done.item)
        if name in self._ids:
            return
        self._ids.add(name)
        if isinstance(item, Shrinking):
            self.findings[name] = next(iter(result.failures), None)
            return
        self.items += 1
        self.incomplete += bool(result.failed) or not result.complete
        self.scenarios += result.scenarios
        self.steps += result.steps
        self.seconds += done.seconds
        pair = (item.kind.system, item.kind.revision)
        self.exercised.setdefault(pair, Counter()).update(result.exercised)
        if result.failed:
            self.failed[name] = result.failed
        for failure in result.failures:
            question = Shrinking(failure=failure, target=item.target, rules=item.rules)
            order = (size(failure.scenario), canonical(question))
            shape = _shape_of(failure)
            if shape not in self._smallest or order < self._smallest[shape][0]:
                self._smallest[shape] = (order, question)


@contextmanager
def open_ledger(path: Path, begin: Callable[[Settings | None], Settings]) -> Iterator[Ledger]:
    """Open a ledger for writing.

    `begin` is called with the settings of the existing ledger, or with None if the ledger is new.
    It returns the settings of the campaign.

    Raise LedgerError if the file is not a ledger, is in use or is damaged.
    """
    if path.exists():
        # Check first, so that no lock file is created beside a file that is no ledger.
        _header(path)
    with _locked(path):
        if path.exists():  # another process may have created it before we got the lock
            begin(_header(path).settings)
        else:
            write(path, canonical(Header(FORMAT, begin(None))) + b"\n")
        ledger = read_ledger(path)
        with name_file_in_errors(path):
            file = path.open("r+b", buffering=0)
        with file:
            with name_file_in_errors(path):
                file.truncate(ledger.length)
                file.seek(ledger.length)
            ledger._file = file
            yield ledger


def read_ledger(path: Path) -> Ledger:
    """Read a ledger, even while a campaign is writing to it. Raise LedgerError if it is damaged."""
    ledger = Ledger(path, _header(path).settings)
    with path.open("rb") as file:
        ledger.length = len(next(file))
        for number, line in enumerate(file, 2):
            if not line.endswith(b"\n"):
                break
            ledger.length += len(line)
            place = f"{path}: line {number}"
            with _refusing(place):
                done = decode_json(line, place, Done)
                _check_item(done)
                ledger._add(done)
    return ledger


def _header(path: Path) -> Header:
    if not path.exists():
        raise LedgerError(f"{path}: there is no such file; valid: the ledger of a campaign")
    place = f"{path}: line 1"
    with _refusing(place):
        check_regular(path)
        with name_file_in_errors(path, "read"), path.open("rb") as file:
            line = file.readline(2**20)
        if not line.startswith(b'{"format":"schedproof/campaign@'):
            raise LedgerError(f"{path}: not a ledger; valid: a new file, or a ledger")
        header = decode_json(line, place, Header)
        if header.format != FORMAT:
            problem = (
                f"a ledger in the format {header.format}, written by another version of schedproof"
            )
            raise LedgerError(f"{path}: {problem}; this version reads {FORMAT}; valid: a new file")
        _check_settings(header.settings)
    return header


@contextmanager
def _refusing(place: str) -> Iterator[None]:
    try:
        yield
    except FileError as error:  # its message already names the place
        raise LedgerError(str(error)) from None
    except (CatalogueError, ValueError, TypeError) as error:
        raise LedgerError(f"{place}: {error}") from None


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        place = path.with_name(path.name + ".lock")
        # Raises an OSError at once, also for a link; FileLock would wait for its time limit.
        os.close(os.open(place, os.O_CREAT | os.O_NOFOLLOW))
        lock = FileLock(place, blocking=False)
        held = lock.acquire()
    except Timeout:
        raise LedgerError(f"{path}: another campaign is writing to it") from None
    except OSError as error:
        raise LedgerError(f"{path}: cannot be written to ({error.strerror})") from None
    with held:
        yield


def _check_settings(settings: Settings) -> None:
    for system, revision in settings.pairs:
        resolve_revision(system, revision)
    for kind in settings.kinds:
        resolve_revision(kind.system, kind.revision)
        if kind.scale not in EXAMPLES:
            raise ValueError(f"{kind.scale!r} is not a scale; valid: {', '.join(EXAMPLES)}")
    select([rule for system, _ in settings.pairs for rule in load(system)], settings.rules)


def _check_item(done: Done) -> None:
    failures = list(done.result.failures)
    if isinstance(done.item, Sample):
        resolve_revision(done.item.kind.system, done.item.kind.revision)
    else:
        failures.append(done.item.failure)
    for failure in failures:
        scenario = failure.scenario
        revision = resolve_revision(scenario.system, scenario.revision)
        full_config(scenario.system, revision, scenario.config)
        check_requests(scenario.requests)
        # The rule must exist, because its id becomes part of a file name.
        select(load(scenario.system), [failure.rule])


def _shape_of(failure: Failure) -> tuple[str, str, str]:
    return (failure.scenario.system, failure.scenario.revision or "", failure.shape)
