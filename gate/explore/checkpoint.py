"""Save and load explorations, so that an interrupted one can resume.

A file contains a digest, which reveals damage, and then one pickled `Exploration`. Unpickling
allows only this package's own classes, and a file can be read only by the version that wrote it,
because a partial exploration of another model would be meaningless. A digest is not a signature:
never use another user's file (`docs/explanation/security.md`).
"""

import hashlib
import io
import pickle
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...solver.exploration.exploration import Exploration, ExploreOptions
from ...spec.catalogue import Rule
from ..files.reading import check_regular
from ..files.scenario_file import FileError
from ..files.writing import naming_file, write
from ..processes.executors import code_version

# Layers without input or output: unpickling their classes can do no harm.
PURE = tuple(f"schedproof.{layer}." for layer in ("spec", "model", "properties", "solver"))
# The functions that a run refers to: predicates of rules, and functions of a model's revision.
FUNCTIONS = re.compile(r"schedproof\.(properties\.(rules|\w+\.predicates)\.|model\.\w+\.\w+$)")
MAGIC = b"schedproof exploration 2\n"
DIGEST = 32  # bytes
HARMLESS = {
    ("builtins", "frozenset"),
    ("builtins", "range"),
    ("builtins", "set"),
    ("collections", "deque"),
    ("msgspec._utils", "rebuild"),
}


def save_checkpoint(folder: Path, run: Exploration) -> None:
    """Save an exploration to its file in `folder`. Raise FileError if the file cannot be
    written."""
    path = _path(folder, run.options, run.rules)
    with naming_file(path):
        folder.mkdir(parents=True, exist_ok=True)
    data = pickle.dumps(run)
    write(path, MAGIC + version_of_code() + _digest(data) + data)


def load(folder: Path, options: ExploreOptions, rules: Sequence[Rule]) -> Exploration | None:
    """Return the saved exploration with these options and rules; None if there is none. Raise
    FileError if this version cannot use the file."""
    ids = tuple(rule.id for rule in rules)
    path = _path(folder, options, ids)
    try:
        path.stat()
        check_regular(path)
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror})") from None
    start = len(MAGIC) + len(version_of_code())
    if not data.startswith(MAGIC + version_of_code()):
        raise FileError(
            f"{path}: not an exploration of this version of schedproof; "
            "use another folder, or delete the file"
        )
    kept = data[start + DIGEST :]
    if data[start : start + DIGEST] != _digest(kept):
        raise FileError(f"{path}: damaged (its digest does not match); delete the file")
    try:
        run = _Reader(io.BytesIO(kept)).load()
    except Exception as error:
        raise FileError(f"{path}: damaged ({error}); delete the file") from None
    if not isinstance(run, Exploration) or (run.options, run.rules) != (options, ids):
        raise FileError(
            f"{path}: not the exploration of these options and rules; valid: another folder"
        )
    return run


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in HARMLESS:
            return super().find_class(module, name)
        if module.startswith(PURE) and "." not in name:
            member = super().find_class(module, name)
            # A pickle can call every function that it may load, with any arguments. An alias of
            # `getattr` would be enough to reach `eval`.
            held = isinstance(member, type) or FUNCTIONS.match(module)
            if held and getattr(member, "__module__", "") == module:
                return member
        raise pickle.UnpicklingError(f"{module}.{name} is not part of an exploration")


def _path(folder: Path, options: ExploreOptions, rules: Sequence[str]) -> Path:
    question = hashlib.sha256(repr((options, tuple(rules))).encode()).hexdigest()[:12]
    return (
        folder / f"{options.revision}-{options.scope.name.replace(' ', '-')}-{question}.exploration"
    )


def version_of_code() -> bytes:
    return code_version("spec", "model", "properties", "solver").encode() + b"\n"
