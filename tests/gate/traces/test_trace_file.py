"""Trace files: what is read of them, and one clear line where there is nothing to read."""

import gzip
import io
import json

import pytest

from schedproof.gate.files.scenario_file import FileError
from schedproof.gate.traces.run_events import (
    Aborted,
    Added,
    Begun,
    Crashed,
    Cut,
    NotBegun,
    Rejected,
    Stepped,
    Stopped,
)
from schedproof.gate.traces.trace_file import MAX_LINE, Source, open_trace, read_trace

from ..trace_build import Line, bent, recorded, scenario, text, without_output_lens

OK: Line = {"ok": True}
STEP: Line = {"op": "step"}
START, STARTED, *REST = recorded(scenario())
BEGIN = [START, STARTED]
ADD = next(line for line in REST if line.get("op") == "add")
SEEN: Line = next(line["step"] for line in REST if "step" in line)


def events(data, **meant):
    source = Source("t", io.BufferedReader(io.BytesIO(data)), lambda: 0, None)  # type: ignore[arg-type]
    return [*read_trace(source, **meant)]


def kinds(data):
    return [type(event).__name__ for event in events(data)]


def test_every_operation_is_an_event_with_the_line_of_its_request():
    lines = [
        *(*BEGIN, ADD, OK, ADD, {"ok": False, "error": "rejected", "message": "no"}),
        *({"op": "abort", "id": "a"}, OK, {"op": "abort", "id": "a", "inside": True}, OK),
        *({"op": "abort", "id": "a"}, {"ok": False, "error": "unsupported", "message": "no"}),
        *(STEP, {"ok": True, "step": SEEN}),
        *(STEP, {"ok": False, "error": "crashed", "message": "ouch", "traceback": "..."}),
        *({"op": "stop"}, OK, START, {"ok": False, "error": "config", "message": "no"}),
    ]
    seen = events(text(lines))
    assert [event.line for event in seen] == [1, 3, 5, 7, 9, 11, 13, 15, 17, 19]
    begun, added, refused, before, inside, unsupported, stepped, crashed, stopped, not_begun = seen
    assert isinstance(begun, Begun)
    assert (begun.system, begun.revision, begun.config) == ("spyre", "sound", START["config"])
    assert "tkv" in begun.started.observes
    assert isinstance(added, Added)
    assert (added.request.for_target(), added.open_ended) == (ADD["request"], False)
    assert refused == Rejected(5, "add", added.request, "no")
    assert before == Aborted(7, "a", False)
    assert inside == Aborted(9, "a", True)
    assert unsupported == Rejected(11, "abort")
    assert isinstance(stepped, Stepped)
    assert stepped.step.scheduled == SEEN["scheduled"]
    assert crashed == Crashed(15, "ouch")
    assert stopped == Stopped(17)
    assert isinstance(not_begun, NotBegun)
    assert not_begun.why == "config: no"


def test_a_request_may_leave_open_how_much_it_generates():
    added = [e for e in events(text(without_output_lens([*BEGIN, *REST]))) if isinstance(e, Added)]
    assert [(event.open_ended, event.request.output_len) for event in added] == [(True, None)] * 3


def test_blank_lines_other_line_ends_and_a_last_line_without_one_are_no_matter():
    data = text([*BEGIN, STEP, {"ok": True, "step": SEEN}])
    assert kinds(data) == ["Begun", "Stepped"]
    assert kinds(data.rstrip()) == ["Begun", "Stepped"]
    assert kinds(b"\n" + data.replace(b"\n", b"\r\n \n")) == ["Begun", "Stepped"]


def test_another_system_or_revision_may_be_meant():
    [begun] = events(text(BEGIN), revision="2.5.2")
    assert isinstance(begun, Begun)
    assert begun.revision == "2.5.2"
    with pytest.raises(FileError, match=r"line 1: \$\.config\.\w+: unknown key; valid: block_size"):
        events(text(BEGIN), system="nano_vllm", revision="documented")


def test_of_a_killed_recorder_everything_before_the_cut_is_read():
    whole = text([*BEGIN, STEP, {"ok": True, "step": SEEN}, STEP])
    data = whole + text([{"ok": True, "step": SEEN}])
    for length in range(len(whole) + 1, len(data) - 1):
        *before, cut = events(data[:length])
        assert [type(event) for event in before] == [Begun, Stepped]
        assert cut == Cut(6, "the last line is truncated")
    assert [type(event) for event in events(data[:-1])] == [Begun, Stepped, Stepped]
    assert events(whole)[-1] == Cut(
        5,
        'its "step" has no reply: the record ends there, or the target died or hung during this '
        "operation",
    )
    assert events(whole[:-3])[-1] == Cut(5, "the last line is truncated")


def test_a_packed_file_is_read_up_to_where_it_is_cut(tmp_path):
    lines = [*BEGIN, *[STEP, {"ok": True, "step": SEEN}] * 500]
    packed = gzip.compress(text(lines), mtime=0)
    for length, count in ((len(packed), 501), (len(packed) * 2 // 3, None)):
        (tmp_path / "t.gz").write_bytes(packed[:length])
        with open_trace(str(tmp_path / "t.gz")) as source:
            seen = [*read_trace(source)]
        if count is None:
            cut = seen[-1]
            assert isinstance(cut, Cut)
            assert cut.why == "the compressed file is truncated there"
            assert [type(event) for event in seen[:-1]][:20] == [Begun, *[Stepped] * 19]
        else:
            assert len(seen) == count


def test_a_packed_file_that_is_damaged_is_one_line(tmp_path):
    packed = bytearray(gzip.compress(text(BEGIN), mtime=0))
    packed[-8] ^= 0xFF  # of the checksum
    (tmp_path / "t.gz").write_bytes(packed)
    with open_trace(str(tmp_path / "t.gz")) as source, pytest.raises(FileError) as error:
        list(read_trace(source))
    assert "the compressed file is damaged" in str(error.value)


def step(**changes):
    return {"ok": True, "step": SEEN | changes}


def added(**changes):
    return {"op": "add", "request": ADD["request"] | changes}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([{"op": "jump"}], '1: $.op: "jump"; valid: start, add, abort, control, step, stop'),
        ([{"op": 3}], "1: $.op: 3; valid: start, "),
        ([{}], "1: $.op: null; valid: start, "),
        ([OK], "1: a reply without its request; valid: a line with op"),
        ([STEP], '1: $.op: "step" before the target accepted a start'),
        ([START, START], '2: the reply to "start" is missing; valid: a line with ok'),
        ([START, {"ok": 1}], "2: $.ok: 1; valid: true or false"),
        ([START, OK], "2: $.name: missing; valid: controls, defaults, name, observes, ok, version"),
        (
            [START, STARTED | {"note": 1}],
            "2: $.note: unknown key; valid: controls, defaults, name, observes, ",
        ),
        ([START, STARTED | {"observes": 4}], "2: $: observes is 4; valid: a list of field names"),
        ([START | {"system": "x"}, STARTED], "1: $.system: 'x' is not a system; valid: spyre, "),
        ([START | {"system": 4}, STARTED], "1: $.system: 4; valid: a string"),
        ([START | {"revision": "x"}, STARTED], "1: $.revision: 'x' is not a revision of spyre"),
        ([START | {"config": []}, STARTED], "1: $.config: []; valid: an object"),
        ([START | {"config": {}}, STARTED], "1: $.config.block_size: missing; valid: block_size"),
        (
            [START | {"config": START["config"] | {"block_size": 0}}, STARTED],
            "1: $.config.block_size: 0: Expected `int` >= 1",
        ),
        ([*BEGIN, START | {"more": 1}], "3: $.more: unknown key; valid: config, op, "),
        ([*BEGIN, {"op": "abort"}, OK], "3: $.id: missing; valid: id, inside, op"),
        ([*BEGIN, {"op": "abort", "id": 3}, OK], "3: $.id: 3; valid: a string"),
        (
            [*BEGIN, {"op": "abort", "id": "a", "inside": 1}, OK],
            "3: $.inside: 1; valid: true or false",
        ),
        ([*BEGIN, {"op": "add", "request": 3}, OK], "3: $.request: 3; valid: an object"),
        (
            [*BEGIN, added(arrival=3), OK],
            "3: $.request.arrival: unknown key; valid: accepted, cache_salt, enco",
        ),
        ([*BEGIN, added(max_tokens=0), OK], "3: $.request.max_tokens: 0: Expected `int` >= 1"),
        ([*BEGIN, added(prompt=[["a"]]), OK], '3: $.request.prompt[0]: ["a"]: Expected `array`'),
        ([*BEGIN, added(output_len=99), OK], "3: $.request.output_len: 99 is more than max_tokens"),
        ([*BEGIN, ADD, {"ok": False}], "4: $.error: missing; valid: error, message, ok, traceback"),
        (
            [*BEGIN, ADD, {"ok": False, "error": "config"}],
            '4: $.error: "config" to "add"; valid: rejected or crashed',
        ),
        ([*BEGIN, STEP, OK], "4: $.step: missing; valid: block_changes, ok, step"),
        ([*BEGIN, STEP, {"ok": True, "step": 3}], "4: $.step: 3; valid: the step observation"),
        ([*BEGIN, STEP, step(tvk=3)], "4: $.step.tvk: unknown key; valid: blocks, cache_events, "),
        ([*BEGIN, STEP, step(tkv="x")], '4: $.step.tkv: "x": Expected `int | null`, got `str`'),
        (
            [*BEGIN, STEP, step(scheduled={"a": -1})],
            '4: $.step.scheduled: {"a": -1}: Expected `int` >= 0',
        ),
        ([*BEGIN, STEP, step(tkv=10**15 + 1)], "4: $.step.tkv: 1000000000000001: Expected"),
        ([*BEGIN, STEP, step(tkv=10**4000)], "4: $.step.tkv: 1000000000"),
        (
            [*BEGIN, STEP, step(left_pad_blocks={"a": 10**4000})],
            '4: $.step.left_pad_blocks: {"a": 1000000000',
        ),
        (
            [*BEGIN, STEP, step(emitted=None)],
            "4: $.step.emitted: null, but promised in `observes` by the start on line 1",
        ),
        (
            [*BEGIN, STEP, {"ok": True, "step": {"kind": "idle", "scheduled": {}}}],
            "4: $.step.blocks: missing, but promised in `observes` by the start on line 1",
        ),
        ([*BEGIN, STEP, step(kind="idle")], '4: $.step.kind: "idle" with 1 requests scheduled'),
        ([*BEGIN, STEP, step(kind="rest")], '4: $.step.kind: "rest": Invalid enum value'),
    ],
)
def test_what_is_no_trace_is_one_line_that_names_line_and_place(lines, message):
    with pytest.raises(FileError) as error:
        events(text(lines))
    assert str(error.value).startswith(f"t: line {message}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"hello\n", "not JSON (invalid character (byte 0)): 'hello'; valid: one object per line"),
        (b'{"op": "step"} {}\n', "not JSON (trailing characters (byte 16)): "),
        (b'{"op": "ste\n', "not JSON (invalid character"),
        (b"[" * 10_000 + b"\n", "not JSON (maximum recursion depth exceeded"),
        (b"[]\n", "[]; valid: one object per line"),
        (b'{"op": "st\xffep"}\n', "not UTF-8 (invalid start byte)"),
        (b'{"op": "step", "op": "stop"}\n', "not JSON: key 'op' is given twice in one object"),
        (b'{"op": NaN}\n', "not JSON (invalid character (byte 7))"),
        (b"{" + b" " * MAX_LINE + b"}\n", f"longer than {MAX_LINE} bytes"),
    ],
    ids=[
        *("words", "two objects", "no end", "deep", "a list", "not UTF-8", "key twice"),
        *("not a number", "huge"),
    ],
)
def test_what_is_no_json_is_one_line(line, message):
    with pytest.raises(FileError) as error:
        events(text(BEGIN) + line)
    assert str(error.value).startswith(f"t: line 3: {message}")
    assert len(str(error.value)) < 400


def test_a_request_that_would_hold_too_many_blocks_is_one_line():
    start, reply = recorded(scenario(max_model_len=10**9, max_batch_tkv=10**9))[:2]
    add = {"op": "add", "request": {"id": "a", "prompt": [["a", 10**8]], "max_tokens": 3}}
    refused = r"t: line 3: \$\.request: 100,000,003 tokens: .* hold 25,000,001 blocks; valid: "
    with pytest.raises(FileError, match=refused):
        events(text([start, reply, add, OK]))


def test_blank_lines_without_end_are_refused():
    """A compressed file may have billions."""
    with pytest.raises(FileError, match=r"line \d+: 10,000 blank lines in a row; valid: one "):
        events(text(BEGIN) + b"\n \r\n" * 5_001)


def test_a_key_twice_is_found_at_any_depth_and_a_colon_in_a_name_is_none():
    twice = json.dumps(step()).replace('"computed": {', '"computed": {"a": 1, "a": 2, ').encode()
    with pytest.raises(FileError, match="line 4: not JSON: key 'a' is given twice"):
        events(text([*BEGIN, STEP]) + twice + b"\n")
    named = bent([*BEGIN, STEP, step()], 0, lambda seen: seen.update(waiting=["a:b", ":"]))
    assert kinds(text(named)) == ["Begun", "Stepped"]


def test_a_name_is_shown_as_one_printable_line():
    with pytest.raises(FileError) as error:
        events(text([*BEGIN, STEP | {"a\n\x1b[31m": 1}]))
    assert str(error.value) == "t: line 3: $.a\\n\\x1b[31m: unknown key; valid: op"


@pytest.mark.parametrize(
    ("name", "message"),
    [("nothing", "nothing: cannot be read (No such file"), (".", ".: cannot be read (Is a dir")],
)
def test_a_file_that_cannot_be_read_is_one_line(name, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileError) as error, open_trace(name):
        pass
    assert str(error.value).startswith(message)


def with_changes(*changes):
    """A trace whose steps say how blocks changed."""
    seen = {name: value for name, value in SEEN.items() if name != "blocks"}
    replies = [{"ok": True, "step": seen, "block_changes": change} for change in changes]
    return text([*BEGIN, *(line for reply in replies for line in (STEP, reply))])


def tables(data):
    return [event.step.blocks for event in events(data) if isinstance(event, Stepped)]


def test_blocks_may_be_said_by_what_changed():
    data = with_changes({"a": [0, [1, 2]]}, {"a": [2, [3]], "b": [0, [7]]}, {"a": [1, [9]]}, {})
    last = {"a": (1, 9), "b": (7,)}
    assert tables(data) == [{"a": (1, 2)}, {"a": (1, 2, 3), "b": (7,)}, last, last]
    assert tables(with_changes({"a": [0, [1]], "b": [0, []]}, {"a": None})) == [
        {"a": (1,), "b": ()},
        {"b": ()},
    ]


def test_blocks_that_did_not_change_are_one_table():
    first, second = tables(with_changes({"a": [0, [1, 2]], "b": [0, [3]]}, {"b": [1, [4]]}))
    assert second["a"] is first["a"]


def test_changes_follow_steps_that_say_all_blocks():
    whole = {"ok": True, "step": SEEN | {"blocks": {"a": [4, 5]}}}
    data = text([*BEGIN, STEP, whole]) + with_changes({"a": [1, [6]]})[len(text(BEGIN)) :]
    assert tables(data) == [{"a": (4, 5)}, {"a": (4, 6)}]


def test_a_new_run_has_no_blocks_of_the_one_before():
    data = with_changes({"a": [0, [1]]}) + with_changes({})
    assert tables(data) == [{"a": (1,)}, {}]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (3, "$.block_changes: 3: Expected `object`, got `int`"),
        ({"a": [1, [2]]}, "$.block_changes.a[0]: 1; valid: 0 to 0, its blocks before the step"),
        ({"a": [0, [-2]]}, '$.block_changes: {"a": [0, [-2]]}: Expected `int` >= 0'),
        ({"a": [0]}, '$.block_changes: {"a": [0]}: Expected `array` of length 2, got 1'),
    ],
)
def test_changes_that_mean_nothing_are_one_line(changes, says):
    with pytest.raises(FileError) as error:
        events(with_changes(changes))
    assert str(error.value).startswith(f"t: line 4: {says}")


def test_changes_and_all_blocks_are_not_both_said():
    lines = [*BEGIN, STEP, {"ok": True, "step": SEEN, "block_changes": {}}]
    with pytest.raises(
        FileError, match=r"block_changes: \$.step.blocks is given as well; valid: one"
    ):
        events(text(lines))
