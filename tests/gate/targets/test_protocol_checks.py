"""What a start and an add carry is read, or refused with its place, its value and what is valid."""

from typing import Any

import pytest

from schedproof.gate.targets.jsonl import ProtocolError
from schedproof.gate.targets.protocol_checks import (
    COUNT,
    EOS,
    FLAG,
    POSITIVE,
    SHARE,
    Output,
    RefusedError,
    check_keys,
    one_of,
    or_null,
    read_request,
    stream_tokens,
)

VALID: dict[str, Any] = {"id": "r0", "prompt": [["a", 2], ["b", 1]], "max_tokens": 3}


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (POSITIVE, [1, 10**9], [0, -1, 1.0, True, "1", None]),
        (COUNT, [0, 1], [-1, 0.0, False, None]),
        (FLAG, [True, False], [0, 1, None, "true"]),
        (SHARE, [0, 0.0, 0.99], [1, 1.0, -0.1, True, "0", None, float("nan")]),
        (or_null(POSITIVE), [None, 1], [0, False]),
        (one_of("fcfs", "priority"), ["fcfs"], ["FCFS", "", None, ["fcfs"]]),
    ],
)
def test_a_kind_takes_its_values_and_no_look_alikes(kind, good, bad):
    for value in good:
        check_keys({"key": value}, {"key": kind})
    for value in bad:
        with pytest.raises(RefusedError, match=r"^\$\.config\.key is .*; valid: ") as caught:
            check_keys({"key": value}, {"key": kind})
        assert str(caught.value).endswith(kind.valid)


def test_unknown_and_missing_keys_are_named():
    with pytest.raises(RefusedError, match=r"^\$\.config\.colour: unknown key; valid keys are a$"):
        check_keys({"a": True, "colour": 1}, {"a": FLAG})
    with pytest.raises(RefusedError, match=r"^\$\.config\.b is missing; valid: true or false$"):
        check_keys({"a": True}, {"a": FLAG, "b": FLAG})


def test_a_request_is_read_with_what_may_be_left_out():
    asked = read_request(VALID)
    assert asked.prompt == [*stream_tokens("a", 2), *stream_tokens("b", 1)]
    assert (asked.max_tokens, asked.priority) == (3, 0)
    assert asked.output == Output("r0", 3, ends_with_eos=False)
    assert read_request(VALID | {"output_len": 2, "priority": -1}).output.ends_with_eos


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"prompt": [["a"]]}, "is not valid"),
        ({"prompt": None}, "is not valid"),
        ({"prompt": [[1, 2]]}, "the names of streams must be strings"),
        ({"prompt": [["a", 1.5]]}, "must be integers"),
        ({"max_tokens": True}, "must be integers"),
        ({"output_len": 4}, "output_len is 4; valid: 1 to max_tokens = 3"),
        ({"output_len": 0}, "output_len is 0; valid: 1 to max_tokens = 3"),
    ],
)
def test_what_is_no_request_is_a_protocol_error(changes, says):
    with pytest.raises(ProtocolError, match=says):
        read_request(VALID | changes)


@pytest.mark.parametrize("key", ["id", "prompt", "max_tokens"])
def test_what_a_request_must_have_is_missed(key):
    request = {name: value for name, value in VALID.items() if name != key}
    with pytest.raises(ProtocolError, match=f"KeyError: '{key}'"):
        read_request(request)


def test_tokens_are_those_of_the_format_and_go_on_where_they_stopped():
    # 2 + (crc32(b"r0") + 2654435761 * i) mod (2**31 - 3)
    assert stream_tokens("r0", 3) == [2047424809, 406893280, 913845396]
    assert stream_tokens("r0", 3)[1:] == stream_tokens("r0", 2, start=1)
    assert EOS not in stream_tokens("r0", 40_000)


def test_no_two_streams_of_a_run_with_5000_requests_begin_alike():
    names = [f"r{number}" for number in range(5_000)]
    streams = [*names, *(f"out:{name}" for name in names)]
    assert len({stream_tokens(stream, 1)[0] for stream in streams}) == len(streams)


def test_a_request_that_stops_early_ends_with_eos():
    early, late = Output("r0", 3, ends_with_eos=True), Output("r0", 3, ends_with_eos=False)
    generated = stream_tokens("out:r0", 3)
    assert [late.token(i) for i in range(3)] == generated
    assert [early.token(i) for i in range(3)] == [*generated[:2], EOS]
