"""A cell is a gate of its own; its verdict is kept, and a lost worker costs only its time."""

import pickle
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from schedproof.gate.files.scenario_file import FileError
from schedproof.gate.judging.verdict import Finding, RuleVerdict, TargetInfo, Verdict
from schedproof.gate.matrix import cells
from schedproof.gate.matrix.cells import (
    Cell,
    CellVerdict,
    Releases,
    cells_of,
    earlier_verdict,
    judge,
    matrix_of,
    page_of,
    run_cells,
    spans,
)
from schedproof.gate.processes import executors
from schedproof.gate.processes.executors import DEATHS, ClusterError
from schedproof.gate.targets.scales import Configuration
from schedproof.gate.targets.supported_releases import ReleaseError
from schedproof.model.errors import InputError
from schedproof.tests.gate.matrix.gates import conforms, dies_once, refuses  # workers import it

from ..campaign import local_cluster
from ..targets.test_pipe import NEEDS_PROC, is_gone

CELL = Cell("model", Configuration("bounded, small", {"num_blocks": 64}), "quick", 0)
WRONG = Cell("model", Configuration("none", {"block": 4}), "quick", 0)


@pytest.fixture(scope="module")
def address():
    scheduler, started_at = local_cluster.started(2)
    yield started_at
    scheduler.communicate("")


def ignored(*_):
    pass


def test_every_release_is_judged_in_every_configuration_of_its_system():
    cells = cells_of(["vllm==0.33.0", "sendnn-inference==2.6.3"], "quick", 0)
    assert [cell.configuration.name for cell in cells if cell.target.startswith("sendnn")] == [
        "any"
    ]
    ours = [cell for cell in cells if cell.target == "vllm==0.33.0"]
    assert {"one step at a time", "connector, asynchronous"} < {
        cell.configuration.name for cell in ours
    }
    assert len({cell.file_name for cell in cells}) == len(cells)
    assert pickle.loads(pickle.dumps(cells)) == cells  # each is sent to a process
    assert pickle.dumps(cells_of(["vllm==0.33.0"], "quick", 0, "m.py:C"))
    with pytest.raises(ReleaseError, match="is not supported"):
        cells_of(["vllm==0.1.0"], "quick", 0)


def test_a_class_is_judged_on_each_release_against_the_class_of_that_release():
    versions = ("0.28.0", "0.33.0")
    targets = [f"vllm=={version}" for version in versions]
    cells = cells_of(targets, "quick", 0, "/here/mine.py:Mine")
    words = [[f"{target}:/here/mine.py:Mine", "--against-base"] for target in targets]
    assert [cell.words for cell in cells] == words
    names = [f"vllm-{version}-every-configuration" for version in versions]
    assert [cell.file_name for cell in cells] == names


def test_a_cell_is_judged_once_by_each_state_of_schedproofs_code(tmp_path, monkeypatch):
    reported = list[tuple[CellVerdict, float]]()
    for _ in range(2):
        [judged] = run_cells(
            [CELL], tmp_path, lambda entry, took: reported.append((entry, took)), work=conforms
        )
        assert judged.verdict is not None
        assert judged.verdict.config == {"num_blocks": 64}
        assert judged.verdict.exit_code == 0
    (_, first), (_, again) = reported
    assert first > 0
    assert again == 0
    assert "conforms" in (tmp_path / "logs" / "model-bounded-small.txt").read_text()
    assert earlier_verdict(CELL._replace(seed=1), tmp_path) is None
    monkeypatch.setattr(cells, "our_code", lambda: "of another commit with the same version")
    assert earlier_verdict(CELL, tmp_path) is None
    monkeypatch.undo()
    assert earlier_verdict(CELL, tmp_path) is not None
    (tmp_path / "verdicts" / "model-bounded-small.code").unlink()
    assert earlier_verdict(CELL, tmp_path) is None
    for damaged in ("{", '{"more": ' + "[" * 3000 + "]" * 3000 + "}", "\udcff"):
        data = damaged.encode(errors="surrogateescape")
        (tmp_path / "verdicts" / "model-bounded-small.json").write_bytes(data)
        assert earlier_verdict(CELL, tmp_path) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"target": TargetInfo("vllm==0.33.0", "vllm", "0.33.0")},
        {"system": "vllm"},
        {"config": {}},
        {"base": TargetInfo("model", "spyre", "1")},
    ],
)
def test_a_verdict_on_something_else_is_not_kept(tmp_path, changes):
    run_cells([CELL], tmp_path, ignored, work=conforms)
    verdict = earlier_verdict(CELL, tmp_path)
    assert verdict is not None
    other = msgspec.json.encode(msgspec.structs.replace(verdict, **changes))
    (tmp_path / "verdicts" / f"{CELL.file_name}.json").write_bytes(other)
    assert earlier_verdict(CELL, tmp_path) is None


def test_a_verdict_given_under_other_settings_is_not_kept(tmp_path):
    run_cells([CELL], tmp_path, ignored, work=conforms)
    assert earlier_verdict(CELL._replace(settings="a1"), tmp_path) is None
    run_cells([CELL._replace(settings="a1")], tmp_path, ignored, work=conforms)
    assert earlier_verdict(CELL._replace(settings="a1"), tmp_path) is not None
    assert earlier_verdict(CELL._replace(settings="b2"), tmp_path) is None


def test_a_gate_without_a_verdict_does_not_get_that_of_an_earlier_gate(tmp_path):
    cell = CELL._replace(scheduler="/here/mine.py:Mine")
    run_cells([cell], tmp_path, ignored, work=conforms)
    [judged] = run_cells([cell], tmp_path, ignored, work=refuses)
    assert judged.verdict is None
    assert judged.outcome == "no verdict: mine.py has no class 'Mine'"
    assert earlier_verdict(cell, tmp_path) is None


@pytest.mark.parametrize("fault", [None, "it hung"])
def test_a_gate_that_ended_inconclusive_is_no_pass_and_one_that_broke_off_runs_again(
    tmp_path, fault
):
    def gate(cell):
        ran = conforms(cell)
        place = f"verdicts/{cell.file_name}.json"
        old = msgspec.json.decode(ran.files[place], type=Verdict)
        new = msgspec.structs.replace(old, exit_code=3, fault=fault)
        return ran._replace(files=ran.files | {place: msgspec.json.encode(new)})

    result = cells._store(CELL, tmp_path, gate(CELL))
    assert result.verdict is not None
    assert result.outcome == f"no verdict: {fault or 'inconclusive'}"
    assert not result.is_judged
    assert (earlier_verdict(CELL, tmp_path) is None) == (fault is not None)


def test_a_gate_writes_into_a_folder_of_its_own(monkeypatch):
    commands: list[list[str]] = []

    def gate(command, **_):
        commands.append(command)
        Path(command[command.index("--json") + 1]).write_bytes(b"{}")
        return subprocess.CompletedProcess(command, 0, b"conforms\n")

    monkeypatch.setattr(cells, "run_watched", gate)
    changes = {"num_blocks": 64, "async_scheduling": True, "kv_load_failure_policy": "fail"}
    ran = judge(CELL._replace(configuration=Configuration("bounded, small", changes)))
    assert ran.returned == 0
    assert ran.files == {
        "logs/model-bounded-small.txt": b"conforms\n",
        "verdicts/model-bounded-small.json": b"{}",
    }
    words = " ".join(commands[0])
    assert " gate model --config num_blocks=64 --config async_scheduling=true --config " in words
    assert " --config kv_load_failure_policy=fail --profile quick --seed 0 " in words


@pytest.mark.slow
def test_a_gate_that_gives_no_verdict_says_why(tmp_path):
    [judged] = run_cells([WRONG], tmp_path, ignored)
    assert judged.verdict is None
    assert judged.problem.startswith("--config: 'block=4'; valid: KEY=VALUE with ")


def test_a_folder_that_cannot_be_written_to_is_one_line(tmp_path):
    (tmp_path / "logs").write_text("a file")
    with pytest.raises(FileError, match="cannot be written to"):
        run_cells([CELL], tmp_path, ignored)


@NEEDS_PROC
def test_ctrl_c_leaves_no_gate_behind(tmp_path):
    # The worker's gate is a process that sleeps; Ctrl-C comes while it runs.
    body = f"""
import os, sys, time
from pathlib import Path
from schedproof.gate.processes.watchdog import WatchedProcess
from schedproof.gate.processes.executors import make_executor, run_tasks
place = Path({str(tmp_path / "leader")!r})
def gate(cell):
    process = WatchedProcess([sys.executable, "-c", "import time; time.sleep(600)"])
    place.with_suffix(".new").write_text(str(process.leader))
    place.with_suffix(".new").rename(place)
    process.wait()
def interrupts():
    yield 1
    while not place.exists():
        time.sleep(0.05)
    raise KeyboardInterrupt
if __name__ == "__main__":
    with make_executor(gate, 1, None) as executor:
        list(run_tasks(executor, interrupts()))
"""
    (tmp_path / "interrupted.py").write_text(body)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "interrupted.py")], capture_output=True, check=False
    )
    assert b"KeyboardInterrupt" in done.stderr
    assert is_gone(int((tmp_path / "leader").read_text()))


@pytest.mark.parametrize("on_cluster", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_cell_whose_worker_is_lost_runs_again(tmp_path, on_cluster, request):
    cluster = request.getfixturevalue("address") if on_cluster else None
    cell = Cell("model", Configuration("dies", {"mark": str(tmp_path / "mark")}), "quick", 0)
    [judged] = run_cells([cell], tmp_path, ignored, cluster=cluster, work=dies_once)
    assert (tmp_path / "mark").exists()
    assert judged.problem == "it ran"


def test_a_cell_that_costs_every_worker_is_given_up(tmp_path, monkeypatch):
    numbers: list[int] = []

    class Deadly:
        width = 1

        def submit(self, number, task):
            numbers.append(number)

        def finished(self, seconds):
            return [(numbers[-1], None)]

        def close(self):
            pass

    monkeypatch.setattr(executors, "Pool", lambda *options: Deadly())
    [judged] = run_cells([CELL], tmp_path, ignored)
    assert judged.problem == f"its worker died {DEATHS} times"
    assert len(numbers) == DEATHS


@pytest.mark.slow
def test_a_worker_with_another_version_is_refused(tmp_path, address, monkeypatch):
    monkeypatch.setattr(executors, "our_code", lambda: "other")
    with pytest.raises(ClusterError, match="has another version of schedproof"):
        run_cells([CELL], tmp_path, ignored, cluster=address, work=conforms)


@pytest.mark.slow
def test_on_a_cluster_the_files_come_back(tmp_path, address):
    [judged] = run_cells([CELL], tmp_path, ignored, cluster=address, work=conforms)
    assert judged.verdict == earlier_verdict(CELL, tmp_path)
    assert "conforms" in (tmp_path / "logs" / "model-bounded-small.txt").read_text()


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.0 400 Bad Request\r\n\r\n"])
def test_a_server_that_is_no_dask_scheduler_is_one_line(tmp_path, monkeypatch, answer):
    monkeypatch.setattr(executors, "CONNECT_SECONDS", 1.0)
    monkeypatch.setattr(executors, "ANSWER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            with suppress(OSError):
                while True:
                    connections.append(server.accept()[0])
                    connections[-1].sendall(answer)

        connections = list[socket.socket]()
        threading.Thread(target=serve, daemon=True).start()
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(InputError, match="answers there, but not as a Dask scheduler does"):
            run_cells([CELL], tmp_path, ignored, cluster=address, work=conforms)
        for connection in connections:
            connection.close()


def test_what_is_no_address_is_one_line(tmp_path):
    with pytest.raises(InputError, match=r"--cluster: 'here'; valid: tcp://HOST:PORT"):
        run_cells([CELL], tmp_path, ignored, cluster="here")


GATE = ("quick", 0)
LOADS = Configuration("connector, asynchronous", {"kv_connector": True})


def judged(version, *requests, status="violated"):
    """A release of which V1-R22 broke, found with so many requests; held without."""
    target, file = f"vllm=={version}", f"out/V1-R22-{version}.json"
    place = ("V1-R22", "hypothesis", "small", file, 3, "waits")
    rule = RuleVerdict("V1-R22", status, 3, file, "waits", divergence="known of it")
    verdict = Verdict(
        *(TargetInfo(target, "vllm", version), "vllm", "documented", "quick", 0, ()),
        rules=(rule if requests else RuleVerdict("V1-R22", "held"), RuleVerdict("V1-I2", "held")),
        findings=tuple(Finding(*place, number, (), 0.0, 0.0) for number in requests),
        exit_code=1 if requests else 0,
    )
    return CellVerdict(Cell(target, LOADS, *GATE), verdict)


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ("bbh", ["0 to 1"]),
        ("hbh", ["1"]),
        ("bhb", ["0", "2"]),
        ("b-b", ["0 to 2"]),
        ("bib", ["0", "2"]),
        ("hhh", []),
    ],
)
def test_versions_in_a_row_are_one_span_and_what_was_not_exercised_parts_nothing(states, expected):
    words = {"b": "violated", "h": "held", "-": "not_exercised", "i": "inconclusive"}
    by_version = {str(number): words[state] for number, state in enumerate(states)}
    assert [str(span) for span in spans(by_version)] == expected


def test_a_row_has_the_smallest_scenario_and_where_it_broke():
    found = [judged("0.19.1", 4), judged("0.24.0", 2), judged("0.28.0", 3), judged("0.33.0")]
    [row] = matrix_of(found, *GATE).rows
    assert (row.rule, row.configuration, row.version) == ("V1-R22", LOADS.name, "0.24.0")
    assert row.broken == (Releases("0.19.1", "0.28.0"),)
    assert row.scenario == "scenarios/vllm-0.24.0-connector-asynchronous/V1-R22-0.24.0.json"
    assert row.states["0.33.0"] == "held"
    assert row.known == "known of it"


def test_each_release_is_counted_and_one_without_a_verdict_says_why():
    without = CellVerdict(Cell("vllm==0.21.0", LOADS, *GATE), None, "the index | has none")
    matrix = matrix_of([judged("0.19.1", 4), without, judged("0.33.0")], *GATE)
    counts = [(entry.version, entry.held, entry.broken, entry.problem) for entry in matrix.entries]
    assert counts == [
        ("0.19.1", 1, 1, ""),
        ("0.21.0", 0, 0, "the index | has none"),
        ("0.33.0", 2, 0, ""),
    ]
    page = page_of(matrix, "schedproof matrix vllm")
    assert "according to 2 gates of profile quick, seed 0: `schedproof matrix vllm`" in page
    assert "| connector, asynchronous | V1-R22 | 0.19.1 | " in page
    assert "| 0.19.1 | 1 held, **1 broken** |" in page
    assert "| 0.21.0 | not judged |" in page
    assert "Not judged, 0.21.0: the index \\| has none." in page


def test_a_page_without_broken_rules_says_so():
    assert "No rule was broken." in page_of(matrix_of([judged("0.33.0")], *GATE), "command")


def test_words_of_a_target_are_text_in_the_page():
    matrix = matrix_of([judged("0.33.0", 3)], *GATE)
    row = msgspec.structs.replace(matrix.rows[0], message="<img src=x> [a](b) | \x1b[2J\n# c")
    page = page_of(msgspec.structs.replace(matrix, rows=(row,)), "command")
    assert r"| \<img src=x\> \[a\]\(b\) \|  \[2J \# c |" in page
