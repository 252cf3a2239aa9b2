"""Planted faults as data: what each changes in a model, and the rule that names it first.

`README.md` describes the entries of the TOML files, one file a system.
"""

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MODEL = HERE.parents[1] / "model"
RUNS = HERE / "runs"


class StaleFaultError(ValueError):
    """An entry that does not fit the model any more, or is not well formed."""


@dataclass(frozen=True)
class Edit:
    """`after` in the place of `before`, which occurs `times` times in a file of `model`."""

    file: str
    before: str
    after: str
    times: int = 1

    def apply(self, source: str) -> str:
        """Return the changed source.

        Raises:
            StaleFaultError: `before` does not occur as often as it should.
        """
        count = source.count(self.before)
        if count == self.times:
            return source.replace(self.before, self.after)
        raise StaleFaultError(
            f"`before` occurs {count} times in model/{self.file}, not {self.times}; "
            f"closest to {self.before.strip().splitlines()[0].strip()!r} is {self._closest(source)}"
        )

    def _closest(self, source: str) -> str:
        meant = self.before.strip().splitlines()[0].strip()
        lines = [(number, line.strip()) for number, line in enumerate(source.splitlines(), 1)]
        number, line = max(
            lines, key=lambda candidate: SequenceMatcher(None, meant, candidate[1]).ratio()
        )
        return f"line {number}: {line!r}"


@dataclass(frozen=True)
class Fault:
    """One entry.

    Attributes:
        rule: the rule that names the fault first; empty where any rule may.
        bug: the published bug that the fault brings back, by our number.
        upstream: the project and the number of the published report that the fault brings back.
        revision: the revision whose model has the fault, and whose rules judge it.
        known: rules that this revision breaks without the fault.
        alone: another rule names the fault earlier; `rule` finds it when it is judged alone.
        target: a class of `targets` around the model, where no change of the model is the fault.
        intact_model: only the target has the fault; the model that it is compared with has not.
        excused: by engine that cannot find it, the reason.
        open: why the document allows the change, so that no rule need find it.
        hole: why no rule sees it.
        workload: the shape of workload that reaches the fault, where no smaller run does.
    """

    system: str
    does: str
    edits: tuple[Edit, ...] = ()
    rule: str = ""
    bug: str = ""
    upstream: str = ""
    revision: str = ""
    known: frozenset[str] = frozenset()
    alone: bool = False
    target: str = ""
    intact_model: bool = False
    excused: Mapping[str, str] = field(default_factory=dict)
    open: str = ""
    hole: str = ""
    workload: str = ""

    @property
    def label(self) -> str:
        return f"{self.bug or self.upstream} {self.does}".strip()

    def sources(self, model: Path = MODEL) -> dict[str, str]:
        """Return the changed files by their path in `model`.

        Raises:
            StaleFaultError: an edit does not apply.
        """
        changed: dict[str, str] = {}
        where = f"tests/mutants/{self.system}.toml, {self.label!r}"
        for edit in self.edits:
            try:
                source = changed.get(edit.file) or (model / edit.file).read_text(encoding="utf-8")
                changed[edit.file] = edit.apply(source)
            except FileNotFoundError:
                raise StaleFaultError(f"{where}: model/{edit.file} does not exist") from None
            except StaleFaultError as stale:
                raise StaleFaultError(f"{where}: {stale}") from None
        return changed


def kept_runs(system: str) -> dict[str, Any]:
    """Return the scenarios that `runs/` keeps for the faults of a system, as JSON, by label."""
    path = RUNS / f"{system}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


@cache
def faults_of(system: str) -> tuple[Fault, ...]:
    """Every fault of a system, in the order of its file; a system without one has none.

    Raises:
        StaleFaultError: an entry has an unknown key, or lacks one.
    """
    listed = _listed(system)
    repairs = tuple(_edits(listed.get("repaired", {})))
    return tuple(
        _fault(system, entry, listed["revision"], repairs) for entry in listed.get("fault", ())
    )


def mutants_of(system: str) -> tuple[Fault, ...]:
    """The faults that a certain rule has to name."""
    return tuple(fault for fault in faults_of(system) if fault.rule)


def by_hand(system: str) -> tuple[Fault, ...]:
    """The changed decisions that some rule has to find."""
    return tuple(fault for fault in faults_of(system) if not fault.rule)


def out_of_scope(system: str) -> dict[str, str]:
    """By id, the published bugs that no fault brings back, with the reason."""
    return dict(_listed(system).get("out_of_scope", {}))


def repaired(system: str, revision: str) -> Fault:
    """A release without its own faults: a `Fault` that repairs; without edits if it has none."""
    listed = _listed(system).get("repaired", {})
    edits = tuple(_edits(listed)) if listed.get("revision") == revision else ()
    return Fault(system, f"{revision} without its faults", edits, revision=revision)


def problems(systems: Iterable[str], model: Path = MODEL) -> Iterator[str]:
    """Every entry that does not apply, or leaves a file that is no Python."""
    for fault in (fault for system in systems for fault in faults_of(system)):
        try:
            for file, source in fault.sources(model).items():
                compile(source, file, "exec")
        except StaleFaultError as stale:
            yield str(stale)
        except SyntaxError as error:
            yield f"tests/mutants/{fault.system}.toml, {fault.label!r}: {error}"


@cache
def _listed(system: str) -> dict[str, Any]:
    path = HERE / f"{system}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {"revision": ""}


def _fault(
    system: str, entry: Mapping[str, Any], revision: str, repairs: tuple[Edit, ...]
) -> Fault:
    values = {key: value for key, value in entry.items() if key not in _OF_EDITS}
    values["known"] = frozenset(values.get("known", ()))
    edits = (*(repairs if values.pop("repaired", False) else ()), *_edits(entry))
    try:
        fault = Fault(system, edits=edits, **{"revision": revision, **values})
    except TypeError as error:
        raise StaleFaultError(
            f"tests/mutants/{system}.toml, {entry.get('does')!r}: {error}"
        ) from None
    return replace(fault, target="Release") if fault.intact_model and not fault.target else fault


_OF_EDITS = ("file", "before", "after", "times", "edit")


def _edits(entry: Mapping[str, Any]) -> Iterator[Edit]:
    for edit in entry.get("edit", [entry] if "before" in entry else []):
        yield Edit(edit["file"], edit["before"], edit["after"], edit.get("times", 1))
