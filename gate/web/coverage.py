"""Show on a page what a gate entered of the target's code: by module, function and line."""

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
    """A line of source, and whether it has code that no run entered."""

    number: int
    text: str
    missed: bool


def coverage_page(target: TargetInfo, coverage: Coverage) -> str:
    """Return the page as HTML. The source of a function that was not entered as a whole is read
    from its file; there is none where that has gone."""
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
    """The lines from the function's head to the last one that was missed."""
    missed = missed_lines(function)
    numbers = range(function.line, max(missed, default=0) + 1)
    return [
        Line(number, source[number - 1], number in missed)
        for number in numbers
        if number <= len(source)
    ]
