"""The reports that a user asks for: checked before the work, and made by one gate."""

import io
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from schedproof.gate.files.disk import FileError
from schedproof.gate.judging.verdict import Event, Notice
from schedproof.gate.reports.options import (
    FanOutReporter,
    FileReport,
    ReportOptions,
    check_coverage_page,
    check_report_options,
    clear_reports,
    reporters,
)
from schedproof.gate.web.gate_page import gate_page
from schedproof.model.errors import InputError

from .. import reported

FILES = ("json", "junit", "sarif", "ndjson", "markdown", "html")
SCENARIO = '{"format": "schedproof/scenario@1"}'
NOTHING = ReportOptions(None, None, None, None, github=False)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    return tmp_path


def tell(console, options):
    with reporters(console, reported.RULES, options) as together:
        for event in reported.events():
            together(event)
    assert together.failed == []
    return reported.printed(console).splitlines()


def test_every_file_is_written_from_the_same_events(folder, console, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    files = ("v.json", "j.xml", "s.sarif", "e.ndjson")
    options = ReportOptions(*map(Path, files), github=True)
    check_report_options(options)
    lines = tell(console(), options)
    assert {path.name for path in folder.iterdir()} == {*files, "summary.md"}
    verdict = json.loads((folder / "v.json").read_bytes())
    last = json.loads((folder / "e.ndjson").read_bytes().splitlines()[-1])
    assert last["verdict"] == verdict
    sarif = json.loads((folder / "s.sarif").read_bytes())
    found = [finding["rule"] for finding in verdict["findings"]]
    assert [result["ruleId"] for result in sarif["runs"][0]["results"]] == found
    cases = ET.parse(folder / "j.xml").getroot().findall("*/testcase")
    assert len(cases) == len(verdict["rules"])
    assert lines[0].startswith("::stop-commands::")
    assert lines[-1] == lines[0].replace("stop-commands::", "") + "::"


def test_nothing_is_written_that_nobody_asked_for(folder, console):
    check_report_options(NOTHING)
    assert not any("::stop-commands" in line for line in tell(console(), NOTHING))
    assert [*folder.iterdir()] == []


@pytest.mark.parametrize("option", ["json", "junit", "sarif", "ndjson"])
def test_a_file_that_cannot_be_is_refused_before_the_work(option, folder):
    with pytest.raises(InputError, match=f"--{option}: no/x: the folder no does not exist"):
        check_report_options(NOTHING._replace(**{option: Path("no/x")}))


def test_a_file_that_schedproof_did_not_write_is_not_replaced(folder):
    for text in (
        "[tool.schedproof]\n",
        "import schedproof\n",
        '{"name": "app"}',
        "<html></html>",
        SCENARIO,
        '{"event": "engine started", "logger": "my_engine"}\n',
        '{"event":"began","engine":"mine"}\n',
        "## schedproof: what we decided\n\nTo use it.\n",
        '{\n  "lockfileVersion": 1,\n  "packages": [{"name": "schedproof"}]\n}\n',
        '{"notes": [{"format": "schedproof/verdict@1"}]}\n',
        '<testsuites><testsuite name="mine" /><testsuite name="schedproof" /></testsuites>',
        '<!doctype html><body><meta name="generator" content="schedproof"></body>',
    ):
        Path("mine").write_text(text, encoding="utf-8")
        for option in FILES:
            with pytest.raises(InputError, match=f"--{option}: mine was not written by schedproof"):
                check_report_options(NOTHING._replace(**{option: Path("mine")}))
        assert Path("mine").read_text(encoding="utf-8") == text


def test_a_report_merged_with_another_tool_is_not_replaced(console):
    options = NOTHING._replace(sarif=Path("s.sarif"))
    tell(console(), options)
    check_report_options(options)
    merged = json.loads(Path("s.sarif").read_bytes())
    merged["runs"].append({"tool": {"driver": {"name": "ruff"}}})
    Path("s.sarif").write_text(json.dumps(merged, indent=2), encoding="utf-8")
    with pytest.raises(InputError, match=r"--sarif: s\.sarif was not written by schedproof"):
        check_report_options(options)


def test_reports_replace_earlier_reports_and_empty_files(folder, console):
    options = NOTHING._replace(**{option: Path(option) for option in FILES})
    for option in FILES:
        Path(option).touch()
    for _ in range(2):
        check_report_options(options)
        page = FileReport(Path("html"), reported.RULES, gate_page)
        with reporters(console(), reported.RULES, options, page=page) as together:
            for event in reported.events():
                together(event)
        assert together.failed == []
        assert all(Path(option).stat().st_size for option in FILES)


def test_a_gate_that_gives_no_verdict_leaves_none_of_an_earlier_gate(folder):
    options = NOTHING._replace(json=Path("v.json"), junit=Path("/dev/null"), sarif=Path("s.sarif"))
    Path("v.json").touch()
    clear_reports(options)
    assert [*folder.iterdir()] == []


def test_a_summary_that_cannot_be_is_refused_if_it_is_for_github(folder, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(folder))
    check_report_options(NOTHING)
    with pytest.raises(InputError, match=r"GITHUB_STEP_SUMMARY: .* is a folder; valid: a file"):
        check_report_options(NOTHING._replace(github=True))


def test_an_empty_summary_is_none(console, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "")
    options = NOTHING._replace(github=True)
    check_report_options(options)
    assert "GITHUB_STEP_SUMMARY is not set: annotations only" in tell(console(), options)


def test_who_reads_no_longer_costs_no_file(folder, console):
    class Gone(io.StringIO):
        def write(self, text):
            raise SystemExit(3)  # what the console makes of a broken pipe

    made = console()
    made.file = Gone()
    options = NOTHING._replace(json=Path("v.json"), junit=Path("j.xml"))
    judged = reported.events()[-1]
    with pytest.raises(SystemExit), reporters(made, reported.RULES, options) as together:
        together(judged)
    assert {path.name for path in folder.iterdir()} == {"v.json", "j.xml"}


def test_a_reporter_that_cannot_write_is_left_out_and_named():
    heard: list[tuple[str, Event]] = []

    def full(event):
        heard.append(("full", event))
        raise FileError("report.xml: cannot be written to (No space left on device)")

    fan_out = FanOutReporter([full, lambda event: heard.append(("console", event))])
    first, second = Notice("first"), Notice("second")
    for event in (first, second):
        fan_out(event)
    assert heard == [("full", first), ("console", first), ("console", second)]
    assert [str(error) for error in fan_out.failed] == [
        "report.xml: cannot be written to (No space left on device)"
    ]


def test_the_page_of_coverage_replaces_only_a_page_of_schedproof(folder):
    page = Path("coverage.html")
    check_coverage_page(page, NOTHING)
    page.write_text(
        '<!doctype html>\n<html lang="en">\n<head>\n<meta name="generator" content="schedproof">'
    )
    check_coverage_page(page, NOTHING)
    page.write_text("my own page")
    with pytest.raises(InputError, match=r"--out: coverage\.html was not written by schedproof; "):
        check_coverage_page(page, NOTHING)
    page.unlink()
    page.mkdir()
    with pytest.raises(InputError, match=r"--out: coverage\.html is not a regular file; "):
        check_coverage_page(page, NOTHING)
    page.rmdir()
    page.symlink_to("elsewhere.html")
    with pytest.raises(InputError, match=r"is a link; valid: another folder, or --no-coverage"):
        check_coverage_page(page, NOTHING)


@pytest.mark.parametrize("option", FILES)
def test_a_report_has_another_file_than_the_page_of_coverage(folder, option):
    page = Path("coverage.html")
    options = NOTHING._replace(**{option: folder / page})
    with pytest.raises(InputError, match=f"--{option}: .* is also the file of the coverage page"):
        check_coverage_page(page, options)
