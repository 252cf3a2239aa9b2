"""The command line of the benchmarks: tables, the file, missing figures and wrong options."""

import json
from pathlib import Path

import pytest

from schedproof.tools.benchmarks import figures
from schedproof.tools.benchmarks.figure import FigurePlan, NotMeasured, Row

ROWS = (
    Row(what="ours", value=0.5, unit="s", ratio=1.0, to="ours", note="as it is"),
    Row(what="theirs [old]", value=20.0, unit="s", at_least=True, ratio=40.0, ratio_at_least=True),
    Row(what="a bug", value=1.0, unit="s", is_detail=True),
)


def plan(name, rows):
    return FigurePlan(name, f"Title of {name}", "about it", rows)


def works(quick):
    yield from ROWS


def fails(quick):
    yield ROWS[0]
    raise ValueError("no such thing\nand more")


def excused(quick):
    raise NotMeasured("needs schedproof[fast]", excused=True)


def interrupted(quick):
    yield ROWS[0]
    raise KeyboardInterrupt


def empty(quick):
    yield Row(what="nothing", value=None, unit="s", note="not measured: it is away")


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    """An empty working folder, and a terminal of 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def plans(monkeypatch):
    """These figures in the place of the real ones."""

    def make(**rows):
        made = tuple(plan(name, rows) for name, rows in rows.items())
        monkeypatch.setattr(figures, "PLANS", made)

    return make


def test_the_table_has_what_the_file_has(run, plans):
    plans(first=works, second=works)
    result = run("--json", "f.json")
    assert (result.code, result.err) == (0, "")
    assert "Title of first: about it" in result.out
    assert "theirs [old] > 20.0 s    > 40.0" in result.out
    assert "a bug" not in result.out
    read = json.loads(Path("f.json").read_bytes())
    assert (read["format"], read["quick"]) == ("schedproof/bench@1", False)
    assert [figure["name"] for figure in read["figures"]] == ["first", "second"]
    assert [row["what"] for row in read["figures"][0]["rows"]] == [row.what for row in ROWS]
    assert read["machine"]["cores"] >= 1
    assert {"schedproof", "python", "hypothesis", "z3-solver"} <= read["machine"]["versions"].keys()


def test_only_names_figures_and_shows_their_details(run, plans):
    plans(first=works, second=works, third=works)
    result = run("--only", "third,first")
    assert result.code == 0
    assert result.out.index("Title of first") < result.out.index("Title of third")
    assert "Title of second" not in result.out
    assert "a bug" in result.out


@pytest.mark.parametrize("words", [[], ["--quick"]])
def test_a_figure_that_fails_is_named_and_the_others_go_on(run, plans, words):
    plans(bad=fails, away=empty, good=works)
    result = run(*words)
    assert result.code == 1
    assert result.err.splitlines() == [
        "schedproof: figure bad is missing: ValueError: no such thing",
        "schedproof: figure away is missing: not measured: it is away",
    ]
    assert "Title of good" in result.out


def test_what_is_optional_and_not_installed_is_said_and_no_failure(run, plans):
    plans(fast=excused, good=works)
    result = run("--quick")
    assert (result.code, result.err) == (0, "")
    assert "not measured: needs schedproof[fast]" in result.out


def test_ctrl_c_keeps_the_figures_until_then(run, plans):
    plans(good=works, late=interrupted, never=works)
    result = run("--json", "f.json")
    assert result.code == 3
    assert result.err == "schedproof: interrupted: these are the figures so far\n"
    read = json.loads(Path("f.json").read_bytes())
    assert [figure["name"] for figure in read["figures"]] == ["good"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "speed"], "--only: 'speed'; valid: models, lanes, explorers, "),
        (["--only", ","], "--only: ',' names no figure"),
        (["--json", "no/f.json"], "--json: no/f.json: the folder no does not exist"),
    ],
)
def test_wrong_options_are_one_line(run, words, message):
    run(*words).refused(message)
