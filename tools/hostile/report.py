"""The options and the report that all attacks share."""

import argparse
import os
import sys
from collections.abc import Sequence

from ..pages import DOCS, put

PAGE = DOCS / "reference" / "attacks.md"


def parser(about: str | None, **counts: int) -> argparse.ArgumentParser:
    """Return a parser with an option for each count. The keyword arguments give the names and
    defaults."""
    made = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, number in counts.items():
        made.add_argument(f"--{name}", type=int, default=number)
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    made.add_argument("--write", action="store_true", help="write the table to the docs")
    return made


def finish(attack: str, lines: Sequence[str], wrong: Sequence[str], *, write: bool) -> int:
    """Print the table and the faults.

    Args:
        attack: the name of the module, and of its table in `docs/reference/attacks.md`.
        write: whether to write the table to that page.

    Returns:
        The exit code: the number of faults, at most 100.
    """
    print("\n".join(lines))
    print("\n".join(wrong), file=sys.stderr)
    if write:
        put(PAGE, f"tools/hostile/{attack}.py", lines)
    return min(len(wrong), 100)


def went_wrong(number: int, noun: str) -> str:
    """Say how many went wrong: "No request went wrong.", "2 requests went wrong."."""
    return f"{f'{number:,}' if number else 'No'} {noun}{'s' * (number > 1)} went wrong."
