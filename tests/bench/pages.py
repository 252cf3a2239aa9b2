"""Tables that a command makes, in the pages of the documentation."""

import argparse
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
ENDS = "<!-- end -->\n"

Tables = Mapping[str, Callable[[], Iterable[str]]]


def begins(command: str, table: str) -> str:
    """The line before a table: what makes it, and its name."""
    return f"<!-- make {command}: {table} -->\n"


def made(page: Path, command: str, table: str) -> str:
    """The lines of a table as the page has them."""
    text = page.read_text(encoding="utf-8")
    return text.partition(begins(command, table))[2].partition(ENDS)[0]


def make(page: Path, command: str, tables: Tables, about: str | None) -> int:
    """Print the tables, or those that `--only` names, and with `--write` put them into the page."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--write", action="store_true", help=f"put them into docs/{page.name}")
    parser.add_argument("--only", action="append", choices=[*tables], help="make this one")
    given = parser.parse_args()
    for name in given.only or tables:
        lines = "\n".join(tables[name]()) + "\n"
        print(lines, flush=True)
        if given.write:
            text = page.read_text(encoding="utf-8")
            before, found, rest = text.partition(begins(command, name))
            assert found, (page.name, name)
            page.write_text(before + found + lines + ENDS + rest.partition(ENDS)[2], "utf-8")
    return 0
