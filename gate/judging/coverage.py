"""Report which parts of the target's code were executed during a gate.

`docs/formats.toml` describes every field.
"""

import ast
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..console.output import plural
from ..files.disk import check_regular
from ..targets.coverage import LARGEST, Entered, Function, places, read_probes
from ..targets.jsonl import REQUIRED

PAGE = "coverage.html"  # written to the folder for counterexamples
SHOWN_FILES, SHOWN_FUNCTIONS, SHOWN_CHANGED = 5, 5, 20  # how many of each a report lists at most


class FunctionCoverage(msgspec.Struct, frozen=True):
    """The coverage of a function."""

    name: str
    line: int
    lines: int
    entered: int
    missed: str = ""
    changed: bool = False


class FileCoverage(msgspec.Struct, frozen=True):
    """The coverage of an imported module of the target. Only lines inside functions count."""

    name: str
    path: str
    lines: int
    entered: int
    functions: tuple[FunctionCoverage, ...]

    @property
    def percent(self) -> int:
        """The percentage of the lines that ran, rounded down."""
        return 100 * self.entered // self.lines


class Coverage(msgspec.Struct, frozen=True):
    """The lines that were executed in any run of a gate. Modules with the most lines come first."""

    lines: int
    entered: int
    functions: int
    never_entered: int
    files: tuple[FileCoverage, ...]
    page: str = ""
    base: str | None = None


class Changes(NamedTuple):
    """The functions that changed since the base, by module path; `base` is the name of the base."""

    base: str
    functions: Mapping[str, frozenset[str]]


class Missed(NamedTuple):
    """A function that was never entered, and its file."""

    file: FileCoverage
    function: FunctionCoverage


def coverage_of(folder: Path | None, page: Path, changes: Changes | None = None) -> Coverage | None:
    if folder is None:
        return None
    changed = {} if changes is None else changes.functions
    files = [file for read in read_probes(folder) if (file := _file(read, changed.get(read.path)))]
    if not files:
        return None
    functions = [function for file in files for function in file.functions]
    return Coverage(
        lines=sum(file.lines for file in files),
        entered=sum(file.entered for file in files),
        functions=len(functions),
        never_entered=sum(not function.entered for function in functions),
        files=tuple(sorted(files, key=lambda file: (-file.entered, file.name))),
        page=str(page),
        base=None if changes is None else changes.base,
    )


def only_here(here: Iterable[Entered], elsewhere: Iterable[Entered]) -> tuple[str, ...]:
    """Return the lines that were entered `here` but not `elsewhere`, as texts such as
    "FILE:312-318, 330". Files with the most such lines come first."""
    others = {module.path: module.probes for module in elsewhere}
    new_lines = []
    for module in here:
        known = others.get(module.path, b"").ljust(len(module.probes), b"\0")
        new = [probe > known_probe for probe, known_probe in zip(module.probes, known, strict=True)]
        if any(new) and (probes := _places(module)):
            lines: dict[int, bool] = {}
            for (_, line), is_new in zip(probes, new, strict=True):
                lines[line] = lines.get(line, True) and not is_new
            count = sum(not is_known for is_known in lines.values())
            new_lines.append((-count, f"{_name(module)}:{', '.join(_missed(lines))}"))
    return tuple(lines for _, lines in sorted(new_lines))


def _file(module: Entered, changed: frozenset[str] | None) -> FileCoverage | None:
    """Return the coverage of a module, or None if it has no functions or its file has changed
    since the run."""
    if not (probes := _places(module)):
        return None
    lines: dict[Function, dict[int, bool]] = defaultdict(dict)
    for (function, line), passed in zip(probes, module.probes, strict=True):
        lines[function][line] = lines[function].get(line, False) or bool(passed)
    for function in _stops([*lines]):
        if not any(lines[function].values()):
            del lines[function]
    functions = tuple(
        FunctionCoverage(
            name=function.name,
            line=function.line,
            lines=len(passed),
            entered=sum(passed.values()),
            missed=", ".join(_missed(passed)),
            changed=function.name in (changed or ()),
        )
        for function, passed in sorted(lines.items(), key=lambda item: item[0].line)
    )
    return FileCoverage(
        name=_name(module),
        path=module.path,
        lines=sum(function.lines for function in functions),
        entered=sum(function.entered for function in functions),
        functions=functions,
    )


def _stops(functions: Sequence[Function]) -> list[Function]:
    """Return the method `stop` of each class that has all operations of a target. A gate never
    calls this method, because it ends the target's process instead."""
    names = {function.name for function in functions}
    stops = [function for function in functions if function.name.endswith(".stop")]
    return [
        function
        for function in stops
        if names.issuperset(f"{function.name.removesuffix('stop')}{name}" for name in REQUIRED)
    ]


def _places(module: Entered) -> list[tuple[Function, int]]:
    """Return, for each coverage probe of a module, its function and line.

    Return an empty list if the file is not valid Python or has changed since the run. The path
    comes from the target's process, so it is not trusted.
    """
    path = Path(module.path)
    try:
        check_regular(path)
        probes = places(path.read_bytes()) if path.stat().st_size <= LARGEST else []
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return probes if len(probes) == len(module.probes) else []


def _name(module: Entered) -> str:
    path = Path(module.path)
    depth = module.module.count(".") + 1 + (path.stem == "__init__")
    return "/".join(path.parts[1:][-depth:])


def _missed(passed: Mapping[int, bool]) -> Iterator[str]:
    for is_passed, group in groupby(sorted(passed.items()), key=lambda item: item[1]):
        if not is_passed:
            (first, _), *rest = group
            yield f"{first}-{rest[-1][0]}" if rest else f"{first}"


def missed_lines(function: FunctionCoverage) -> set[int]:
    return line_numbers(function.missed)


def line_numbers(text: str) -> set[int]:
    """Parse a list of lines such as "312-318, 330" into a set of line numbers."""
    lines: set[int] = set()
    for part in filter(None, text.split(", ")):
        first, _, last = part.partition("-")
        lines |= set(range(int(first), int(last or first) + 1))
    return lines


def never_entered(coverage: Coverage) -> list[Missed]:
    """Return the functions that no run entered. Functions changed since the base come first."""
    missed_functions = [
        Missed(file, function)
        for file in coverage.files
        for function in sorted(file.functions, key=lambda function: -function.lines)
        if not function.entered
    ]
    return sorted(missed_functions, key=lambda missed: not missed.function.changed)


def changed_functions(old: str, new: str) -> frozenset[str]:
    """Return the names of functions that are new or whose code differs. Ignore comments and
    docstrings."""
    before, after = _bodies(old), _bodies(new)
    return frozenset(name for name, body in after.items() if before.get(name) != body)


def changes_since(
    base: str, base_folder: Path | None, folder: Path, paths: Iterable[str]
) -> Changes:
    """Return the functions that have changed since `base`, by module. Consider only the modules in
    `paths` that lie in `folder`. If `base_folder` lacks a module, all of its functions count as
    changed."""
    functions = {}
    for path in filter(lambda path: path.is_relative_to(folder), map(Path, paths)):
        try:
            check_regular(path)
            new = path.read_text(encoding="utf-8")
            old = None if base_folder is None else base_folder / path.relative_to(folder)
            before = old.read_text(encoding="utf-8") if old is not None and old.is_file() else ""
            functions[str(path)] = changed_functions(before, new)
        except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
            # Such a file cannot be compared.
            continue
    return Changes(base, functions)


def _bodies(source: str) -> dict[str, list[str]]:
    bodies: dict[str, list[str]] = defaultdict(list)

    def walk(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{prefix}{child.name}"
                if ast.get_docstring(child, clean=False) is not None:
                    child.body = child.body[1:]
                walk(child, f"{name}.<locals>.")
                bodies[name].append(ast.dump(child))
            else:
                walk(child, f"{prefix}{child.name}." if isinstance(child, ast.ClassDef) else prefix)

    walk(ast.parse(source), "")
    return dict(bodies)


def coverage_lines(coverage: Coverage) -> list[tuple[str, str]]:
    missed = never_entered(coverage)
    changed = [function.function.name for function in missed if function.function.changed]
    others = [function.function.name for function in missed if not function.function.changed]
    lines = []
    if changed:
        count = plural(len(changed), "function")
        names = ", ".join(changed[:SHOWN_CHANGED]) + ", ..." * (len(changed) > SHOWN_CHANGED)
        what = f"{count} changed since {coverage.base}: {names}"
        lines.append(("never entered", what))
    if coverage.base is not None:  # the base has the other functions too; the page lists them
        return [*lines, ("coverage", f"{_shares(coverage)} ({coverage.page} lists the rest)")]
    lines.append(("coverage", _shares(coverage)))
    if others:
        names = ", ".join(others[:SHOWN_FUNCTIONS]) + ", ..." * (len(others) > SHOWN_FUNCTIONS)
        count = f"{len(missed):,} of {plural(coverage.functions, 'function')}"
        lines.append(("never entered", f"{count}: {names} ({coverage.page} lists them)"))
    return lines


def _shares(coverage: Coverage) -> str:
    folder = os.path.commonpath([os.path.dirname(file.name) for file in coverage.files])
    shown = coverage.files[:SHOWN_FILES]
    names = [os.path.relpath(file.name, folder or ".") for file in shown]
    modules = ", ".join(f"{name} {file.percent} %" for name, file in zip(names, shown, strict=True))
    more = ", ..." * (len(coverage.files) > SHOWN_FILES)
    percent, lines = 100 * coverage.entered // coverage.lines, plural(coverage.lines, "line")
    return f"{percent} % of {lines} in functions{f' of {folder}' * bool(folder)}: {modules}{more}"
