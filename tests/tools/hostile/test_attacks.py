"""The other harnesses in small: commands, targets, kills, surroundings, pages and the server."""

import sys

import pytest

from schedproof.tests.gate.web.base.browser import browser
from schedproof.tools.hostile import (
    commands,
    installs,
    kills,
    pages,
    places,
    server,
    surroundings,
    targets,
)
from schedproof.tools.hostile.bad_target import MISDEEDS
from schedproof.tools.hostile.report import went_wrong


@pytest.mark.slow
def test_commands_that_read_what_is_spoiled_end_in_a_verdict_or_a_line():
    reports = commands.attacked(inputs=len(commands.COMMANDS), seed=7, jobs=1)
    assert [line for report in reports for line in report.wrong] == []
    assert {report.code for report in reports} > {0, 2}


HARD = (
    *("hangs and ignores signals", "floods stdout", "escape sequences on stderr"),
    *("starts a daemon and exits", "forks and continues", "eats memory"),
)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("misdeed", HARD)
def test_a_gate_of_a_bad_target_ends_and_leaves_nothing(misdeed):
    assert targets.attack([*MISDEEDS].index(misdeed)).wrong == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize(
    "work", ["gate of a target that hangs", pytest.param("campaign", marks=pytest.mark.nightly)]
)
def test_a_command_that_is_killed_leaves_nothing_and_goes_on(work):
    report = kills.attack((work, 2, 7))
    assert report.wrong == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_the_server_answers_whatever_it_is_asked(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["server", "--requests", "300", "--seed", "7"])
    assert server.main() == 0
    assert "No request went wrong." in capsys.readouterr().out


TRIED = (
    *(
        ("stdout closed", "rules"),
        ("all streams closed", "explore"),
        ("files of at most 4 KB", "explore"),
    ),
    *(("a full disk", "campaign"), ("a read-only folder", "diff --save"), ("no HOME", "doctor")),
    *(("LANG=C, no UTF-8", "show"), ("a folder name that is not UTF-8", "replay --trace")),
    *(("two commands at once", "corpus add"), ("stderr full", "gate that finds")),
)
LONG = {("a full disk", "campaign"), ("a read-only folder", "diff --save")}
DISKS = (3, 0, 11)  # seeds, which say how small it is: 64, 100 and 116 KB


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize(
    ("place", "work"),
    [pytest.param(*row, marks=pytest.mark.nightly if row in LONG else ()) for row in TRIED],
)
def test_where_something_is_missing_or_full_a_command_says_so_in_a_line(place, work):
    if not places.PLACES[place].is_available():
        pytest.skip("no user may mount a file system here")
    seeds = DISKS if place == "a full disk" else (0,)
    assert [line for seed in seeds for line in surroundings.attack((place, work, seed)).wrong] == []


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_installations_that_are_disturbed_leave_a_whole_release_or_none():
    reports = [installs.attack(seed) for seed in range(70_000, 70_004)]
    assert [line for report in reports for line in report.wrong] == []
    assert {ending for report in reports for ending in report.endings} > {"installed", "refused"}


@pytest.mark.parametrize("kind", pages.KINDS)
def test_ids_that_are_markup_or_commands_are_words(kind):
    assert [line for seed in range(5) for line in pages.attacked(kind, seed)] == []


def test_what_is_not_escaped_is_seen():
    harmless, harmful = (pages.Structure(f"<p>{text}</p>").found for text in ("a", "<b onx=1>"))
    assert harmless != harmful
    assert len({id_ for seed in range(50) for id_ in pages.names(seed)}) > 300


@pytest.mark.slow
def test_ids_that_are_scripts_do_not_run_in_a_browser():
    opened, wrong = pages.in_browser(range(7, 9))
    assert (opened, wrong) == (4, [])


@pytest.mark.slow
def test_a_script_that_runs_in_a_browser_is_seen(tmp_path):
    file = tmp_path / "page.html"
    file.write_text("<meta charset=utf-8><img src=x onerror=owned()>", encoding="utf-8")
    with browser() as client:
        assert "a script in an id ran" in pages.visit(client, file.as_uri(), tmp_path.as_uri())


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (0, "No request went wrong."),
        (1, "1 request went wrong."),
        (1200, "1,200 requests went wrong."),
    ],
)
def test_a_count_of_faults_is_a_sentence(number, sentence):
    assert went_wrong(number, "request") == sentence
