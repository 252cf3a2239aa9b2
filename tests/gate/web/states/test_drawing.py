"""`schedproof explore --html`: the page, the verdict beside it, and what it does not draw."""

import json
import re
from pathlib import Path

import pytest

from schedproof.gate.web.states import data as drawing

SMALL = ["--revision", "documented", "--scope", "lengths", "--requests", "2", "--limits", "6"]
PAGE = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)


def test_the_page_is_one_file_and_its_run_replays_to_the_same_break(run):
    result = run("explore", *SMALL, "--rule", "SPY-R07,SPY-R09", "--html", "states.html")
    assert (result.code, result.err) == (1, ""), result
    assert result.out.endswith("page: states.html\n")
    assert "BROKEN        SPY-R07" in result.out
    page = Path("states.html").read_text(encoding="utf-8")
    assert set(re.findall(r"(?:src|href)=[\"']?([^\"' >]*)", page)) == {"data:,"}
    assert "://" not in page.replace("http://www.w3.org/2000/svg", "")
    [found] = PAGE.findall(page)
    data = json.loads(found)
    assert f"{len(data['states'])} states, {len(data['moves']):,} transitions" in result.out
    [broken] = [one for one in data["rules"] if one["verdict"] == "broken"]
    Path(broken["file"]).write_text(broken["scenario"], encoding="utf-8")
    again = run(*broken["command"].split()[1:])
    assert again.code == 1
    assert "BROKEN SPY-R07" in again.out
    assert (Path("schedproof-out") / broken["file"]).read_text() == broken["scenario"]


def test_too_many_states_are_cut_with_a_line_and_no_verdict(run, monkeypatch):
    monkeypatch.setattr(drawing, "MAX_STATES", 60)
    result = run("explore", *SMALL, "--rule", "SPY-R09", "--html", "states.html")
    assert result.code == 3, result
    cut = "cut: the first 60 states are drawn, at least "
    assert f"left out, {cut}" in result.out
    assert cut in Path("states.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--scope", "lengths"], "--html: draws one limit, and scope lengths has 35; valid: with"),
        (["--limits", "6"], "--html: draws one scope, not "),
        ([*SMALL, "--order", "depth"], "--html: with --order depth; valid: with --order breadth"),
        ([*SMALL, "--checkpoint", "later"], "--html: with --checkpoint; valid: without"),
    ],
)
def test_what_cannot_be_drawn_is_one_line_and_exit_2(run, monkeypatch, words, message):
    monkeypatch.setattr(drawing, "drawn", lambda *_: pytest.fail("it explores"))
    result = run("explore", *words, "--html", "states.html")
    assert (result.code, result.out) == (2, ""), result
    assert result.err.startswith(f"schedproof: {message}")
    assert result.err.count("\n") == 1
    assert not Path("states.html").exists()


def test_a_file_that_cannot_be_written_is_noticed_before(run):
    result = run("explore", *SMALL, "--html", "nowhere/states.html")
    assert (result.code, result.out) == (2, "")
    assert "--html: nowhere/states.html: the folder nowhere does not exist" in result.err
