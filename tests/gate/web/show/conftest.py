from typing import Any

import pytest

from schedproof.gate.web.show.page import page
from schedproof.gate.web.show.recording import RecordedRun

from ..base.browser import browser as chromium


@pytest.fixture(scope="module")
def browser():
    """One Chromium for the tests of a module; Playwright takes no second one in a process."""
    with chromium() as opened:
        yield opened


@pytest.fixture
def show(browser, tmp_path):
    """Opens the page of a run. No error may come up, and nothing is asked of a network."""
    errors: list[str] = []
    fetched: list[str] = []
    contexts = []

    def opened(
        run: RecordedRun, fragment: str = "", *, width: int = 1280, scheme: str = "light"
    ) -> Any:
        file = tmp_path / f"{run.name}.html"
        file.write_text(page(run), encoding="utf-8")
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True
        )
        contexts.append(context)
        tab = context.new_page()
        tab.set_default_timeout(60_000)
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
        tab.on("request", lambda request: fetched.append(request.url))
        tab.goto(f"{file.as_uri()}{fragment}")
        tab.wait_for_selector("html[data-ready]", state="attached")
        return tab

    yield opened
    for context in contexts:
        context.close()
    assert errors == []
    assert [url for url in fetched if not url.startswith((f"{tmp_path.as_uri()}/", "data:"))] == []
