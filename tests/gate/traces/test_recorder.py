"""The recorder: what is written of a conversation, and `replay --trace`."""

import gzip
import io
import json
import os
from pathlib import Path

import pytest

from schedproof.gate.files import disk
from schedproof.gate.files.scenario_file import FileError, write_scenario
from schedproof.gate.traces.recorder import Recorder, record_target
from schedproof.model.faults import TargetFault, TargetHung
from schedproof.model.target import ModelTarget

from ..trace_build import recorded as lines_of
from ..trace_build import request, scenario

ONE = request("a", 0, 5).for_target()

pytestmark = pytest.mark.usefixtures("working_folder")


class Talkative(ModelTarget):
    """Says more than the protocol has."""

    def step(self):
        reply = super().step()
        reply["step"]["mood"] = "fine"
        return reply | {"weather": "dull"}


class Hangs(ModelTarget):
    """Does not answer."""

    def step(self):
        raise TargetHung("step", 1.0)


def conversation(target):
    file = io.BytesIO()
    recorder = Recorder(target, file)
    recorder.start("spyre", "sound", scenario().config)
    recorder.add(ONE)
    try:
        recorder.step()
    except TargetHung:
        return [json.loads(line) for line in file.getvalue().splitlines()]
    recorder.abort("a")
    recorder.abort("a", True)
    recorder.stop()
    return [json.loads(line) for line in file.getvalue().splitlines()]


def test_every_request_is_followed_by_its_reply():
    start, started, *rest = conversation(ModelTarget())
    assert start == {
        "op": "start",
        "system": "spyre",
        "revision": "sound",
        "config": scenario().config,
    }
    assert (started["ok"], started["version"]) == (True, "sound")
    add, ok, step, seen, *aborts = rest
    assert (add, ok, step) == ({"op": "add", "request": ONE}, {"ok": True}, {"op": "step"})
    assert seen["step"]["scheduled"] == {"a": 5}
    assert aborts[::2] == [
        {"op": "abort", "id": "a"},
        {"op": "abort", "id": "a", "inside": True},
        {"op": "stop"},
    ]


def test_what_the_protocol_does_not_have_is_passed_on_but_not_written():
    assert conversation(Talkative()) == conversation(ModelTarget())
    recorder = Recorder(Talkative(), io.BytesIO())
    recorder.start("spyre", "sound", scenario().config)
    assert recorder.step()["weather"] == "dull"


def test_a_request_that_is_not_answered_stays_without_a_reply():
    assert conversation(Hangs())[-1] == {"op": "step"}


def test_a_full_disk_is_no_crash_of_the_scheduler():
    class Full(io.BytesIO):
        def write(self, data, /):
            raise OSError(28, "No space left on device")

    with pytest.raises(TargetFault, match="the trace cannot be written"):
        Recorder(ModelTarget(), Full()).start("spyre", "sound", scenario().config)


def test_without_a_file_the_target_is_asked_itself():
    target = ModelTarget()
    with record_target(target, None) as asked:
        assert asked is target


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz"])
def test_any_replay_can_be_recorded_and_checked(run, name):
    path = str(write_scenario(scenario(), Path("s"), "R"))
    plain = run("replay", path, "--quiet")
    result = run("replay", path, "--quiet", "--trace", name)
    assert (result.code, result.err) == (plain.code, "") == (0, "")
    data = Path(name).read_bytes()
    data = gzip.decompress(data) if name.endswith(".gz") else data
    assert [json.loads(line) for line in data.splitlines()] == lines_of(scenario())
    checked = run("check-trace", name, "--explain")
    assert (checked.code, checked.err) == (0, "")


@pytest.mark.slow
def test_a_model_with_another_formula_is_not_held_to_the_model_when_it_is_recorded(run):
    requests = [request(name, 0, 12, 30) for name in "abc"]
    meant = scenario(*requests, revision="2.1.2", max_batch_tkv=96)
    path = str(write_scenario(meant, Path("s"), "R"))
    words = ("replay", path, "--quiet", "--target", "model:documented")
    assert run(*words).code == run(*words, "--trace", "t").code


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--trace", "no/t"], "--trace: no/t: the folder no does not exist"),
        (["--trace", "."], "--trace: . is a folder; valid: a file"),
    ],
)
def test_a_trace_that_cannot_be_written_is_one_line(run, words, message):
    path = str(write_scenario(scenario(), Path("s"), "R"))
    result = run("replay", path, *words)
    assert (result.code, result.out, result.err) == (2, "", f"schedproof: {message}\n")


@pytest.mark.parametrize("name", ["p", "p.gz"])
def test_a_pipe_that_nobody_reads_is_an_error(name, tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "READER_LIMIT", 0.1)
    os.mkfifo(tmp_path / name)
    with (
        pytest.raises(FileError, match=f"{name}: cannot be written to .nobody reads this pipe."),
        record_target(ModelTarget(), tmp_path / name),
    ):
        pass


def test_a_scenario_is_never_recorded_over(run):
    path = write_scenario(scenario(), Path("s"), "R")
    before = path.read_bytes()
    result = run("replay", str(path), "--trace", str(path))
    assert result.code == 2
    assert "is the scenario itself; valid: another file" in result.err
    assert path.read_bytes() == before
