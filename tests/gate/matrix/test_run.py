"""A cell is a gate of its own; what it found is kept, and not judged again."""

from pathlib import Path

import pytest

from schedproof.gate.files.scenario_file import FileError
from schedproof.gate.matrix import cells
from schedproof.gate.matrix.cells import Asked, Cell, Judged, cells_of, kept
from schedproof.gate.matrix.configurations import Configuration
from schedproof.gate.matrix.run import run_cells
from schedproof.gate.targets.supported_releases import ReleaseError

CELL = Cell("model", Configuration("bounded, small", ("num_blocks=64",)))


def test_every_release_is_judged_in_every_configuration_of_its_system() -> None:
    there = cells_of(["vllm==0.33.0", "sendnn-inference==2.6.3"])
    assert [cell.configuration.name for cell in there if cell.target.startswith("sendnn")] == [
        "any"
    ]
    ours = [cell for cell in there if cell.target == "vllm==0.33.0"]
    assert {"one step at a time", "connector, asynchronous"} < {
        cell.configuration.name for cell in ours
    }
    assert len({cell.file_name for cell in there}) == len(there)
    with pytest.raises(ReleaseError, match="is not supported"):
        cells_of(["vllm==0.1.0"])


@pytest.mark.slow
def test_a_cell_is_judged_once(tmp_path: Path) -> None:
    asked, reported = Asked("quick", 0, tmp_path), list[tuple[Judged, float]]()
    for _ in range(2):
        [judged] = run_cells([CELL], asked, 1, lambda one, took: reported.append((one, took)))
        assert judged.verdict is not None
        assert judged.verdict.config == {"num_blocks": 64}
        assert judged.verdict.exit_code == 0
    (_, first), (_, again) = reported
    assert first > 0
    assert again == 0
    assert "conforms" in (tmp_path / "logs" / "model-bounded-small.txt").read_text()
    assert kept(CELL, Asked("quick", 1, tmp_path)) is None
    (tmp_path / "verdicts" / "model-bounded-small.json").write_text("{")
    assert kept(CELL, asked) is None


@pytest.mark.slow
def test_a_gate_that_gives_no_verdict_says_why(tmp_path: Path) -> None:
    wrong = Cell("model", Configuration("none", ("block=4",)))
    [judged] = run_cells([wrong], Asked("quick", 0, tmp_path), 1, lambda one, took: None)
    assert judged.verdict is None
    assert judged.problem.startswith("--set: 'block=4'; valid: KEY=VALUE with ")


def test_a_folder_that_cannot_be_written_to_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file")
    with pytest.raises(FileError, match="cannot be written to"):
        run_cells([CELL], Asked("quick", 0, tmp_path), 1, lambda one, took: None)


def test_ctrl_c_leaves_no_gate_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    start = cells.start

    def spied(cell: Cell, asked: Asked) -> object:
        if started:
            raise KeyboardInterrupt
        started.append(start(cell, asked))
        return started[-1]

    monkeypatch.setattr("schedproof.gate.matrix.run.start", spied)
    other = Cell("model", Configuration("other"))
    with pytest.raises(KeyboardInterrupt):
        run_cells([CELL, other], Asked("quick", 0, tmp_path), 2, lambda one, took: None)
    [process] = started
    assert process.returncode is not None
