"""The counts of a workload's run, worked out by hand."""

import json
from pathlib import Path

import pytest

from schedproof.examples.studies.compare_picture import figure
from schedproof.examples.studies.compared import (
    Measured,
    Server,
    check_servers,
    longest_of,
    measure,
    servers,
)
from schedproof.model.errors import InputError
from schedproof.model.scenario import Request
from schedproof.model.systems import full_config


def _asked(name, prompt, max_tokens, arrival=0, **more):
    return Request(
        id=name, arrival=arrival, prompt=((name, prompt),), max_tokens=max_tokens, **more
    )


def _server(system, revision, **config):
    return Server(system, revision, full_config(system, revision, config))


def test_tokens_and_waiting_of_two_prompts_that_do_not_fit_one_budget():
    """Six and five tokens, budget eight: the second prompt is cut, and goes on beside a decode."""
    server = _server("vllm", "documented", max_num_batched_tokens=8, max_num_seqs=2)
    result = measure(server, [_asked("a", 6, 2), _asked("b", 5, 1)])
    assert result.tokens == (8, 4)
    assert result.waits == (0, 0)
    assert (result.preemptions, result.again, result.refused, result.unfinished) == (0, 0, 0, 0)


def test_who_finds_no_slot_waits_from_its_arrival_on():
    server = _server("nano_vllm", "documented", max_num_seqs=1)
    result = measure(server, [_asked("a", 3, 4), _asked("b", 3, 1, arrival=1)])
    assert result.tokens == (3, 1, 1, 1, 3)
    assert result.waits == (0, 3)


def test_what_a_preempted_request_computes_again_is_counted():
    """Both begin their second block in the same step, and one block is free: the second begins
    again, with its three tokens of prompt and the two that it has generated."""
    requests = [_asked("a", 3, 4), _asked("b", 3, 4)]
    pool = {"block_size": 4, "num_blocks": 3}
    result = measure(_server("vllm", "documented", enable_prefix_caching=False, **pool), requests)
    assert result.tokens == (6, 2, 1, 1, 5, 1)
    assert (result.preemptions, result.again) == (1, 4)
    # With a prefix cache it finds its first block again.
    result = measure(_server("nano_vllm", "documented", **pool), requests)
    assert result.tokens == (6, 2, 1, 1, 1, 1)
    assert (result.preemptions, result.again) == (1, 0)


def test_spyre_computes_whole_chunks_and_rectangles():
    """A prompt of 100 in a chunk of 512. Two decode at tkv 164: one has 101 tokens in two blocks
    and none in front, the other 65 tokens."""
    server = _server("spyre", "sound")
    result = measure(server, [_asked("a", 100, 2)])
    assert result.tokens == (100, 1)
    assert result.chunk_padding == pytest.approx(412 / 512)
    assert result.decode_padding == 0
    both = measure(server, [_asked("a", 100, 3), _asked("b", 20, 2)])
    assert 0 < both.decode_padding < 0.5


def test_hits_are_not_computed():
    first = _asked("a", 32, 1)
    again = Request(id="b", arrival=1, prompt=(("a", 32), ("b", 4)), max_tokens=1)
    result = measure(_server("vllm", "documented"), [first, again])
    assert result.tokens == (32, 4)
    assert result.again == 0


def test_clients_of_a_scenario_give_up_here_too():
    server = _server("vllm", "documented")
    before = measure(server, [_asked("a", 3, 9, abort_at=2), _asked("b", 3, 3)])
    inside = measure(server, [_asked("a", 3, 9, abort_at=2, abort_inside=True), _asked("b", 3, 3)])
    assert before.tokens == (6, 2, 1)
    assert inside.tokens == (6, 2, 2)


def test_who_is_refused_is_counted_and_left_out():
    server = _server("nano_vllm", "documented", max_num_batched_tokens=8)
    result = measure(server, [_asked("a", 9, 1), _asked("b", 2, 1)])
    assert (result.refused, result.tokens) == (1, (2,))


def test_every_server_has_the_memory_and_the_slots_that_were_asked_for():
    for server in servers(4096, 7, 512, 300):
        assert server.config["num_blocks"] * server.config["block_size"] == 4096
        assert server.config["max_num_seqs"] == 7
    assert longest_of([_asked("a", 3, 4), _asked("b", 5, 1)]) == 7


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ((255, 1, 1), "--tokens: 255; valid: at least 256"),
        ((256, 0, 1), "--slots: 0; valid: at least 1"),
        ((256, 4, 3), "--budget: 3; valid: at least 4"),
    ],
)
def test_a_server_that_cannot_be_is_refused(options, line):
    with pytest.raises(InputError) as refusal:
        check_servers(*options)
    assert str(refusal.value) == line


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
    run("compare", *words).refused(message)


def test_the_picture_has_a_row_of_all_tokens_for_each_model():
    pytest.importorskip("plotly")
    measured = [
        Measured(server, 0, 0, (5, number, 1), (0,), number, 0, 0.0, 0.0)
        for number, server in enumerate(servers(4096, 4, 64, 100))
    ]
    drawn = figure("mixed", measured)
    assert [tuple(trace.y) for trace in drawn.data] == [result.tokens for result in measured]
    titles = [annotation.text for annotation in drawn.layout.annotations]
    assert titles[0] == "spyre sound: 3 steps"
    assert titles[3] == "nano_vllm 0.2.0: 3 steps, 3 preemptions"
