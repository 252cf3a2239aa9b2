"""A corpus: a folder of scenario files, each of which names the rule that it is about.

There is no index: `schedproof corpus list` reads the files themselves. A file is named by its rule
and content, so a corpus never holds the same scenario twice. `origin` names the rule, and where the
scenario was found:

    "origin": {"rule": "SPY-R07", "shape": "SPY-R07: # requests x tkv # ...", "found": "2026-01-31",
               "found_on": {"target": "model", "name": "...", "version": "..."}}
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ...model.scenario import Scenario
from ..files.reading import located
from ..files.scenario_file import FileError, file_name, read_scenario, write_scenario
from .builtin_scenarios import every_builtin

DEFAULT_FOLDER = Path("schedproof-corpus")


class FoundOn(msgspec.Struct, frozen=True):
    """A target: its name on the command line, and the name and version that it reports."""

    target: str = ""
    name: str = ""
    version: str = ""

    def __str__(self) -> str:
        return " ".join(part for part in (self.name or self.target, self.version) if part)


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """The keys of `origin` that a corpus needs; other keys are for readers. `shape` is that of the
    failure (`checking.failure_signature`), empty for a witness; `found` is a date, YYYY-MM-DD."""

    rule: str
    shape: str = ""
    found_on: FoundOn = FoundOn()
    found: str = ""


class Entry(NamedTuple):
    """A file of a corpus and its content."""

    path: Path
    scenario: Scenario
    origin: Origin

    @property
    def rule(self) -> str:
        return self.origin.rule

    @property
    def shape(self) -> str:
        return self.origin.shape

    @property
    def found_on(self) -> str:
        return str(self.origin.found_on)

    @property
    def failure(self) -> tuple[str, str, str, str]:
        """Return what identifies the failure: system, revision, rule and shape. Every witness is
        unique."""
        scenario = self.scenario
        shape = self.shape or file_name(scenario, self.rule)
        return scenario.system, scenario.revision or "", self.rule, shape


def entries(folder: Path) -> list[Entry]:
    """Return every entry of a corpus, by file name. Raise FileError if there is no such folder, or
    a file in it is not an entry."""
    return [read_entry(path) for path in files(folder)]


def files(folder: Path) -> Iterator[Path]:
    """Yield the paths of a corpus's scenario files, sorted; ignore sub-folders and other files."""
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "there is no such folder"
        raise FileError(f"{folder}: {what}; `schedproof corpus add FILE` creates a corpus")
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise FileError(f"{folder}: cannot be read ({error.strerror})") from None
    yield from (path for path in paths if path.suffix == ".json" and not path.is_dir())


def read_entry(path: Path) -> Entry:
    """Read one file of a corpus. Raise FileError if the file is not a scenario, does not name its
    rule, or is a link out of the folder."""
    if path.is_symlink() and not _real(path).is_relative_to(_real(path.parent)):
        raise FileError(f"{path}: a link to a file outside the corpus; valid: a file")
    scenario = read_scenario(path)
    return Entry(path, scenario, origin_of(scenario, str(path)))


def _real(path: Path) -> Path:
    """Resolve a path; a link to itself stays unresolved."""
    return Path(os.path.realpath(path))


def origin_of(scenario: Scenario, path: str) -> Origin:
    """Return the origin that a scenario states; errors name the file `path`."""
    if not (scenario.origin or {}).get("rule"):
        what = 'nothing; valid: the id of a rule ("schedproof corpus add" writes it)'
        raise FileError(f"{path}: $.origin.rule: {what}")
    data = {"origin": scenario.origin}
    try:
        return msgspec.convert(data, _Holder).origin
    except msgspec.ValidationError as error:
        raise FileError(f"{path}: {located('$', error, data)}") from None


def add(folder: Path, scenario: Scenario, origin: Origin) -> Path:
    """Write a scenario into a corpus, whole or not at all, replacing a file with the same name. The
    rule must be in the catalogue, since its id becomes part of the file name."""
    own: dict[str, Any] = msgspec.to_builtins(origin)
    reported = {
        key: value for key, value in (scenario.origin or {}).items() if key not in _OWN_KEYS
    }
    return write_scenario(replace(scenario, origin=reported | own), folder, origin.rule)


def remove(entry: Entry) -> None:
    try:
        entry.path.unlink()
    except OSError as error:
        raise FileError(f"{entry.path}: cannot be removed ({error.strerror})") from None


_OWN_KEYS = frozenset(Origin.__struct_fields__)


class _Holder(msgspec.Struct, frozen=True):
    origin: Origin


def builtin_lines() -> Iterator[str]:
    for name, scenario in every_builtin().items():
        about = (scenario.origin or {}).get("note", "")
        requests = len(scenario.requests)
        counted_requests = f"{requests} request{'s' * (requests != 1)}"
        description = f": {about}" if about else ""
        yield f"{name}  {scenario.system} {scenario.revision}, {counted_requests}{description}"


def line(entry: Entry) -> str:
    shown = row(entry)
    requests = f"{shown['requests']} request{'s' * (shown['requests'] != 1)}"
    parts = [
        f"{shown['rule']}",
        f"{shown['system']} {shown['revision']}",
        requests,
        f"{shown['expects']}",
    ]
    parts += [f"found on {shown['found_on']}"] * bool(shown["found_on"])
    parts += [f"{shown['found']}"] * bool(shown["found"])
    return f"{shown['file']}: {', '.join(parts)}"


def row(entry: Entry) -> dict[str, str | int]:
    expect = entry.scenario.expect
    violates = ", ".join((expect and expect.violates) or ())
    return {
        "file": str(entry.path),
        "rule": entry.rule,
        "shape": entry.shape,
        "system": entry.scenario.system,
        "revision": entry.scenario.revision or "",
        "requests": len(entry.scenario.requests),
        "found_on": entry.found_on,
        "found": entry.origin.found,
        "expects": f"violates {violates}" if violates else "holds",
    }


def counted(number: int) -> str:
    return f"{number} entr{'y' if number == 1 else 'ies'}"
