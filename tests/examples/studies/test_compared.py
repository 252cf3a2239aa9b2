"""What a workload's run is counted as, by hand."""

import pytest

from schedproof.examples.studies.compared import Server, check_servers, longest_of, measure, servers
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
    one = measure(server, [_asked("a", 6, 2), _asked("b", 5, 1)])
    assert one.tokens == (8, 4)
    assert one.waits == (0, 0)
    assert (one.preemptions, one.again, one.refused, one.unfinished) == (0, 0, 0, 0)


def test_who_finds_no_slot_waits_from_its_arrival_on():
    server = _server("nano_vllm", "documented", max_num_seqs=1)
    one = measure(server, [_asked("a", 3, 4), _asked("b", 3, 1, arrival=1)])
    assert one.tokens == (3, 1, 1, 1, 3)
    assert one.waits == (0, 3)


def test_what_a_preempted_request_computes_again_is_counted():
    """Both begin their second block in the same step, and one block is free: the second begins
    anew, with its three tokens of prompt and the two that it has generated."""
    requests = [_asked("a", 3, 4), _asked("b", 3, 4)]
    pool = {"block_size": 4, "num_blocks": 3}
    one = measure(_server("vllm", "documented", enable_prefix_caching=False, **pool), requests)
    assert one.tokens == (6, 2, 1, 1, 5, 1)
    assert (one.preemptions, one.again) == (1, 4)
    # With a prefix cache it finds its first block again.
    one = measure(_server("nano_vllm", "documented", **pool), requests)
    assert one.tokens == (6, 2, 1, 1, 1, 1)
    assert (one.preemptions, one.again) == (1, 0)


def test_spyre_computes_whole_chunks_and_rectangles():
    """A prompt of 100 in a chunk of 512. Two decode at tkv 164: one has 101 tokens in two blocks
    and none in front, the other 65 tokens."""
    server = _server("spyre", "sound")
    one = measure(server, [_asked("a", 100, 2)])
    assert one.tokens == (100, 1)
    assert one.chunk_padding == pytest.approx(412 / 512)
    assert one.decode_padding == 0
    both = measure(server, [_asked("a", 100, 3), _asked("b", 20, 2)])
    assert 0 < both.decode_padding < 0.5


def test_hits_are_not_computed():
    first = _asked("a", 32, 1)
    again = Request(id="b", arrival=1, prompt=(("a", 32), ("b", 4)), max_tokens=1)
    one = measure(_server("vllm", "documented"), [first, again])
    assert one.tokens == (32, 4)
    assert one.again == 0


def test_clients_of_a_scenario_give_up_here_too():
    server = _server("vllm", "documented")
    before = measure(server, [_asked("a", 3, 9, abort_at=2), _asked("b", 3, 3)])
    inside = measure(server, [_asked("a", 3, 9, abort_at=2, abort_inside=True), _asked("b", 3, 3)])
    assert before.tokens == (6, 2, 1)
    assert inside.tokens == (6, 2, 2)


def test_who_is_refused_is_counted_and_left_out():
    server = _server("nano_vllm", "documented", max_num_batched_tokens=8)
    one = measure(server, [_asked("a", 9, 1), _asked("b", 2, 1)])
    assert (one.refused, one.tokens) == (1, (2,))


def test_every_server_has_the_memory_and_the_slots_that_were_asked_for():
    for server in servers(4096, 7, 512, 300):
        assert server.config["num_blocks"] * server.config["block_size"] == 4096
        assert server.config["max_num_seqs"] == 7
    assert longest_of([_asked("a", 3, 4), _asked("b", 5, 1)]) == 7


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ((255, 1, 1), "--tokens: 255; valid: at least 256"),
        ((256, 0, 1), "--slots: 0; valid: at least 1"),
        ((256, 4, 3), "--budget: 3; valid: at least 4"),
    ],
)
def test_a_server_that_cannot_be_is_refused(asked, line):
    with pytest.raises(InputError) as refusal:
        check_servers(*asked)
    assert str(refusal.value) == line
