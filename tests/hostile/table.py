"""The page that says how hard it was tried."""

from collections.abc import Sequence
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"
END = "<!-- end -->"


def written(mark: str, lines: Sequence[str]) -> None:
    """Put the lines behind the mark, in the place of those of the last time."""
    before, found, rest = PAGE.read_text(encoding="utf-8").partition(f"{mark}\n")
    assert found, mark
    after = rest.partition(END)[2]
    PAGE.write_text("\n".join([before + mark, "", *lines, "", END + after]), encoding="utf-8")
