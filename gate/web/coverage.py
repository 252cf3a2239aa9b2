"""Show on a page which parts of the target's code ran: by module, function and line."""

from pathlib import Path
from typing import NamedTuple

from ..judging.coverage import (
    Coverage,
    FileCoverage,
    FunctionCoverage,
    coverage_lines,
    missed_lines,
    never_entered,
)
from ..judging.verdict import TargetInfo
from .base.page import render_template


class Line(NamedTuple):
    """A line of source, and whether it has code that never ran."""

    number: int
    text: str
    missed: bool


def coverage_page(target: TargetInfo, coverage: Coverage) -> str:
    """Return the page as HTML. The source of functions that did not run completely is read from
    their files; it is left out if a file no longer exists."""
    sources = {file.path: _source(file) for file in coverage.files}
    values = {
        "target": f"{target.name} {target.version}",
        "lines": coverage_lines(coverage),
        "base": coverage.base,
        "changed": [function for function in never_entered(coverage) if function.function.changed],
        "files": coverage.files,
        "excerpt": lambda file, function: _excerpt(sources[file.path], function),
    }
    return render_template("coverage", values, [])


def _source(file: FileCoverage) -> list[str]:
    try:
        return Path(file.path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _excerpt(source: list[str], function: FunctionCoverage) -> list[Line]:
    missed = missed_lines(function)
    numbers = range(function.line, max(missed, default=0) + 1)
    return [
        Line(number, source[number - 1], number in missed)
        for number in numbers
        if number <= len(source)
    ]
