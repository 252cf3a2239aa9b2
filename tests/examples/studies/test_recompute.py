"""`schedproof recompute`: the table, the file, and what it does not take."""

import json
from pathlib import Path

import pytest

from schedproof.examples.studies import recompute as recompute_command
from schedproof.examples.studies.recompute import chosen_workloads
from schedproof.examples.studies.workloads import WORKLOADS


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    """An empty working folder, and a terminal of 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


def test_a_row_for_each_policy_and_the_same_numbers_in_the_file(run):
    result = run("recompute", "--workload", "long-prompt", "--json", "f.json")
    assert (result.code, result.err) == (0, ""), result
    lines = [line.rstrip() for line in result.out.splitlines()]
    assert lines[0] == "recompute vllm: 400 blocks of 16 tokens, budget 2,048, prefix cache on"
    assert "  long-prompt    24 x (1,000 + 100)" in lines
    assert max(len(line) for line in lines) <= 80
    assert lines[7:12] == [
        "workload     policy    preemptions  most  computed  again  steps  life",
        "long-prompt  tail                5     1    27,021    645    501   267",
        "             priority            5     1    27,021    645    501   267",
        "             warm                6     1    26,957    581    472   266",
        "             cold                5     1    27,021    645    501   267",
    ]

    read = json.loads(Path("f.json").read_bytes())
    assert read["format"] == "schedproof/recompute@1"
    assert read["config"]["num_blocks"] == 400
    assert [row["policy"] for row in read["rows"]] == ["tail", "priority", "warm", "cold"]
    first = read["rows"][0]
    assert first.pop("mean_steps") == pytest.approx(266.58, abs=0.01)
    assert first == {
        **{"workload": "long-prompt", "policy": "tail", "preemptions": 5, "most": 1},
        **{"computed": 27_021, "recomputed": 645, "steps": 501},
    }


def test_the_pool_and_the_prefix_cache_are_options(run):
    words = ("--workload", "long-prompt", "--blocks", "600", "--no-prefix-caching")
    result = run("recompute", *words, "--json", "f.json")
    assert result.code == 0
    assert "600 blocks of 16 tokens, budget 2,048, prefix cache off" in result.out
    config = json.loads(Path("f.json").read_bytes())["config"]
    assert (config["num_blocks"], config["enable_prefix_caching"]) == (600, False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--workload", "x"], "--workload: 'x'; valid: long-output, long-prompt, "),
        (["--blocks", "131"], "--blocks: 131; valid: at least 132"),
        (["--workload", "long-prompt", "--blocks", "68"], "--blocks: 68; valid: at least 69"),
        (["--blocks", "many"], "Invalid value for '--blocks'"),
        (["--json", "nowhere/f.json"], "--json: nowhere/f.json: the folder nowhere does not exist"),
        (["--json", "."], "--json: . is a folder; valid: a file"),
        (["--colour"], "--colour"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(run, monkeypatch, words, message):
    monkeypatch.setattr(recompute_command, "measured", lambda *_: pytest.fail("it measures"))
    result = run("recompute", *words)
    assert (result.code, result.out) == (2, ""), result
    assert result.err.startswith("schedproof: ")
    assert message in result.err
    assert result.err.count("\n") == 1


def test_without_a_name_all_workloads_are_run_and_each_once():
    assert chosen_workloads(None) == list(WORKLOADS)
    assert [one.name for one in chosen_workloads(["mixed", "guests", "mixed"])] == [
        *("mixed", "guests")
    ]
