"""GitHub: annotations that no request but the gate can write, and the step summary."""

import json
import os
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from schedproof.gate.console import CONFORMS, INCONCLUSIVE
from schedproof.gate.files import disk
from schedproof.gate.files.scenario_file import FileError
from schedproof.gate.judging.verdict import Began, Concluded, Notice, Progress
from schedproof.gate.reports.github import GitHub
from schedproof.gate.reports.options import FoundLine, Ndjson
from schedproof.gate.reports.terminal import Pace, Terminal

from .. import reported

TOKEN = "0123456789abcdef"


def annotated(console, summary, **changes):
    reporter = GitHub(console, reported.RULES, summary, Path("/nowhere"), TOKEN)
    for event in reported.events(**changes):
        reporter(event)
    reporter.close()
    return reported.printed(console).splitlines()


def test_each_fault_is_annotated(console, tmp_path, snapshot):
    assert annotated(console(), tmp_path / "summary.md") == snapshot


def test_the_summary_is_appended_to_what_is_there(console, tmp_path, snapshot):
    summary = tmp_path / "summary.md"
    summary.write_text("of another step\n", encoding="utf-8")
    annotated(console(), summary)
    text = summary.read_text(encoding="utf-8")
    assert text.startswith("of another step\n## schedproof")
    assert text == snapshot


def test_a_summary_that_is_a_pipe_without_reader_is_an_error(console, tmp_path, monkeypatch):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    monkeypatch.setattr(disk, "READER_LIMIT", 0.1)
    with pytest.raises(FileError, match="nobody reads this pipe"):
        annotated(console(), pipe)


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
    reporter(Concluded(reported.verdict(findings=(reported.found("out/a,b.json").finding,))))
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
    assert "0 faults" in (tmp_path / "summary.md").read_text(encoding="utf-8")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "events.ndjson"


def lines(path, events):
    with closing(Ndjson(path)) as reporter:
        for event in events:
            reporter(event)
            yield path.read_bytes().splitlines(keepends=True)


def test_a_named_pipe_gets_every_line_and_blocks_nobody(tmp_path):
    pipe = tmp_path / "events"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with closing(Ndjson(pipe)) as reporter:
        for event in reported.events()[:2]:
            reporter(event)
        assert os.read(reader, 10**6).count(b"\n") == 2
    os.close(reader)


def test_a_gate_that_found_something(file, snapshot):
    *_, last = lines(file, reported.events())
    assert b"".join(last).decode() == snapshot


def test_every_event_is_a_whole_line_at_once(file):
    for number, read in enumerate(lines(file, reported.events()), start=1):
        assert len(read) == number
        assert all(line.endswith(b"\n") for line in read)
        json.loads(read[-1])


def test_the_lines_can_be_read_back(file):
    *_, last = lines(file, reported.events())
    union = Began | Notice | Progress | FoundLine | Concluded
    read = [msgspec.json.decode(line, type=union) for line in last]  # type: ignore[arg-type]
    assert [type(command) for command in read] == [
        *(Began, Notice, Progress, Progress, Progress, FoundLine, FoundLine, Concluded)
    ]
    assert read[-1] == reported.events()[-1]


def test_a_finding_has_its_file_its_message_and_its_command(file):
    *_, last = lines(file, [reported.found("out/one.json")])
    line = json.loads(last[0])
    assert line["finding"]["scenario"] == "out/one.json"
    assert "../../x" in line["finding"]["message"]
    assert line["replay"].startswith("schedproof replay out/one.json")


def test_the_file_of_an_earlier_gate_begins_anew(file):
    file.write_text("old\n", encoding="utf-8")
    *_, last = lines(file, [Notice("new")])
    assert last == [b'{"event":"notice","text":"new"}\n']


def test_two_gates_that_write_to_one_file_mix_whole_lines(file):
    with closing(Ndjson(file)) as item, closing(Ndjson(file)) as two:
        for number in range(9):
            item(Notice("one" * number))
            two(Notice("two"))
    assert all(json.loads(line) for line in file.read_bytes().splitlines())


def test_half_a_character_is_no_reason_to_lose_the_line(file):
    *_, last = lines(file, [Notice("a\udc80b"), Notice("c")])
    assert last[0] == b'{"event":"notice","text":"a\\\\udc80b"}\n'


def test_a_place_that_cannot_be_written_to_is_one_line(tmp_path):
    with (
        closing(Ndjson(tmp_path)) as reporter,
        pytest.raises(FileError, match=r"cannot be written to \(Is a directory\)"),
    ):
        reporter(Notice("lost"))


def test_a_line_of_which_only_a_part_can_be_written_is_an_error(tmp_path):
    program = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from schedproof.gate.judging.verdict import Notice\n"
        "from schedproof.gate.reports.options import Ndjson\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "Ndjson(Path('e.ndjson'))(Notice('x' * 200))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "FileError: e.ndjson: cannot be written to (File too large)" in done.stderr


def words(*reported):
    """What is said at these seconds."""
    now = 0.0
    pace = Pace(lambda: now)
    said = []
    for now, event in reported:  # noqa: B007 (the clock reads it)
        said.append(pace.words(event))
    return said


def small(runs, steps=0, of=400):
    return Progress("hypothesis, small", runs, of, steps)


def test_a_rate_is_told_once_it_says_something():
    assert words((5.0, small(0)), (5.5, small(10, 90)), (7.0, small(100, 900))) == [
        "hypothesis, small: 0/400, 0 steps",
        "hypothesis, small: 10/400, 90 steps",
        "hypothesis, small: 100/400, 6 s left, 50 runs/s, 900 steps",
    ]


def test_each_engine_has_its_own_rate():
    tight = Progress("hypothesis, tight", 0, 400, 0)
    assert words((0.0, small(0)), (2.0, small(50)), (3.0, tight))[-1] == (
        "hypothesis, tight: 0/400, 0 steps"
    )


def test_shrinking_has_no_end_that_could_be_told():
    shrinking = Progress("hypothesis, small", 9, 400, 80, shrinking=True)
    assert words((0.0, small(0)), (4.0, shrinking))[-1] == (
        "hypothesis, small: 9/400, shrinking, 80 steps"
    )


def test_the_time_that_shrinking_took_does_not_slow_the_rate():
    shrinking = Progress("hypothesis, small", 20, 400, 80, shrinking=True)
    said = words((0.0, small(0)), (2.0, small(20)), (2.0, shrinking), (60.0, small(20)))
    assert said[-1] == "hypothesis, small: 20/400, 38 s left, 10 runs/s, 0 steps"


@pytest.mark.parametrize(
    ("of", "left"), [(2, "10 s"), (20, "3 min 10 s"), (2_000, "5 h 33 min"), (1, "0 s")]
)
def test_the_time_left_is_told_in_the_largest_unit(of, left):
    assert (
        f", {left} left, 0.1 runs/s, " in words((0.0, small(0, of=of)), (10.0, small(1, of=of)))[-1]
    )
