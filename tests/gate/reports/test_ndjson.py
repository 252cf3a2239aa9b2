"""NDJSON: a whole line for every event, there as soon as it happened."""

import json
from contextlib import closing

import msgspec
import pytest

from schedproof.gate.files.scenario_file import FileError
from schedproof.gate.judging.events import Began, Judged, Notice, Progress
from schedproof.gate.reports.ndjson import FoundLine, Ndjson

from .. import reported


@pytest.fixture
def file(tmp_path):
    return tmp_path / "events.ndjson"


def lines(path, events):
    with closing(Ndjson(path)) as reporter:
        for event in events:
            reporter(event)
            yield path.read_bytes().splitlines(keepends=True)


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
    union = Began | Notice | Progress | FoundLine | Judged
    read = [msgspec.json.decode(line, type=union) for line in last]  # type: ignore[arg-type]
    assert [type(one) for one in read] == [
        *(Began, Notice, Progress, Progress, Progress, FoundLine, FoundLine, Judged)
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


def test_half_a_character_is_no_reason_to_lose_the_line(file):
    *_, last = lines(file, [Notice("a\udc80b"), Notice("c")])
    assert last[0] == b'{"event":"notice","text":"a\\\\udc80b"}\n'


def test_a_place_that_cannot_be_written_to_is_one_line(tmp_path):
    with (
        closing(Ndjson(tmp_path)) as reporter,
        pytest.raises(FileError, match=r"cannot be written to \(Is a directory\)"),
    ):
        reporter(Notice("lost"))
