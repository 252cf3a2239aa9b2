"""A scheduler class that records: it decides as the one that it wraps, whatever becomes of the
record. Without vLLM, and on the real release where it is installed."""

import errno
import io
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from schedproof.gate.targets import releases
from schedproof.gate.targets.supported_releases import ReleaseError, parse_release
from schedproof.gate.targets.vllm import recorder
from schedproof.gate.targets.vllm.in_flight import Flights
from schedproof.gate.targets.vllm.observation import Decided
from schedproof.gate.targets.vllm.recorder import (
    LIMIT,
    STOP,
    TRACE,
    recording,
)
from schedproof.gate.targets.vllm.releases import VLLM
from schedproof.gate.targets.vllm.trace_output import RecordEnds, TraceFile
from schedproof.spec.systems import SYSTEMS

from ....command_line import runner

RELEASE = "vllm==0.33.0"
SCENARIO = {
    "format": "schedproof/scenario@1",
    "system": "vllm",
    "config": {"block_size": 4, "num_blocks": 8, "max_model_len": 32, "max_num_seqs": 4},
    "requests": [
        {"id": "a", "arrival": 0, "prompt": [["a", 9]], "max_tokens": 12},
        {"id": "b", "arrival": 0, "prompt": [["a", 8], ["b", 3]], "max_tokens": 12},
        {"id": "c", "arrival": 2, "prompt": [["c", 6]], "max_tokens": 12, "abort_at": 5},
        {"id": "d", "arrival": 16, "prompt": [["a", 9], ["out:a", 5]], "max_tokens": 2},
    ],
}
# What the recorder can know of the prompts: of others it knows full blocks.
TOLD = {
    "a": [["a", 9]],
    "b": [["a", 8], ["b", 3]],
    "c": [["c", 6]],
    "d": [["a", 9], ["out:a", 3], ["d", 2]],
}


class Plain:
    """A scheduler that the recorder cannot make sense of."""

    def __init__(self, number):
        self.number = number
        self.requests: dict[str, Any] = {"a": SimpleNamespace(is_finished=lambda: False)}

    def add_request(self, request):
        return self.number + 1

    def finish_requests(self, request_ids, finished_status):
        return self.number + 2

    def schedule(self, *, more=0):
        return self.number + more

    def update_from_output(self, scheduler_output, output):
        return int(scheduler_output) + int(output)


def uses(scheduler):
    return [
        scheduler.add_request(None),
        scheduler.finish_requests("a", None),
        scheduler.schedule(more=3),
        scheduler.update_from_output(20, 4),
    ]


def test_where_no_file_is_named_the_scheduler_decides_as_ever_and_says_so_once(monkeypatch, capsys):
    monkeypatch.delenv(TRACE, raising=False)
    assert uses(recording(Plain)(10)) == [11, 12, 13, 24]
    assert capsys.readouterr().err == f"schedproof: the recording stops: {TRACE} names no file\n"


def test_what_goes_wrong_in_the_record_does_not_reach_the_server(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv(TRACE, str(tmp_path / "run.jsonl"))
    assert uses(recording(Plain)(10)) == [11, 12, 13, 24]
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("schedproof: the recording stops: AttributeError(")


def record_without_vllm(file, limit=10_000):
    """A record whose scheduler and configuration are left out."""
    record = recorder.Record.__new__(recorder.Record)
    record._file, record._left = file, limit
    record._decided, record._seen, record._late, record._aborted = None, None, [], []
    return record


class Raises(Plain):
    def schedule(self, *, more=0):
        return more // 0

    def update_from_output(self, scheduler_output, output):
        raise SystemExit


def test_a_scheduler_that_raises_is_recorded_as_crashed(monkeypatch):
    file = io.StringIO()
    monkeypatch.setattr(recorder, "_open", lambda _: record_without_vllm(file))
    monkeypatch.setattr(recorder.Record, "decides", lambda _: None)
    scheduler = recording(Raises)(10)
    with pytest.raises(ZeroDivisionError):
        scheduler.schedule()
    with pytest.raises(ZeroDivisionError):
        scheduler.schedule()
    request, reply = map(json.loads, file.getvalue().splitlines())
    assert request == {"op": "step"}
    assert (reply["error"], reply["message"].split(":")[0]) == ("crashed", "ZeroDivisionError")


def test_an_exit_during_a_step_is_no_crash(monkeypatch):
    file = io.StringIO()
    monkeypatch.setattr(recorder, "_open", lambda _: record_without_vllm(file))
    with pytest.raises(SystemExit):
        recording(Raises)(10).update_from_output(20, 4)
    assert file.getvalue() == ""


def test_an_empty_step_is_recorded_as_soon_as_it_completes(monkeypatch):
    # The next event may come much later, or never: after an abort of the last request, for example.
    record, written = record_without_vllm(io.StringIO()), []
    record._view = SimpleNamespace(flights=Flights(1))
    record._decided, record._seen = Decided("idle", {}, [], {}, {}), {"kind": "idle"}
    monkeypatch.setattr(record, "_end_step", lambda seen, completes: written.append(seen))
    record.completed(SimpleNamespace(num_scheduled_tokens={}), {})
    assert written == [{"kind": "idle"}]


def test_a_recording_that_stops_says_so_in_the_record(monkeypatch, capsys):
    for limit in (10_000, 0):
        file = io.StringIO()
        monkeypatch.setattr(recorder, "_open", lambda _, f=file, n=limit: record_without_vllm(f, n))
        scheduler = recording(Plain)(10)
        scheduler._note(lambda record: record.ends("the scheduler is paused"))
        scheduler._note(lambda record: record.ends("again"))
        assert file.getvalue() == '{"op": "stop"}\n{"ok": true}\n'
    assert capsys.readouterr().err.count("the recording stops: the scheduler is paused\n") == 2


def test_the_recording_class_has_the_name_of_the_one_that_decides():
    assert recording(Plain).__name__ == "Plain"
    assert recording(Plain) is recording(Plain)


def test_each_process_has_a_file_of_its_own(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text("of another process", encoding="utf-8")
    linked = tmp_path / f"run.jsonl.{os.getpid()}"
    linked.symlink_to(tmp_path / "elsewhere")
    # In a container, each start may have the same process id.
    names = [Path(TraceFile(str(path)).name).name for _ in range(2)]
    assert names == [f"{linked.name}.2", f"{linked.name}.3"]
    assert path.read_text(encoding="utf-8") == "of another process"
    assert not (tmp_path / "elsewhere").exists()


def test_two_schedulers_of_a_process_do_not_mix_their_lines(tmp_path):
    file = TraceFile(str(tmp_path / "run.jsonl"))
    first = record_without_vllm(file.begin())
    first.crashed(ValueError("a"))
    second = record_without_vllm(file.begin())
    second.crashed(ValueError("b"))
    with pytest.raises(RecordEnds, match=r"a later scheduler of this process records in .*run"):
        first.crashed(ValueError("c"))
    first.stop()
    second.stop()
    lines = Path(file.name).read_text("utf-8").splitlines()
    assert [json.loads(line).get("message") for line in lines[1::2]] == [
        "ValueError: a",
        "ValueError: b",
        None,
    ]


def test_a_process_forked_while_recording_does_not_write(tmp_path, monkeypatch):
    lines = TraceFile(str(tmp_path / "run.jsonl")).begin()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(RecordEnds, match="belongs to the process that started this one"):
        lines.write(STOP)


def test_a_full_disk_leaves_whole_lines_and_says_that_the_run_ends_there(tmp_path, monkeypatch):
    file = TraceFile(str(tmp_path / "run.jsonl"))
    record, room = record_without_vllm(file.begin()), [10]
    write = os.write

    def write_if_there_is_room(number, data):
        if number != file._file:
            return write(number, data)
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(number, data[: room[0]])
        room[0] -= written
        return written

    record.crashed(ValueError("a"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write_if_there_is_room)
        with pytest.raises(OSError, match="No space"):
            record.crashed(ValueError("b"))
    record.stop()
    lines = Path(file.name).read_text("utf-8").splitlines(keepends=True)
    assert len(lines) == 4
    assert "".join(lines[2:]) == STOP


@pytest.fixture
def run(monkeypatch, capfd, tmp_path):
    release = parse_release(RELEASE)
    assert release is not None
    try:
        releases.prepare(release, offline=True)
    except ReleaseError as missing:
        pytest.skip(str(missing))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(TRACE, str(tmp_path / "run.jsonl"))
    return runner(monkeypatch, capfd)


def replay(run, cls, **config):
    """The scenario on the release, through the recorder."""
    scenario = {**SCENARIO, "config": {**SCENARIO["config"], **config}}  # type: ignore[dict-item]
    Path("s.json").write_text(json.dumps(scenario), encoding="utf-8")
    # As in an environment without schedproof: its folder `gate` is on the path. The process of a
    # release does not get the settings of the test.
    Path("traced").mkdir()
    lines = (
        "import os, sys",
        f"sys.path.append({str(Path(recorder.__file__).parents[2])!r})",
        *(
            f"os.environ[{key!r}] = {os.environ[key]!r}"
            for key in (TRACE, LIMIT)
            if key in os.environ
        ),
        f"from targets.vllm.recorder import {cls}",
    )
    Path("traced/server.py").write_text("\n".join(lines), encoding="utf-8")
    target = f"{RELEASE}:traced:server.{cls}"
    done = run("replay", "s.json", "--target", target, "--quiet", "--offline")
    assert done.code == 0, done


@pytest.mark.slow
@pytest.mark.parametrize(
    "cls", [pytest.param("Recorder", marks=pytest.mark.nightly), "AsyncRecorder"]
)
def test_a_record_says_what_the_model_decides(run, cls):
    replay(run, cls, **({"async_scheduling": True} if cls == "AsyncRecorder" else {}))
    judged = run("check-trace", "run.jsonl", "--explain")
    assert judged.code == 0, judged
    assert "vllm 0.33 makes the same decisions in the run" in judged.out
    lines = [json.loads(line) for line in Path("run.jsonl").read_text("utf-8").splitlines()]
    prompts = {
        line["request"]["id"]: line["request"]["prompt"] for line in lines if "request" in line
    }
    assert prompts == TOLD
    assert [line["id"] for line in lines if line.get("op") == "abort"] == ["c"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cls", "keys", "early"),
    [
        ("AsyncRecorder", {"async_scheduling": True}, 1),
        pytest.param("Recorder", {"pipeline_parallel_size": 3}, 2, marks=pytest.mark.nightly),
    ],
)
def test_steps_that_complete_early_are_recorded_as_they_were(run, cls, keys, early):
    replay(run, cls, early_completions=early, **keys)
    judged = run("check-trace", "run.jsonl", "--explain")
    assert judged.code == 0, judged
    assert "vllm 0.33 makes the same decisions in the run" in judged.out
    lines = [json.loads(line) for line in Path("run.jsonl").read_text("utf-8").splitlines()]
    steps = [line["step"] for line in lines if "step" in line]
    assert steps[0]["completes"] is True  # although fewer are on their way than can be
    assert {step["completes"] for step in steps} == {True, False}


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.19.1", "0.24.0", "0.28.0", "0.29.1", "0.31.0", "0.33.0"])
def test_a_record_names_the_revision_that_a_gate_of_the_release_takes(version):
    assert recorder.revision_of(f"{version}+cpu") == VLLM.revision_of(version)
    assert SYSTEMS["vllm"].revisions[1:] == recorder.REVISIONS


def test_a_full_file_ends_with_a_whole_line(run, monkeypatch):
    monkeypatch.setenv(LIMIT, "0.002")
    replay(run, "Recorder")
    assert 1000 < Path("run.jsonl").stat().st_size <= 0.002 * 2**20
    judged = run("check-trace", "run.jsonl")
    assert judged.code == 0, judged
