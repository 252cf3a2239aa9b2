"""Folders of scenario files: the built-in scenarios and the users' corpora. Each file names its
rule.

The built-in scenarios are published counterexamples at production scale, and the seed corpus: a few
short runs that together exercise every rule (`tools/seeds.py`).

A corpus has no index: `schedproof corpus list` reads the files. A file's name is derived from its
rule and content, so a corpus never contains the same scenario twice. The key `origin` contains the
rule, and where the scenario was found:

    "origin": {"rule": "SPY-R07", "shape": "SPY-R07: # requests x tkv # ...", "found": "2026-01-31",
               "found_on": {"target": "model", "name": "...", "version": "..."}}
"""

import difflib
import os
import re
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ...model.config import MOST
from ...model.scenario import Expectation, Scenario
from ...properties.shrinking.shrink import stands_for
from ...spec.catalogue import load
from ...spec.systems import SYSTEMS
from ..files.disk import describe_error, name_file_in_errors
from ..files.scenario_file import FileError, file_name, read_scenario, write_scenario
from ..targets.scales import scales_of


def builtin_scenarios(system: str) -> dict[str, Scenario]:
    return _scenarios(resources.files("schedproof.gate.corpus") / "builtin" / system)


def seed_corpus(system: str, scale: str) -> dict[str, Scenario]:
    return _scenarios(
        resources.files("schedproof.gate.corpus") / "builtin" / system / "seeds", f"{scale}-"
    )


def every_builtin() -> dict[str, Scenario]:
    return {
        name.removesuffix(".json"): scenario
        for system in SYSTEMS
        for name, scenario in builtin_scenarios(system).items()
    }


def scenario_named(name: str) -> Scenario:
    """Return the scenario in a file, or the built-in scenario with this name.

    A name that looks like a path is always taken as a path. Raise FileError if neither exists, or
    if the file does not contain a scenario.
    """
    path = Path(name)
    if "\0" in name or path.exists() or path.is_symlink() or path.name != name:
        return read_scenario(path)
    scenarios = every_builtin()
    if name.removesuffix(".json") in scenarios:
        return scenarios[name.removesuffix(".json")]
    if name.endswith(".json"):
        return read_scenario(path)
    close = difflib.get_close_matches(name, scenarios, 3)
    meant = f"did you mean {' or '.join(close)}? " if close else ""
    raise FileError(
        f"{name}: no file and no built-in scenario; {meant}"
        "`schedproof corpus list --builtin` lists the built-in ones"
    )


def shortest_first(system: str) -> dict[str, Scenario]:
    """Return the system's built-in scenarios, shortest first, so that failures show up in short
    runs."""
    return dict(sorted(builtin_scenarios(system).items(), key=lambda item: max_steps(item[1])))


def max_steps(scenario: Scenario) -> int:
    """Return an upper bound on the number of steps that a replay takes if no request has to wait
    for space."""
    key = scales_of(scenario.system).chunk_key
    chunk = int(scenario.config[key]) if key else MOST
    work = 0
    for request in scenario.requests:
        whole = 2 * -(-request.prompt_len // chunk) + request.tokens_to_emit
        stays = (
            whole if request.abort_at is None else max(request.abort_at - request.arrival, 0) + 1
        )
        work += min(whole, stays)
    return max(request.arrival for request in scenario.requests) + work


def _scenarios(folder: Traversable, begin: str = "") -> dict[str, Scenario]:
    if not folder.is_dir():
        return {}
    files = {entry.name: entry for entry in folder.iterdir() if entry.name.endswith(".json")}
    scenarios = {}
    for name in sorted(name for name in files if name.startswith(begin)):
        with resources.as_file(files[name]) as path:
            scenarios[name] = read_scenario(Path(path))
    return scenarios


DEFAULT_FOLDER = Path("schedproof-corpus")
# File names of scenarios that commands write and that are no entries, such as `diff-order-….json`.
COUNTEREXAMPLE = re.compile(r".+-[0-9a-f]{10}\.json")
ABOUT_NO_RULE = re.compile(r"(?:diff-.+|repaired-.+|waste|flaky-[a-z]+)-[0-9a-f]{10}\.json")


class FoundOn(msgspec.Struct, frozen=True):
    """A target: its name on the command line, and the name and version that it reports."""

    target: str = ""
    name: str = ""
    version: str = ""

    def __str__(self) -> str:
        return " ".join(part for part in (self.name or self.target, self.version) if part)


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """The keys of `origin` that a corpus needs. Other keys are for readers only."""

    rule: str
    shape: str = ""
    found_on: FoundOn = FoundOn()
    found: str = ""


class Entry(NamedTuple):
    """A file of a corpus, with its content."""

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
        """The system, revision, rule and shape, which together identify a failure. For a witness,
        which has no shape, the file name takes its place."""
        scenario = self.scenario
        shape = self.shape or file_name(scenario, self.rule)
        return scenario.system, scenario.revision or "", self.rule, shape

    def can_replace(self, other: "Entry") -> bool:
        """Return whether this entry may replace another one: it was found on the same target, has
        the same failure and the same expectation, and is no larger."""
        return (
            self.failure == other.failure
            and self.origin.found_on.target == other.origin.found_on.target
            and expected(self.scenario) == expected(other.scenario)
            and stands_for(self.scenario, other.scenario)
        )


def expected(scenario: Scenario) -> Expectation:
    """Return what a scenario expects. A scenario without expectation expects that every rule
    holds."""
    return scenario.expect or Expectation(holds=True)


def entries(folder: Path) -> list[Entry]:
    """Return every entry of a corpus, in order of file name."""
    return [read_entry(path) for path in files(folder)]


def files(folder: Path) -> Iterator[Path]:
    """Yield the paths of the scenario files in a corpus, sorted. Ignore sub-folders and other
    files, among them the scenarios of differences that a gate writes beside its findings."""
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "there is no such folder"
        raise FileError(f"{folder}: {what}; `schedproof corpus add FILE` creates a corpus")
    with name_file_in_errors(folder, "read"):
        paths = sorted(folder.iterdir())
    for path in paths:
        if path.suffix == ".json" and not path.is_dir() and not ABOUT_NO_RULE.fullmatch(path.name):
            yield path


def read_entry(path: Path) -> Entry:
    """Read a file of a corpus. Raise FileError if it is not an entry, or is a link to a file
    outside the folder."""
    if path.is_symlink() and not _real(path).is_relative_to(_real(path.parent)):
        raise FileError(f"{path}: a link to a file outside the corpus; valid: a file")
    scenario = read_scenario(path)
    return Entry(path, scenario, origin_of(scenario, str(path)))


def _real(path: Path) -> Path:
    """Resolve a path. Leave a link that points to itself unresolved."""
    return Path(os.path.realpath(path))


def check_rule(entry: Entry) -> None:
    """Raise FileError if the catalogue has no rule with the entry's id, or with the id of a rule
    that the entry expects to be broken. No replay would judge such an entry."""
    known = {rule.id for rule in load(entry.scenario.system)}
    expect = entry.scenario.expect
    named = [("origin.rule", entry.rule)]
    named += [("expect.violates", rule) for rule in (expect and expect.violates) or ()]
    for place, rule in named:
        if rule not in known:
            reported = f"{rule!r:.60} is not a rule of {entry.scenario.system}"
            raise FileError(f"{entry.path}: $.{place}: {reported}; `schedproof rules` lists them")


def origin_of(scenario: Scenario, path: str) -> Origin:
    """Return the origin that a scenario names. `path` is the file name to show in error
    messages."""
    if not (scenario.origin or {}).get("rule"):
        what = 'nothing; valid: the id of a rule ("schedproof corpus add" writes it)'
        raise FileError(f"{path}: $.origin.rule: {what}")
    data = {"origin": scenario.origin}
    try:
        return msgspec.convert(data, _Holder).origin
    except msgspec.ValidationError as error:
        raise FileError(f"{path}: {describe_error('$', error, data)}") from None


def add(folder: Path, scenario: Scenario, origin: Origin) -> Path:
    """Write a scenario into a corpus, atomically, and replace a file of the same name. The rule
    must be in the catalogue, since its id becomes part of the file name."""
    own: dict[str, Any] = msgspec.to_builtins(origin)
    reported = {
        key: value for key, value in (scenario.origin or {}).items() if key not in _OWN_KEYS
    }
    return write_scenario(replace(scenario, origin=reported | own), folder, origin.rule)


def remove(entry: Entry) -> None:
    with name_file_in_errors(entry.path, "removed"):
        entry.path.unlink()


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


def count_in_words(number: int) -> str:
    return f"{number} entr{'y' if number == 1 else 'ies'}"
