"""GitHub: annotations that no request but the gate can write, and the step summary."""

import re
from pathlib import Path

import pytest

from schedproof.gate.console.exit_codes import CONFORMS, INCONCLUSIVE
from schedproof.gate.files.scenario_file import FileError
from schedproof.gate.reports.github import GitHub
from schedproof.gate.reports.terminal import Terminal

from .. import reported

TOKEN = "0123456789abcdef"


def annotated(console, summary, **changes):
    reporter = GitHub(console, reported.RULES, summary, Path("/nowhere"), TOKEN)
    for event in reported.events(**changes):
        reporter(event)
    reporter.close()
    return reported.printed(console).splitlines()


def test_each_finding_is_annotated(console, tmp_path, snapshot):
    assert annotated(console(), tmp_path / "summary.md") == snapshot


def test_the_summary_is_appended_to_what_is_there(console, tmp_path, snapshot):
    summary = tmp_path / "summary.md"
    summary.write_text("of another step\n", encoding="utf-8")
    annotated(console(), summary)
    text = summary.read_text(encoding="utf-8")
    assert text.startswith("of another step\n## schedproof")
    assert text == snapshot


def test_hostile_words_are_no_commands(console):
    made = console()
    reporters = [
        GitHub(made, reported.RULES, None, Path.cwd(), TOKEN),
        Terminal(made, reported.RULES),
    ]
    for event in reported.events():
        for reporter in reporters:
            reporter(event)
    for reporter in reporters:
        reporter.close()
    commands = reported.heard(reported.printed(made).splitlines(), TOKEN)
    assert [line.partition(" ")[0] for line in commands] == ["::error", "::warning"]
    for line in commands:
        properties, _, message = line[2:].partition("::")
        assert properties.count("=") == 3
        assert "\x1b" not in message


def test_each_gate_has_a_token_of_its_own(console):
    tokens = set()
    for _ in range(2):
        made = console()
        with_token = GitHub(made, reported.RULES, None, Path.cwd())
        with_token(reported.events()[0])
        tokens |= set(re.findall("::stop-commands::(.{16,})", reported.printed(made)))
    assert len(tokens) == 2


def test_without_a_summary_that_is_said_once(console):
    lines = annotated(console(), None)
    assert lines.count("GITHUB_STEP_SUMMARY is not set: annotations only") == 1


def test_a_summary_that_cannot_be_written_is_one_line(console, tmp_path):
    with pytest.raises(FileError, match=r"cannot be written to \(Is a directory\)"):
        annotated(console(), tmp_path)


def test_a_file_is_named_from_the_workspace(console, tmp_path, monkeypatch):
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    made = console()
    reporter = GitHub(made, reported.RULES, None, tmp_path, TOKEN)
    reporter(reported.found("out/a,b.json"))
    reporter.close()
    assert "::error file=project/out/a%2Cb.json,line=1," in reported.printed(made)


@pytest.mark.parametrize(
    ("changes", "commands"),
    [
        ({"exit_code": CONFORMS}, []),
        ({"fault": "it left: 5%\n"}, ["::error title=inconclusive::it left: 5%25 "]),
    ],
)
def test_a_gate_without_findings_says_only_why_it_says_nothing(
    changes, commands, console, tmp_path
):
    made = console()
    reporter = GitHub(made, reported.RULES, tmp_path / "summary.md", Path.cwd(), TOKEN)
    values = {"findings": (), "rules": (), "exit_code": INCONCLUSIVE} | changes
    began, *_, judged = reported.events(**values)
    for event in (began, judged):
        reporter(event)
    reporter.close()
    assert reported.heard(reported.printed(made).splitlines(), TOKEN) == commands
    assert "0 findings" in (tmp_path / "summary.md").read_text(encoding="utf-8")
