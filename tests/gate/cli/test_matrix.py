"""`schedproof matrix`: bad input is one line; the files are written."""

import json
from pathlib import Path

import pytest

from schedproof.gate.matrix.cells import Cell, Judged
from schedproof.gate.targets.scales import ANY

pytestmark = pytest.mark.usefixtures("folder")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["triton"], "'triton' is no name of a release; valid: "),
        (["vllm==0.1.0"], "vllm: version '0.1.0' is not supported"),
        (["vllm==0.33.0", "--profile", "long"], "--profile: 'long'; valid: quick, ci, nightly"),
        (["vllm==0.33.0", "--jobs", "0"], "--jobs: 0; valid: at least 1"),
        (["vllm==0.33.0", "--cluster", "here"], "--cluster: 'here'; valid: tcp://HOST:PORT"),
        (
            ["vllm==0.33.0", "--cluster", "tcp://h:1", "--jobs", "2"],
            "--jobs: a cluster has its own workers; valid: --jobs or --cluster",
        ),
    ],
)
def test_bad_input_is_one_line(run, arguments, says):
    result = run("matrix", *arguments)
    assert result.code == 2
    [line] = result.err.splitlines()
    assert says in line


def test_what_was_judged_is_written_and_what_was_not_is_code_3(run, monkeypatch):
    cell = Cell("vllm==0.33.0", ANY, "quick", 3)

    def judged(cells, folder, report, *_):
        report(Judged(cell, None, "no such release"), 2.0)  # type: ignore[operator]
        return [Judged(cell, None, "no such release")]

    monkeypatch.setattr("schedproof.gate.cli.matrix.run_cells", judged)
    Path("there").mkdir()
    result = run("matrix", "vllm==0.33.0", "--out", "there", "--seed", "3")
    assert result.code == 3
    assert "/10  vllm==0.33.0, any: no verdict: no such release (2 s)" in result.out
    data = json.loads(Path("there/matrix.json").read_text())
    assert data["format"] == "schedproof/matrix@1"
    assert data["entries"][0]["problem"] == "no such release"
    assert "`schedproof matrix vllm==0.33.0 --seed=3`" in Path("there/matrix.md").read_text()


def test_ctrl_c_says_that_the_same_command_goes_on(run, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("schedproof.gate.cli.matrix.run_cells", interrupted)
    result = run("matrix", "vllm==0.33.0")
    assert result.code == 3
    assert "interrupted after 0 of 10; the same command goes on" in result.err
