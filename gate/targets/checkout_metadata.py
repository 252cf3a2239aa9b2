"""What an installed package says of itself, for a checkout that is not installed: plugins of vLLM
are found by their entry points, and some ask for their own version."""

import tomllib
from pathlib import Path
from typing import Any

from ...model.errors import InputError
from ..files.writing import write

VERSION = "0+checkout"


def read_project(file: Path) -> dict[str, Any]:
    """The table [project] of a pyproject.toml.

    Raises:
        InputError: it cannot be read.
    """
    try:
        project = tomllib.loads(file.read_text(encoding="utf-8")).get("project")
    except (OSError, ValueError) as error:
        raise InputError("--path", f"{file}: cannot be read ({error})") from None
    if not isinstance(project, dict) or not isinstance(project.get("name"), str):
        raise InputError("--path", f"{file}: $.project.name: missing; valid: a package's name")
    return project


def metadata_folder(checkout: Path, folder: Path) -> Path:
    """A folder for the path, made inside `folder`, with what the checkout's pyproject.toml says.

    Raises:
        InputError: that file cannot be read.
    """
    project = read_project(checkout / "pyproject.toml")
    name = project["name"].replace("-", "_")
    made = folder / f"{name}-{VERSION}.dist-info"
    made.mkdir(parents=True, exist_ok=True)
    lines = []
    for group, points in project.get("entry-points", {}).items():
        lines += [f"[{group}]", *(f"{key} = {where}" for key, where in points.items())]
    said = f"Metadata-Version: 2.1\nName: {name}\nVersion: {VERSION}\n"
    write(made / "METADATA", said.encode())
    write(made / "entry_points.txt", "\n".join([*lines, ""]).encode())
    return folder
