"""The documentation does what it says: its files are written, its commands run, its output shown.

A block with `title="FILE"` is that file. A block with `replace="FILE"` takes the place of the one
line there that begins as its last line does. In a console block a line of three dots stands for any
lines, three dots at the end of a line for its rest. What installs something is left out.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(
    r'^```(\w+)(?: (title|replace)="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE
)
ADAPTER = ("title", "adapter.py")
INSTALLS = ("python3 -m venv", "pip install")
ALIKE = 20  # characters


class Command(NamedTuple):
    """A line after `$`, and what the document shows of its output."""

    words: str
    shown: str


def commands(block: str) -> Iterator[Command]:
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        words, _, shown = part.partition("\n")
        yield Command(words, shown)


def as_pattern(shown: str) -> str:
    lines = [
        r"(?:.*\n)*?"
        if line == "..."
        else re.escape(line.removesuffix("...")) + (r".*\n" if line.endswith("...") else r"\n")
        for line in shown.splitlines()
    ]
    return "".join(lines)


def replace_line(path: Path, block: str) -> None:
    lines = path.read_text().splitlines(keepends=True)
    begins = block.splitlines()[-1].strip()[:ALIKE]
    [number] = [n for n, line in enumerate(lines) if line.strip().startswith(begins)]
    path.write_text("".join([*lines[:number], block, *lines[number + 1 :]]))


@pytest.mark.parametrize("page", ["tutorial.md"])
def test_a_page_works_word_for_word(page: str, tmp_path: Path) -> None:
    ran = 0
    for kind, role, name, block in BLOCK.findall((ROOT / "docs" / page).read_text()):
        if role == "title":
            (tmp_path / name).write_text(block)
        elif role == "replace":
            replace_line(tmp_path / name, block)
        elif kind == "console":
            for command in commands(block):
                if not command.words.startswith(INSTALLS):
                    assert_shows(command, tmp_path)
                    ran += 1
    assert ran >= 4


def assert_shows(command: Command, folder: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    ran = subprocess.run(
        command.words,
        shell=True,
        cwd=folder,
        env={**env, "PATH": path, "NO_COLOR": "1", "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert re.fullmatch(as_pattern(command.shown), ran.stdout), ran.stdout + ran.stderr


def test_the_adapter_of_the_tutorial_takes_one_screen() -> None:
    page = (ROOT / "docs" / "tutorial.md").read_text()
    [adapter] = [block for _, role, name, block in BLOCK.findall(page) if (role, name) == ADAPTER]
    code = [line for line in adapter.splitlines() if line.strip()]
    assert len(code) <= 45
