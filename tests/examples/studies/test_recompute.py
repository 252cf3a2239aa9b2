"""`schedproof recompute`: the table, the file, and what it does not take."""

import json
from pathlib import Path

import msgspec
import pytest

from schedproof.examples.studies import recompute as recompute_command
from schedproof.examples.studies.recompute import chosen_workloads
from schedproof.examples.studies.recompute_model import Cost, cost_of
from schedproof.examples.studies.victims import POLICIES
from schedproof.examples.studies.workloads import (
    ENGINE,
    PRIORITIES,
    WORKLOADS,
    fewest_blocks,
    workload,
)
from schedproof.model.vllm.config import VllmConfig
from schedproof.model.vllm.model import VllmModel


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    """An empty working folder, and a terminal of 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.slow
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
    assert [load.name for load in chosen_workloads(["mixed", "guests", "mixed"])] == [
        *("mixed", "guests")
    ]


TAIL, PRIORITY, WARM, COLD = POLICIES
SIX_BLOCKS = VllmConfig(block_size=4, num_blocks=6, max_num_seqs=8, max_num_batched_tokens=64)
TWO = workload("two", "2 x (8 + 9)", [(0, ((f"r{n}", 8),), 9) for n in range(2)])


def test_a_run_by_hand():
    # Steps 0 to 4 compute 8, 9, ... 12 tokens of both: three blocks each. In step 5 r0 needs a
    # fourth: r1 goes with 12 tokens, and its last block is handed out. r0 ends in step 8. In step 9
    # r1 finds two blocks and computes 5 tokens, 4 of them again; then it decodes until step 12.
    for policy in POLICIES:
        assert cost_of(SIX_BLOCKS, TWO, policy) == Cost(1, 1, 16 + 16 + 4, 4, 13, (9 + 13) / 2)


def test_without_a_prefix_cache_it_computes_all_twelve_again_and_in_one_step():
    config = msgspec.structs.replace(SIX_BLOCKS, enable_prefix_caching=False)
    assert cost_of(config, TWO, TAIL) == Cost(1, 1, 16 + 16 + 12, 12, 13, (9 + 13) / 2)


def test_with_room_for_all_nothing_is_computed_again():
    config = msgspec.structs.replace(SIX_BLOCKS, num_blocks=8)
    assert cost_of(config, TWO, TAIL) == Cost(0, 0, 32, 0, 9, 9.0)


def test_arrivals_are_kept_and_life_is_counted_from_them():
    late = workload("late", "", [(0, (("r0", 8),), 2), (5, (("r1", 8),), 2)])
    assert cost_of(SIX_BLOCKS, late, TAIL) == Cost(0, 0, 18, 0, 7, 2.0)


def test_what_is_shared_is_computed_once_and_is_no_recompute():
    chats = workload("chats", "", [(n, (("system", 8), (f"r{n}", 2)), 1) for n in range(2)])
    assert cost_of(SIX_BLOCKS, chats, TAIL)[2:4] == (10 + 2, 0)


def test_every_workload_is_under_pressure_and_can_be_run():
    assert len({load.name for load in WORKLOADS}) == len(WORKLOADS)
    for load in WORKLOADS:
        tokens = sum(request.prompt_len + request.max_tokens for request in load.requests)
        assert tokens > 2 * ENGINE.num_blocks * ENGINE.block_size
        assert [request.arrival for request in load.requests] == sorted(
            request.arrival for request in load.requests
        )
        assert {request.priority for request in load.requests} == set(range(PRIORITIES))
        model = VllmModel(msgspec.structs.replace(ENGINE, num_blocks=fewest_blocks(load)))
        assert {model.refusal(request) for request in load.requests} == {None}
        smaller = VllmModel(msgspec.structs.replace(ENGINE, num_blocks=fewest_blocks(load) - 1))
        assert any(smaller.refusal(request) for request in load.requests)


def test_the_lengths_of_the_mixed_workloads():
    mixed = next(load for load in WORKLOADS if load.name == "mixed")
    assert [(request.prompt_len, request.max_tokens) for request in mixed.requests[:3]] == [
        (32, 40),
        (429, 251),
        (826, 462),
    ]
    lengths = {(request.prompt_len, request.max_tokens) for request in mixed.requests}
    assert len(lengths) == len(mixed.requests)
    assert 32 <= min(lengths)[0] <= max(lengths)[0] <= 931


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "cost"),
    [
        (TAIL, (16, 1, 34_682, 2_562, 1_244)),
        (PRIORITY, (29, 3, 40_497, 8_377, 1_241)),
        (WARM, (13, 1, 35_304, 3_184, 1_158)),
        (COLD, (19, 2, 34_153, 2_033, 1_229)),
    ],
    ids=[policy.name for policy in POLICIES],
)
def test_the_published_row_of_guests(policy, cost):
    guests = next(load for load in WORKLOADS if load.name == "guests")
    assert cost_of(ENGINE, guests, policy)[:5] == cost
