"""`schedproof init`: write an adapter, a configuration, a CI workflow and a hook."""

import importlib.metadata
import json
import os
import tomllib
from pathlib import Path
from typing import Annotated, NamedTuple
from urllib.parse import urlsplit

import typer
from jinja2 import Environment, PackageLoader, StrictUndefined

from ...model.systems import config_keys, full_config, make_model
from ...spec.catalogue import load
from ...spec.systems import SYSTEMS
from ..console import output
from ..console.option_checks import resolved_revision
from ..files.disk import FileError, name_file_in_errors, write
from ..files.project_file import FILE, read_project

# Not a package name: on an index, it might belong to somebody else.
NO_ADDRESS = "install schedproof from its repository, or from a wheel in this repository"


class Written(NamedTuple):
    """A file that `schedproof init` writes. `kept` means that it existed and stayed unchanged."""

    path: Path
    kept: bool


def write_files(folder: Path, system: str, revision: str) -> list[Written]:
    """Write the files into the folder. Files that exist are kept.

    Raise FileError, before anything is written, in two cases: a name is taken by something other
    than a regular file; or the folder's pyproject.toml cannot be read or extended, or already has a
    `[tool.schedproof]` table.
    """
    read_project(folder)
    written, data = list[Written](), list[bytes]()
    for name, text in texts(system, revision).items():
        path = folder / name
        if os.path.lexists(path) and not path.is_file():
            raise FileError(f"{path}: not a regular file; remove it, or use another folder")
        full = path.is_file() and path.stat().st_size > 0
        extended = path.name == str(FILE)
        written.append(Written(path, kept=full and not extended))
        data.append(_with_table(path, text) if full and extended else text.encode())
    for path, _ in written:
        with name_file_in_errors(path.parent, "created"):
            path.parent.mkdir(parents=True, exist_ok=True)
    for (path, kept), content in zip(written, data, strict=True):
        if not kept:
            write(path, content)
    return written


def _with_table(path: Path, table: str) -> bytes:
    """Return the text of the pyproject.toml with `[tool.schedproof]` appended. All other lines
    stay unchanged."""
    existing = path.read_bytes()
    line_end = "\r\n" if b"\r\n" in existing else "\n"
    added = f"\n\n{table}".replace("\n", line_end).encode() if existing.strip() else table.encode()
    whole = existing.rstrip() + added
    tools = tomllib.loads(existing.decode()).get("tool", {})
    if isinstance(tools, dict) and "schedproof" in tools:
        raise FileError(f"{path} already has [tool.schedproof], so `init` has run here before")
    try:
        tomllib.loads(whole.decode())
    except ValueError as error:
        problem = f"[tool.schedproof] cannot be appended ({error})"
        raise FileError(f"{path}: {problem}; valid: a file without `tool = ...`") from None
    return whole


def texts(system: str, revision: str) -> dict[str, str]:
    environment = Environment(
        loader=PackageLoader("schedproof.gate.cli"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # the output is Python, TOML and YAML, not HTML, so nothing is escaped
    )

    def rendered(*names: str, **values: object) -> str:
        return environment.select_template([f"{name}.jinja" for name in names]).render(**values)

    own = [rule.id for rule in load(system) if rule.checked and not rule.id.startswith("ALL-")]
    source = address()
    usual = revision == SYSTEMS[system].revisions[0]
    return {
        "schedproof_adapter.py": rendered(
            f"{system}.py", "system.py", **_of_the_model(system, revision)
        ),
        str(FILE): rendered("pyproject.toml", system=system, revision="" if usual else revision),
        "schedproof-known.toml": rendered("known.toml", example=own[0]),
        "schedproof-corpus/README.md": rendered("corpus.md"),
        ".github/workflows/schedproof.yml": rendered(
            "workflow.yml", source=source, placeholder=NO_ADDRESS
        ),
        ".pre-commit-config.yaml": rendered("pre-commit.yaml"),
    }


def _of_the_model(system: str, revision: str) -> dict[str, object]:
    observes = make_model(system, revision, {}).observes
    usual = full_config(system, revision, {})
    keys = {key: json.dumps(usual.get(key)) for key in config_keys(system, revision)}
    shown = [field for field in observes if field not in ("kind", "scheduled")]
    return {"title": SYSTEMS[system].title, "shown": shown, "keys": keys}


def address() -> str | None:
    """Return the argument with which `pip install` installs this schedproof, or None if its
    repository is unknown."""
    try:
        origin = importlib.metadata.distribution("schedproof").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        origin = None
    try:
        known = json.loads(origin or "{}")
    except ValueError:
        known = {}
    url, version = str(known.get("url", "")), known.get("vcs_info", {})
    if urlsplit(url).scheme in ("http", "https", "ssh") and version.get("commit_id"):
        return f"git+{url}@{version['commit_id']}"
    return None


NEXT = """next:
  schedproof doctor     check the adapter
  schedproof gate       judge the example scheduler, which conforms
then replace the example in schedproof_adapter.py with your scheduler, and run
both again"""


def command(
    system: Annotated[
        str, typer.Option(help="system whose rules apply; generic has rules for any scheduler")
    ] = "generic",
    revision: Annotated[
        str | None,
        typer.Option(help="published behaviour to judge by (default: the system's first)"),
    ] = None,
) -> None:
    """Write an adapter, [tool.schedproof], a workflow and a hook into this folder. Existing files
    are kept."""
    revision = resolved_revision(system, revision)
    console = output.make_console()
    for path, kept in write_files(Path(), system, revision):
        output.say(console, f"{'kept' if kept else 'wrote':7} {path}")
    if address() is None:
        output.say(
            console,
            "note    edit the workflow: it does not yet say where to install schedproof from",
        )
    console.print(NEXT, markup=False)
