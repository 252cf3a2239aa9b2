"""Is a request id ever more than text in a page, a report or an export?

The ids contain markup, scripts, commands or control characters. The output must have the same
structure as for plain ids, and Chromium must not run a script in an id:

    make tool NAME=hostile.pages OPTIONS="--seeds 100 --browser 0"
"""

import io
import json
import random
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from rich.console import Console

from schedproof.gate.console.step_lines import one_line
from schedproof.gate.reports.github import GitHub
from schedproof.gate.reports.junit import junit
from schedproof.gate.reports.options import FileReport, Ndjson
from schedproof.gate.reports.sarif import sarif
from schedproof.gate.reports.terminal import Terminal
from schedproof.gate.web.show.page import page
from schedproof.gate.web.show.recording import record_run
from schedproof.gate.web.step.server import Server
from schedproof.spec.catalogue import select
from schedproof.tests.gate import reported
from schedproof.tests.gate.web.step.by_hand import by_hand

from .report import finish, parser

TOKEN = "0123456789abcdef"
IDS = 8
FRAGMENTS = (
    *("<script>owned()</script>", "</script>", "<img src=x onerror=owned()>", "</style>"),
    *('" onmouseover="owned()', "' autofocus onfocus='owned()", "<svg onload=owned()>", "</title>"),
    *("<!--", "-->", "]]>", "<![CDATA[", "&lt;script&gt;owned()", "&#x3c;", "&", "<", ">", '"'),
    *("javascript:owned()", "{{ owned() }}", "{% raw %}", "${owned()}", "`", "\\", "\\u003c", "'"),
    *("\u2028", "\u202e", "\ufeff", "\x00", "\x1b[31m", "\x1b]0;owned\x07", "\x9b", "\r", "\n"),
    *("\n::error::owned", "::set-output name=a::b", "##[error]owned", "%0A", "%0D%0A::warning::x"),
    *("::stop-commands::x", f"::{TOKEN[:-1]}::", "[red]", "[/]", "[link=x]", ":warning:", "|", ","),
    *("=1+1", "../../x", "C:\\x", "__proto__", "constructor", "toString", "%{x}", "<b>", "$x$"),
    *("é", "\U0001f4a5", "\ud7ff\ue000", "\uffff", "x" * 300, " ", "\t", "0", "-1", "null", "NaN"),
)


def names(seed: int) -> tuple[str, ...]:
    """Return different ids of one to four fragments each."""
    dice = random.Random(seed)
    different: dict[str, None] = {}
    while len(different) < IDS:
        different["".join(dice.choices(FRAGMENTS, k=dice.randint(1, 4)))] = None
    return tuple(different)


def plain() -> tuple[str, ...]:
    """Return the same number of ids without special characters."""
    return tuple(f"r{number}" for number in range(IDS))


class Structure(HTMLParser):
    """Collects the elements of a page with the names of their attributes, as a parser sees them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append(f"<{tag} {' '.join(sorted(name for name, _ in attributes))}>")

    def handle_endtag(self, tag: str) -> None:
        self.found.append(f"</{tag}>")

    def handle_comment(self, data: str) -> None:
        self.found.append("<!-- -->")

    def unknown_decl(self, data: str) -> None:
        self.found.append("<![ ]]>")


def _show(ids: Sequence[str]) -> Any:
    return Structure(shown(ids)).found


def shown(ids: Sequence[str]) -> str:
    """Return the page of a run that breaks a rule."""
    target = reported.Strangers()
    target.names = ids
    rules = select(reported.RULES, ["ALL-R03"])
    run = record_run(reported.scenario(ids), target, rules, name=ids[0])
    return page(run)


def _junit(ids: Sequence[str]) -> Any:
    text = _file(ids, lambda path: FileReport(path, reported.RULES, junit))
    return [(element.tag, sorted(element.attrib)) for element in ET.fromstring(text).iter()]


def _sarif(ids: Sequence[str]) -> Any:
    [run] = json.loads(_file(ids, lambda path: FileReport(path, reported.RULES, sarif)))["runs"]
    return [(result["ruleId"], result["level"], sorted(result)) for result in run["results"]]


def _ndjson(ids: Sequence[str]) -> Any:
    lines = _file(ids, Ndjson).split("\n")[:-1]
    return [sorted(json.loads(line)) for line in lines]


def _file(ids: Sequence[str], made: Callable[[Path], Any]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        _tell(made(path), ids)
        return path.read_bytes().decode()


def _github(ids: Sequence[str]) -> Any:
    lines = _print_reports(
        ids, lambda to: GitHub(to, reported.RULES, None, Path("/nowhere"), TOKEN)
    )
    heard = reported.heard(lines, TOKEN)
    return [line.partition(" ")[0] for line in heard]


def _terminal(ids: Sequence[str]) -> Any:
    lines = _print_reports(ids, lambda to: Terminal(to, reported.RULES, verbose=True))
    return len(lines), [line for line in lines if one_line(line) != line]


def _print_reports(ids: Sequence[str], made: Callable[[Console], Any]) -> list[str]:
    file = io.StringIO(newline="\n")
    _tell(made(Console(file=file, width=100_000, color_system=None)), ids)
    return file.getvalue().split("\n")


def _tell(reporter: Any, ids: Sequence[str]) -> None:
    for event in reported.events(ids):
        reporter(event)
    if hasattr(reporter, "close"):
        reporter.close()


KINDS: Mapping[str, Callable[[Sequence[str]], Any]] = {
    "page of `show`": _show,
    "JUnit": _junit,
    "SARIF": _sarif,
    "NDJSON": _ndjson,
    "GitHub annotations": _github,
    "terminal": _terminal,
}


@cache
def usual(kind: str) -> Any:
    """Return the structure of this kind of output for plain ids."""
    return KINDS[kind](plain())


def attacked(kind: str, seed: int) -> list[str]:
    """Return the faults of the output for the ids of this seed."""
    try:
        found = KINDS[kind](names(seed))
    except (ValueError, AssertionError, ET.ParseError) as error:
        return [f"{kind}, seed {seed}: cannot be parsed: {error!s:.200}"]
    if found != usual(kind):
        return [
            f"{kind}, seed {seed}: the structure differs from that with plain ids: "
            f"{names(seed)!r:.300}"
        ]
    return []


def in_browser(seeds: Sequence[int]) -> tuple[int, list[str]]:
    """Open pages of runs in Chromium. Return the number of pages, and the faults: scripts that
    ran, and anything else that went wrong."""
    from schedproof.tests.gate.web.base.browser import browser

    opened, wrong = 0, list[str]()
    with tempfile.TemporaryDirectory() as place, browser() as chromium:
        folder = Path(place)
        for seed in seeds:
            file = folder / f"{seed}.html"
            file.write_text(shown(names(seed)), encoding="utf-8")
            found = visit(chromium, file.as_uri(), f"{folder.as_uri()}/")
            server = Server(by_hand(), "", 0)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            server.run.load(reported.scenario(names(seed)))
            found += visit(chromium, server.address, server.address)
            server.shutdown()
            server.server_close()
            wrong += [f"Chromium, seed {seed}: {line}" for line in found]
            opened += 2
    return opened, wrong


def visit(browser: Any, address: str, own: str) -> list[str]:
    """Open a page and press some keys. Return the faults: a script that ran, an error, or a
    request."""
    messages: list[str] = []
    context = browser.new_context()
    context.add_init_script("window.owned = () => { window.was_owned = true; };")
    tab = context.new_page()

    def dismiss(dialog: Any) -> None:
        messages.append(f"dialog {dialog.message}")
        dialog.dismiss()

    tab.on("dialog", dismiss)
    tab.on("pageerror", lambda error: messages.append(f"error {error}"))
    tab.on("console", lambda line: messages.append(f"console {line.text}"))
    tab.on(
        "request",
        lambda fetched: (
            None
            if fetched.url.startswith((own, "data:", "blob:"))
            else messages.append(f"request {fetched.url}")
        ),
    )
    tab.goto(address)
    tab.wait_for_timeout(300)
    for key in ("End", "ArrowLeft", "Home", "ArrowRight", "Tab", "Tab", "Tab"):
        tab.keyboard.press(key)
    for place in ("table td", "svg text", "button"):
        if tab.locator(place).count():
            tab.locator(place).first.hover(force=True)
    if tab.evaluate("window.was_owned"):
        messages.append("a script in an id ran")
    context.close()
    return messages


def main() -> int:
    """Write and read every kind of output, and print a table. Return the number of faults."""
    options = parser(__doc__, seeds=3_000, browser=50).parse_args()
    began, wrong, counts = time.monotonic(), list[str](), Counter[str]()
    first = options.seed * 1_000_000
    for seed in range(first, first + options.seeds):
        for kind in KINDS:
            found = attacked(kind, seed)
            wrong += found
            counts[kind] += len(found)
    lines = ["| what | written and read | went wrong |", "|---|---|---|"]
    lines += [f"| {kind} | {options.seeds:,} | {counts[kind]} |" for kind in KINDS]
    if options.browser:
        opened, found = in_browser(range(first, first + options.browser))
        lines.append(f"| pages of `show` and `step` in Chromium | {opened} | {len(found)} |")
        wrong += found
    spent = f"seed {options.seed}, {time.monotonic() - began:.0f} s"
    lines += ["", f"Each report has {IDS} ids, composed from {len(FRAGMENTS)} fragments ({spent})."]
    return finish("pages", lines, wrong, write=options.write)


if __name__ == "__main__":
    sys.exit(main())
