"""Which reports a user asked of a gate, and the reporters that make them."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from ...spec.catalogue import Rule
from ..console.option_checks import check_different, check_file
from ..judging.events import Report
from .fan_out import Together
from .github import GitHub
from .junit import JUnit
from .ndjson import Ndjson
from .sarif import Sarif
from .terminal import Terminal
from .verdict_file import VerdictFile

SUMMARY = "GITHUB_STEP_SUMMARY"


class ReportOptions(NamedTuple):
    """The files of the options of the same names, whether this is for GitHub, and whether a green
    gate lists every rule."""

    json: Path | None
    junit: Path | None
    sarif: Path | None
    ndjson: Path | None
    github: bool
    verbose: bool = True

    def files(self) -> dict[str, Path]:
        """The files that are written, by option."""
        named = {
            "--json": self.json,
            "--junit": self.junit,
            "--sarif": self.sarif,
            "--ndjson": self.ndjson,
        }
        return {option: file for option, file in named.items() if file is not None}


def check_report_options(asked: ReportOptions) -> None:
    """Raise InputError, before the work, where a report has nowhere to go."""
    for option, file in asked.files().items():
        check_file(option, file)
    check_different(asked.files())
    summary = _summary()
    if asked.github and summary is not None:
        check_file(SUMMARY, summary)


@contextmanager
def reporters(console: Console, rules: Sequence[Rule], asked: ReportOptions) -> Iterator[Together]:
    """All that was asked for, and the console; files first, since there may be no reader of the
    console."""
    with ExitStack() as open_reports:
        chosen: list[Report] = []
        if asked.ndjson is not None:
            chosen.append(open_reports.enter_context(closing(Ndjson(asked.ndjson))))
        if asked.json is not None:
            chosen.append(VerdictFile(asked.json))
        if asked.junit is not None:
            chosen.append(JUnit(asked.junit, rules))
        if asked.sarif is not None:
            chosen.append(Sarif(asked.sarif, rules))
        if asked.github:  # before the console: what is printed there must not be taken for commands
            workspace = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd())
            github = GitHub(console, rules, _summary(), workspace)
            chosen.append(open_reports.enter_context(closing(github)))
        chosen.append(open_reports.enter_context(closing(Terminal(console, rules, asked.verbose))))
        yield Together(chosen)


def _summary() -> Path | None:
    name = os.environ.get(SUMMARY)
    return Path(name) if name else None
