"""A browser for pages: what it logs, and where its requests go, is kept."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
ABSENT = "there is no chromium here: pages are not tried in a browser"


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium; the test is skipped, saying so, where it or Playwright is absent."""
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip(ABSENT)
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@contextmanager
def page_at(chromium: Any, address: str, width: int = 1280, scheme: str = "light") -> Iterator[Any]:
    """The page, which must log nothing and ask no other request."""
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    yield page
    assert said == []
    own = (address, "data:", "blob:")
    assert [url for url in asked if not url.startswith(own)] == []
    context.close()


def faults(page: Any) -> list[str]:
    """What axe finds wrong with the page as it stands."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    found = axe.Axe().run(page).response["violations"]
    return [f"{error['id']}: {[node['html'] for node in error['nodes']]}" for error in found]


def is_as_wide_as_its_window(page: Any) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))
