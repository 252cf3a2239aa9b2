"""Write the tables of tools into the documentation.

A table stands between two comments. The first one names the tool and the table, as in
`tools/proofs.py: lemmas`.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
END = "<!-- end -->\n"

Tables = Mapping[str, Callable[[], Iterable[str]]]


def begin(mark: str) -> str:
    """Return the comment before a table."""
    return f"<!-- {mark} -->\n"


def table_in(page: Path, mark: str) -> str:
    """Return a table as it stands on the page."""
    text = page.read_text(encoding="utf-8")
    return text.partition(begin(mark))[2].partition(END)[0].strip("\n")


def put(page: Path, mark: str, lines: Iterable[str]) -> None:
    """Replace a table of the page."""
    before, found, rest = page.read_text(encoding="utf-8").partition(begin(mark))
    assert found, (page.name, mark)
    table = "".join(f"{line}\n" for line in ["", *lines, ""])
    page.write_text(before + found + table + END + rest.partition(END)[2], encoding="utf-8")


def make(
    page: Path,
    tool: str,
    tables: Tables,
    about: str | None,
    elsewhere: Mapping[str, Path] | None = None,
) -> int:
    """Run a tool that produces tables. Print the tables and, with `--write`, write them to their
    pages.

    Args:
        page: the page with the tables.
        tool: the file of the tool, as the comments around its tables name it.
        tables: for each table's name, the function that yields its lines.
        about: the description that `--help` prints.
        elsewhere: the page of each table that is not on `page`.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--write", action="store_true", help="write the tables to the documentation"
    )
    parser.add_argument("--only", action="append", choices=[*tables], help="make only this table")
    options = parser.parse_args()
    for name in options.only or tables:
        lines = [*tables[name]()]
        print("\n".join(lines), flush=True)
        if options.write:
            put((elsewhere or {}).get(name, page), f"{tool}: {name}", lines)
    return 0


def rows(*lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a Markdown table. The first row is its header."""
    for number, line in enumerate(lines):
        yield f"| {' | '.join(line)} |"
        if not number:
            yield "|---" * len(line) + "|"
