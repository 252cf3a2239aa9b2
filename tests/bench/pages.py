"""Tables that a command makes, in the pages of the documentation."""

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
        lines = [*tables[name]()]
        print("\n".join(lines), flush=True)
        if given.write:
            put(page, command, name, lines)
    return 0


def put(page: Path, command: str, table: str, lines: Iterable[str]) -> None:
    """Put the lines of a table into the page, in the place of those that it has."""
    text = page.read_text(encoding="utf-8")
    before, found, rest = text.partition(begins(command, table))
    assert found, (page.name, table)
    new = "".join(f"{line}\n" for line in lines)
    page.write_text(before + found + new + ENDS + rest.partition(ENDS)[2], "utf-8")


def rows(*lines: Sequence[str]) -> Iterator[str]:
    """A table in Markdown, the first line its head."""
    for number, line in enumerate(lines):
        yield f"| {' | '.join(line)} |"
        if not number:
            yield "|---" * len(line) + "|"
