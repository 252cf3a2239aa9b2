"""Cells on a cluster: the files come back, and a lost worker costs nothing but its time."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from schedproof.gate.matrix import on_cluster
from schedproof.gate.matrix.cells import Asked, Cell, Judged, kept
from schedproof.gate.matrix.configurations import Configuration
from schedproof.gate.matrix.on_cluster import Ran, judge, run_on_cluster
from schedproof.gate.processes.cluster import ClusterError
from schedproof.model.errors import InputError

from ..campaign import local_cluster

CELL = Cell("model", Configuration("bounded", ("num_blocks=64",)))
WRONG = Cell("model", Configuration("none", ("block=4",)))


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    scheduler, there = local_cluster.started(2)
    yield there
    scheduler.communicate("")


@pytest.mark.slow
def test_a_cell_is_judged_on_a_worker_once_and_its_files_are_here(
    tmp_path: Path, address: str
) -> None:
    asked, reported = Asked("quick", 0, tmp_path), list[tuple[Judged, float]]()
    for _ in range(2):
        judged = run_on_cluster(
            [CELL, WRONG], asked, address, lambda one, took: reported.append((one, took))
        )
        assert [one.verdict is not None for one in judged] == [True, False]
        assert judged[1].problem.startswith("--set: 'block=4'; valid: KEY=VALUE with ")
    assert "conforms" in (tmp_path / "logs" / "model-bounded.txt").read_text()
    assert kept(CELL, asked) == judged[0]
    took = {one.cell: [seconds for other, seconds in reported if other == one] for one in judged}
    assert took[CELL][0] > 0
    assert took[CELL][1] == 0


@pytest.mark.slow
def test_a_cell_whose_worker_is_lost_runs_again(tmp_path: Path, address: str) -> None:
    cell = Cell("model", Configuration("dies", (str(tmp_path / "mark"),)))
    code = on_cluster.code()

    def dies_once(cell: Cell, profile: str, seed: int) -> Ran:
        mark = Path(cell.configuration.changes[0])
        if not mark.exists():
            mark.touch()
            os._exit(1)
        return Ran(1, {"logs/model-dies.txt": b"schedproof: it ran\n"}, 1.0, code)

    [judged] = run_on_cluster(
        [cell], Asked("quick", 0, tmp_path), address, lambda one, took: None, dies_once
    )
    assert (tmp_path / "mark").exists()
    assert judged.problem == "it ran"


@pytest.mark.slow
def test_a_worker_with_another_version_is_refused(tmp_path: Path, address: str) -> None:
    def judged_by_others(cell: Cell, profile: str, seed: int) -> Ran:
        return Ran(0, {}, 1.0, "other")

    asked = Asked("quick", 0, tmp_path)
    with pytest.raises(ClusterError, match="a worker runs another version of schedproof"):
        run_on_cluster([CELL], asked, address, lambda one, took: None, judged_by_others)


def test_what_is_no_address_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--cluster: 'here'; valid: tcp://HOST:PORT"):
        run_on_cluster([CELL], Asked("quick", 0, tmp_path), "here", lambda one, took: None)


@pytest.mark.slow
def test_a_gate_on_a_worker_writes_into_a_folder_of_its_own() -> None:
    ran = judge(CELL, "quick", 0)
    assert ran.returned == 0
    assert {"logs/model-bounded.txt", "verdicts/model-bounded.json"} <= ran.files.keys()
    assert ran.seconds > 0
