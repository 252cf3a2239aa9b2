"""`schedproof compare`: the table, the file, the picture, and what it does not take."""

import json
from pathlib import Path

import pytest

from schedproof.examples.studies.compare_picture import figure
from schedproof.examples.studies.compared import Measured, servers

SCENARIO = {
    "format": "schedproof/scenario@1",
    "system": "vllm",
    "revision": "documented",
    "config": {},
    "requests": [
        {"id": "a", "arrival": 0, "prompt": [["a", 40]], "max_tokens": 3},
        {"id": "b", "arrival": 2, "prompt": [["b", 3]], "max_tokens": 2},
    ],
}


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    """An empty working folder, and a terminal of 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


def test_a_row_for_each_model_and_the_same_numbers_in_the_file(run):
    Path("s.json").write_text(json.dumps(SCENARIO), encoding="utf-8")
    result = run("compare", "s.json", "--json", "f.json")
    assert (result.code, result.err) == (0, ""), result
    read = json.loads(Path("f.json").read_bytes())
    assert read["format"] == "schedproof/compare@1"
    for server in read["servers"]:
        name = f"{server['server']['system']} {server['server']['revision']}"
        [row] = [line.split() for line in result.out.splitlines() if line.startswith(name)]
        assert int(row[2]) == len(server["tokens"])
        assert int(row[4]) == max(server["tokens"])
        assert sum(server["tokens"]) == 40 + 2 + 3 + 1
    assert read["servers"][1]["tokens"] == [40, 1, 4, 1]


@pytest.mark.slow
def test_a_named_workload_is_run_on_servers_of_the_size_asked_for(run):
    result = run("compare", "long-output", "--tokens", "16384", "--slots", "8")
    assert result.code == 0
    assert "compare long-output: 24 requests, on models" in result.out
    assert "vllm documented: block_size 16, num_blocks 1024, max_num_seqs 8" in result.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "WORKLOAD: 'nothing'; valid: long-output, "),
        (["mixed", "--tokens", "3"], "--tokens: 3; valid: at least 256"),
        (["mixed", "--slots", "0"], "--slots: 0; valid: at least 1"),
        (["mixed", "--budget", "31"], "--budget: 31; valid: at least 32"),
        (["mixed", "--json", "no/f.json"], "--json: no/f.json: the folder no does not exist"),
        (["mixed", "--picture", "f.png"], "--picture: f.png; valid: a file that ends in .html"),
    ],
)
def test_wrong_options_are_one_line(run, words, message):
    result = run("compare", *words)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"schedproof: {message}"), result.err
    assert result.err.count("\n") == 1


def test_the_picture_has_a_row_of_all_tokens_for_each_model():
    pytest.importorskip("plotly")
    measured = [
        Measured(server, 0, 0, (5, number, 1), (0,), number, 0, 0.0, 0.0)
        for number, server in enumerate(servers(4096, 4, 64, 100))
    ]
    drawn = figure("mixed", measured)
    assert [tuple(one.y) for one in drawn.data] == [one.tokens for one in measured]
    titles = [one.text for one in drawn.layout.annotations]
    assert titles[0] == "spyre sound: 3 steps"
    assert titles[3] == "nano_vllm 0.2.0: 3 steps, 3 preemptions"
