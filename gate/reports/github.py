"""Report to GitHub: an annotation for each fault, and the verdict as a step summary."""

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from rich.console import Console

from ...spec.catalogue import Rule
from ..console.output import one_line, say
from ..files.disk import name_file_in_errors, open_pipe
from ..judging.verdict import Began, Concluded, Event, Verdict
from .markdown import markdown
from .outcome import breaks, broken_off, out_of_date


class GitHub:
    """Print annotations on a console, and append the verdict to the file `summary`.

    The target's output could contain workflow commands, so GitHub's runner is told to ignore
    commands between annotations. The runner accepts commands again only after `token`, so `token`
    must be hard to guess. Paths are shown relative to `workspace`.
    """

    def __init__(
        self,
        console: Console,
        rules: Sequence[Rule],
        summary: Path | None,
        workspace: Path,
        token: str | None = None,
    ) -> None:
        self._console = console
        self._rules = {rule.id: rule for rule in rules}
        self._summary = summary
        self._workspace = workspace
        self._token = token or secrets.token_hex(16)
        self._silent = False

    def __call__(self, event: Event) -> None:
        if isinstance(event, Began):
            if self._summary is None:
                say(self._console, "GITHUB_STEP_SUMMARY is not set: annotations only")
            self._be_silent()
        elif isinstance(event, Concluded):
            self._judged(event.verdict)

    def close(self) -> None:
        """Make the runner accept workflow commands again."""
        if self._silent:
            self._print(f"::{self._token}::")
            self._silent = False

    def _judged(self, verdict: Verdict) -> None:
        for fault in verdict.faults:
            level = "warning" if fault.divergence else "error"
            title = f"{fault.rule} {self._rules[fault.rule].title}"
            lines = [f"step {fault.step}: {fault.message}", fault.means, f"replay: {fault.replay}"]
            if fault.follows:
                lines.insert(2, f"{', '.join(fault.follows)} {breaks(fault.follows)} as well")
            if fault.divergence:
                lines.insert(1, f"known divergence of {fault.divergence}")
            self._annotate(level, title, lines, self._path(fault.scenario))
        for what, reason in out_of_date(verdict).items():
            self._annotate("error", what, [reason])
        why = broken_off(verdict)
        if why is not None:
            self._annotate("error", "inconclusive", [why])
        if self._summary is not None:
            with name_file_in_errors(self._summary), _appending(self._summary) as file:
                file.write(markdown(verdict) + "\n")

    def _annotate(
        self, level: str, title: str, lines: Sequence[str], file: str | None = None
    ) -> None:
        place = f"file={_property(file)},line=1," if file is not None else ""
        message = "%0A".join(_data(one_line(line)) for line in lines)
        self.close()
        self._print(f"::{level} {place}title={_property(title)}::{message}")
        self._be_silent()

    def _be_silent(self) -> None:
        self._silent = True
        self._print(f"::stop-commands::{self._token}")

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False)

    def _path(self, scenario: str) -> str:
        whole = Path(os.path.abspath(scenario))
        if whole.is_relative_to(self._workspace):
            return whole.relative_to(self._workspace).as_posix()
        return scenario


def _appending(path: Path) -> TextIO:
    """Open a file to append to. Raise FileError if it is a pipe that nobody reads."""
    return open(open_pipe(path) if path.is_fifo() else path, "a", encoding="utf-8")


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
