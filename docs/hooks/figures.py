"""Replaces <!-- figure: FILE | TARGET | STEP | WHAT IT SHOWS --> by a figure of a run.

With `STEP RULE` instead of STEP, only that rule judges the run, which continues until the rule
breaks.

FILE is a scenario in docs/figures, or a path from the root of the repository. TARGET is `model`, or
`model:` with the name of a volumetric formula. The figure is a page in a frame, as `schedproof
show` writes it, and opens at STEP.
"""

import re
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

from schedproof.gate.files.scenario_file import read_scenario
from schedproof.gate.targets.factory import opened
from schedproof.gate.targets.target_spec import parse_target
from schedproof.gate.web.show.page import page as page_of
from schedproof.gate.web.show.recording import record_run
from schedproof.spec.catalogue import load, select

ROOT = Path(__file__).resolve().parents[2]
MARKER = re.compile(r"<!-- figure: (\S+) \| (\S+) \| (\d+) ?([A-Z0-9-]*) \| (.+?) -->", re.DOTALL)


class Figure(NamedTuple):
    """A scenario, its target, the step at which it opens, the only rule if there is one, and the
    caption."""

    file: str
    target: str
    step: int
    rule: str
    caption: str

    @property
    def name(self) -> str:
        """Return the name of its files in the site."""
        release = self.target.partition(":")[2]
        rule = f"-{self.rule.lower()}" if self.rule else ""
        return f"{Path(self.file).stem}{'-on-' * bool(release)}{release}{rule}"

    @property
    def path(self) -> Path:
        """Return the path of the scenario."""
        return ROOT / self.file if "/" in self.file else ROOT / "docs" / "figures" / self.file


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Add a page and a scenario file for each figure in the documentation."""
    figures = {
        figure.name: figure
        for file in files.documentation_pages()
        for figure in figures_of(file.content_string)
    }
    for name, figure in figures.items():
        text = figure.path.read_text(encoding="utf-8")
        files.append(File.generated(config, f"runs/{name}.html", content=drawn(figure)))
        files.append(File.generated(config, f"runs/{name}.json", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Put each figure into a frame, with a link to it and to its scenario."""

    def framed(found: re.Match[str]) -> str:
        figure = _figure(found)
        url = get_relative_url(f"runs/{figure.name}.html", page.url)
        title = escape(figure.caption.partition(". ")[0].rstrip("."))
        return (
            '<figure class="figure" markdown="1">\n'
            f'<iframe src="{url}#step={figure.step}" title="{title}" loading="lazy"></iframe>\n'
            f'<figcaption markdown="1">{figure.caption} [By itself]({url}), its '
            f"[scenario]({url.removesuffix('html')}json).</figcaption>\n</figure>"
        )

    return MARKER.sub(framed, markdown)


def figures_of(markdown: str) -> list[Figure]:
    """Return the figures of a page."""
    return [_figure(found) for found in MARKER.finditer(markdown)]


def drawn(figure: Figure) -> str:
    """Return the page of a figure."""
    scenario = read_scenario(figure.path)
    with opened(parse_target(figure.target), offline=True) as target:
        rules = select(load(scenario.system), [figure.rule]) if figure.rule else None
        return page_of(record_run(scenario, target.target, rules))


def _figure(found: re.Match[str]) -> Figure:
    return Figure(found[1], found[2], int(found[3]), found[4], " ".join(found[5].split()))
