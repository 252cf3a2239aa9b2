"""Plants faults: schedproof is imported again, with changed text in the place of files of `model`.

Whatever is imported while a fault is planted has it, modules of these tests included; what was
imported before has not. So import what judges a fault only once it is planted.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.util import spec_from_file_location
from types import CodeType
from typing import Any

from schedproof.tests.mutants.faults import MODEL, Fault


class ChangedSource(SourceFileLoader):
    """Loads a module from a changed text."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self.text = text

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.text, self.path, "exec")

    def get_source(self, fullname: str) -> str:
        return self.text


class ChangedModels:
    """Finds the modules whose files of `model` have a changed text."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.changed = {
            ".".join(("schedproof", "model", *file.removesuffix(".py").split("/"))): (file, text)
            for file, text in texts.items()
        }

    def find_spec(self, name: str, *_: Any) -> Any:
        if name not in self.changed:
            return None
        file, text = self.changed[name]
        path = str(MODEL / file)
        return spec_from_file_location(name, path, loader=ChangedSource(name, path, text))


@contextmanager
def imported_anew(texts: Mapping[str, str]) -> Iterator[None]:
    """Import schedproof again while this lasts, with these texts by file of `model`."""
    finder: Any = ChangedModels(texts)
    before = _taken_out()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        _taken_out()
        sys.modules.update(before)


def _taken_out() -> dict[str, Any]:
    names = [name for name in sys.modules if name.partition(".")[0] == "schedproof"]
    return {name: sys.modules.pop(name) for name in names}


@contextmanager
def planted(fault: Fault) -> Iterator[Any]:
    """The target with the fault, while the model has it, too; or beside an intact model."""
    with imported_anew(fault.sources()):
        targets = import_module("schedproof.tests.mutants.targets")
        target = getattr(targets, fault.target or "ModelTarget")()
        if not fault.intact_model:
            yield target
            return
        # The model is imported when it is first used: now, while it has the fault.
        target.start(fault.system, fault.revision, {})
    yield target
