"""`[tool.schedproof]` in the pyproject.toml of a folder: defaults for the commands' options.

[tool.schedproof]
target = "my_pkg.sched:make_target"
system = "vllm"
deviations = "known.toml"
exclude = ["V1-R09"]
"""

from pathlib import Path
from typing import Annotated, Any

import msgspec

from ...model.errors import InputError
from ...model.systems import check_system, resolve_revision
from .disk import FileError, read_toml

FILE = Path("pyproject.toml")
TABLE = "tool.schedproof"
Words = Annotated[str, msgspec.Meta(min_length=1)]


class Project(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The keys of the table, named like the options. Paths are relative to the folder of
    pyproject.toml."""

    target: Words | None = None
    system: Words | None = None
    revision: Words | None = None
    profile: Words | None = None
    corpus: Words | None = None
    deviations: Words | None = None
    exclude: tuple[Words, ...] = ()
    extra_rules: Words | None = None

    @property
    def given(self) -> dict[str, Any]:
        values: dict[str, Any] = msgspec.to_builtins(self)
        return values | ({"exclude": [*self.exclude]} if self.exclude else {})


def read_project(folder: Path = Path()) -> Project:
    """Return the [tool.schedproof] table of the folder's pyproject.toml, or an empty one if there
    is none."""
    path = folder / FILE
    if not path.exists():
        return Project()
    tools = read_toml(path, "pyproject.toml").get("tool", {})
    table = tools.get("schedproof") if isinstance(tools, dict) else None
    return Project() if table is None else _project(table, path)


def _project(table: Any, path: Path) -> Project:
    try:
        read = msgspec.convert(table, Project)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        valid = ", ".join(Project.__struct_fields__)
        raise FileError(f"{path}: {TABLE}{place.rstrip('`')}: {problem}; valid: {valid}") from None
    key = "system"
    try:
        if read.system is not None:
            check_system(read.system)
            key = "revision"
            resolve_revision(read.system, read.revision)
        elif read.revision is not None:
            raise InputError("", f"{read.revision!r:.60}; valid only together with a system")
    except InputError as error:
        where = key if read.system is not None else "revision"
        raise FileError(f"{path}: {TABLE}.{where}: {error.problem}") from None
    for name in ("corpus", "deviations", "extra_rules"):
        place = getattr(read, name)
        if place is not None and not (path.parent / place).exists():
            raise FileError(
                f"{path}: {TABLE}.{name}: {place!r} does not exist; create it, or remove `{name}`"
            )
    return read
