"""`schedproof gate --open`: the first finding as a page, in the user's browser."""

import shlex
import subprocess
import sys
import webbrowser
from pathlib import Path

from rich.console import Console

from ..console import output
from ..console.exit_codes import BROKEN
from ..judging.context import GateOptions
from ..judging.verdict import Verdict


def open_first(console: Console, verdict: Verdict, asked: GateOptions) -> None:
    """Draw the first finding beside its scenario, and open the page, if there is a finding."""
    if not verdict.findings:
        return
    first = verdict.findings[0]
    page = Path(first.scenario).with_suffix(".html")
    options = shlex.split(asked.replay_options_of([first.rule]))
    words = [sys.executable, "-m", "schedproof", "show", first.scenario, "-o", str(page), *options]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    if ran.returncode != BROKEN:
        output.fail(f"--open: {ran.stderr.strip() or 'the rule does not break again'}")
        return
    output.say(console, f"{page}: {first.rule}")
    webbrowser.open(page.resolve().as_uri())
