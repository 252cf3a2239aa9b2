"""The reports that a user can request from a gate, and the reporters that make them."""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.console import Console

from ...model.errors import InputError
from ...spec.catalogue import Rule
from ..console.option_checks import check_different, check_file
from ..console.output import as_json, json_line
from ..files.disk import FileError, name_file_in_errors, open_pipe, write
from ..judging.verdict import Concluded, Event, Finding, Found, Report, Verdict
from .github import GitHub
from .junit import junit
from .markdown import markdown
from .sarif import sarif
from .terminal import Terminal

# Matches the beginning and the end of every report of a gate, whatever its format, and an empty
# file. Other files also mention schedproof, such as lock files and reports that are merged with
# those of other tools, so each pattern is as narrow as the format allows.
OURS = re.compile(
    rb'\s*\Z|\{"event":"began",[^\n]*"format":"schedproof/events@|'
    rb"## schedproof: [^\n]*\n\n\*\*[^\n]*; profile [a-z]+, seed [0-9]+\n|"
    rb"<\?xml[^\n]*\n<testsuites>\n  <testsuite name=\"schedproof\"|"
    rb'<!doctype html>\n<html lang="en">\n<head>\n(?:<meta [^\n]*\n)*'
    rb'<meta name="generator" content="schedproof|'
    rb'\{\n  "target": .*\n  "format": "schedproof/verdict@[0-9]+"\n\}\n\Z|'
    rb'\{\n  "\$schema": [^\n]*\n  "version": "2\.1\.0",\n  "runs": \[\n    \{\n'
    rb'      "tool": \{\n        "driver": \{\n          "name": "schedproof",'
    rb"(?!.*\n    \},\n    \{)",
    re.DOTALL,
)
ENDS = 2**16  # bytes at the beginning and at the end of a file
SUMMARY = "GITHUB_STEP_SUMMARY"


class FoundLine(msgspec.Struct, frozen=True, tag="found", tag_field="event"):
    """A line that --ndjson writes for a finding, with the command that replays the finding."""

    finding: Finding
    replay: str


class Ndjson:
    """Write one line per event. The first event empties the file; the last line contains the
    verdict."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: FileIO | None = None

    def __call__(self, event: Event) -> None:
        line = FoundLine(event.finding, event.replay) if isinstance(event, Found) else event
        with name_file_in_errors(self._path):
            if self._file is None and self._path.is_fifo():
                self._file = open(open_pipe(self._path), "wb", buffering=0)  # noqa: SIM115
            if self._file is None:
                self._path.write_bytes(b"")
                # Without a buffer: even if two gates write to the same file, every line stays
                # whole.
                self._file = self._path.open("ab", buffering=0)
            rest = memoryview(json_line(line) + b"\n")
            while rest:  # if the disk fills up, a part is written and the rest raises an error
                rest = rest[self._file.write(rest) :]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class ReportOptions(NamedTuple):
    """The files to write, named like the options, and what the console shows."""

    json: Path | None
    junit: Path | None
    sarif: Path | None
    ndjson: Path | None
    github: bool
    verbose: bool = True
    markdown: Path | None = None
    html: Path | None = None

    def files(self) -> dict[str, Path]:
        named = {
            "--json": self.json,
            "--junit": self.junit,
            "--sarif": self.sarif,
            "--ndjson": self.ndjson,
            "--markdown": self.markdown,
            "--html": self.html,
        }
        return {option: file for option, file in named.items() if file is not None}


Render = Callable[[Verdict, Mapping[str, Rule], Mapping[str, Found]], bytes | str]
# For each option, the function that renders its file from the verdict, the rules by id and the
# findings by scenario.
RENDERS: dict[str, Render] = {
    "--json": lambda verdict, _rules, _found: as_json(verdict),
    "--junit": junit,
    "--sarif": sarif,
    "--markdown": lambda verdict, _rules, _found: markdown(verdict),
}


class FileReport:
    """Writes a file once there is a verdict."""

    def __init__(self, path: Path, rules: Sequence[Rule], render: Render) -> None:
        self._path = path
        self._rules = {rule.id: rule for rule in rules}
        self._render = render
        self._found: dict[str, Found] = {}

    def __call__(self, event: Event) -> None:
        if isinstance(event, Found):
            self._found[event.finding.scenario] = event
        elif isinstance(event, Concluded):
            made = self._render(event.verdict, self._rules, self._found)
            data = made.encode("utf-8", "backslashreplace") if isinstance(made, str) else made
            write(self._path, data)


class FanOutReporter:
    """Pass every event to every reporter.

    If a reporter cannot write its file, drop it and keep its error in `failed`; the others
    continue.
    """

    def __init__(self, reporters: Sequence[Report]) -> None:
        self._reporters = list(reporters)
        self.failed: list[FileError] = []

    def __call__(self, event: Event) -> None:
        for reporter in tuple(self._reporters):
            try:
                reporter(event)
            except FileError as error:
                self._reporters.remove(reporter)
                self.failed.append(error)


def check_report_options(options: ReportOptions, inputs: Mapping[str, Path | None] = {}) -> None:
    """Raise InputError if a report cannot be written, or would replace one of the inputs."""
    for option, file in options.files().items():
        check_file(option, file)
    named = {option: file for option, file in inputs.items() if file is not None}
    check_different(named | options.files())
    for option, file in options.files().items():
        if file.is_file() and not OURS.match(_ends(file)):
            raise InputError(option, f"{file} was not written by schedproof; valid: another file")
    summary = _summary()
    if options.github and summary is not None:
        check_file(SUMMARY, summary)


def check_coverage_page(page: Path, options: ReportOptions) -> None:
    """Raise InputError if the coverage page cannot be written, or would replace a report or a file
    that schedproof did not write. Also refuse a link, because the user names only the page's
    folder."""
    check_different({"the coverage page": page, **options.files()})
    if page.is_symlink():
        problem = "is a link"
    elif page.exists() and not page.is_file():
        problem = "is not a regular file"
    elif page.is_file() and not os.access(page, os.R_OK | os.W_OK):
        problem = "cannot be read and written to"
    elif page.is_file() and not OURS.match(_ends(page)):
        problem = "was not written by schedproof"
    else:
        return
    raise InputError("--out", f"{page} {problem}; valid: another folder, or --no-coverage")


def _ends(file: Path) -> bytes:
    """Return the beginning and the end of a file. If schedproof wrote the file, one of them
    mentions schedproof."""
    with name_file_in_errors(file, "read"), file.open("rb") as opened:
        begin = opened.read(ENDS)
        opened.seek(max(file.stat().st_size - ENDS, len(begin)))
        return begin + opened.read()


def clear_reports(options: ReportOptions) -> None:
    """Remove the reports of an earlier gate. If the new gate is refused or killed, they could be
    mistaken for its reports."""
    for file in options.files().values():
        if file.is_file():
            with suppress(OSError):  # if the folder allows no change, the gate overwrites the file
                file.resolve().unlink()


@contextmanager
def reporters(
    console: Console,
    rules: Sequence[Rule],
    options: ReportOptions,
    printer: type[Terminal] = Terminal,
    page: Report | None = None,
) -> Iterator[FanOutReporter]:
    """Open the requested reporters. The console's comes last: printing fails if nobody reads the
    output, and the files should be written all the same."""
    with ExitStack() as open_reports:
        chosen: list[Report] = []
        if options.ndjson is not None:
            chosen.append(open_reports.enter_context(closing(Ndjson(options.ndjson))))
        chosen += [
            FileReport(file, rules, RENDERS[option])
            for option, file in options.files().items()
            if option in RENDERS
        ]
        if page is not None:
            chosen.append(page)
        # Before the console, so that GitHub does not interpret printed text as commands.
        if options.github:
            workspace = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd())
            github = GitHub(console, rules, _summary(), workspace)
            chosen.append(open_reports.enter_context(closing(github)))
        chosen.append(open_reports.enter_context(closing(printer(console, rules, options.verbose))))
        yield FanOutReporter(chosen)


def _summary() -> Path | None:
    name = os.environ.get(SUMMARY)
    return Path(name) if name else None
