"""The client of a session: what it sends to vLLM's scheduler, and when."""

from types import SimpleNamespace

import pytest

from schedproof.gate.targets.jsonl import ProtocolError
from schedproof.gate.targets.protocol_checks import RefusedError, read_request
from schedproof.gate.targets.vllm.sessions import Sending, Sessions, check_length

FIRST = {"id": "a", "prompt": [["a", 4]], "max_tokens": 2}
WAITS, RUNS = "WAITING_FOR_STREAMING_REQ", "RUNNING"


def turn(delay=0, tokens=3):
    return {"prompt": [["b", tokens]], "max_tokens": 2, "delay": delay}


def checked(*turns):
    return read_request({**FIRST, "turns": [*turns]})


def client(*turns):
    """A session, and the list of what it has sent."""
    sent = []
    sending = Sending(
        lambda name, turn: len(turn.prompt),
        lambda name: "end",
        sent.append,
        begins=lambda name: None,
    )
    sessions = Sessions(sending)
    request = checked(*turns)
    sessions.begin("a", request.output, request.turns)
    return sessions, sent


def requests(status):
    return {"a": SimpleNamespace(status=SimpleNamespace(name=status), is_finished=lambda: False)}


def test_an_input_is_sent_once_the_session_has_waited_for_its_delay():
    sessions, sent = client(turn(2))
    for _ in range(2):
        sessions.step(requests(RUNS))
        sessions.step(requests(WAITS))
        assert sent == []
    sessions.step(requests(WAITS))
    assert sent == [3, "end"]


def test_an_input_without_a_delay_is_sent_with_the_turn_before_it():
    sessions, sent = client(turn(None, 5), turn(0, 6), turn(None, 7))
    assert sent == [5]
    sessions.step(requests(WAITS))
    assert sent == [5, 6, 7, "end"]


def test_the_end_of_a_turn_is_not_the_end_of_its_session():
    sessions, _ = client(turn(None))
    first = sessions.output("a")
    output = SimpleNamespace(request_id="a", finish_reason="length")
    completion = {0: SimpleNamespace(outputs=[output])}
    sessions.turns_end(completion, requests(RUNS))
    assert output.finish_reason is None
    assert sessions.output("a") is not first
    output.finish_reason = "length"
    sessions.turns_end(completion, {})
    assert output.finish_reason == "length"


def test_a_session_that_has_ended_is_forgotten():
    sessions, sent = client(turn(0))
    sessions.step({})
    assert (sent, sessions.output("a")) == ([], None)


def test_the_turns_of_a_session_are_counted_together():
    assert check_length(checked(turn(), turn()), 16) == 16
    with pytest.raises(RefusedError, match="the turns of a have 16 tokens; max_model_len is 15"):
        check_length(checked(turn(), turn()), 15)


@pytest.mark.parametrize("turns", [7, [3], [turn("soon")], [turn(-1)], ["b"]])
def test_malformed_turns_are_refused(turns):
    with pytest.raises(ProtocolError, match="request 'a'"):
        read_request({**FIRST, "turns": turns})


def test_a_session_of_a_release_computes_only_its_new_inputs(vllm):
    vllm.begin(streaming_inputs=True)
    vllm.ask("a", max_tokens=2, turns=[turn(1), turn(None)])
    steps = vllm.finish()
    assert [step["scheduled"].get("a") for step in steps] == [8, 1, None, 3, 1, 3, 1]
    assert [name for name, step in enumerate(steps) if step["finished"]] == [6]
    assert [name for name, step in enumerate(steps) if step["parked"]] == [1, 2, 4]


def test_a_session_of_a_release_may_be_aborted_while_it_waits(vllm):
    vllm.begin(streaming_inputs=True)
    vllm.ask("a", max_tokens=1, turns=[turn(9)])
    vllm.step()
    vllm.abort("a")
    step = vllm.step()
    assert (step["finished"], step["waiting"], step["free_blocks"]) == ({"a": "aborted"}, [], 12)
