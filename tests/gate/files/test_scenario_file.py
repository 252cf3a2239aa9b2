"""The file edge: one line that says what is wrong, and nothing lost between write and read."""

import json
import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.gate.files import scenario_file
from schedproof.gate.files.disk import is_deep
from schedproof.gate.files.scenario_file import (
    FileError,
    read_scenario,
    scenario_json,
    write_scenario,
)
from schedproof.model.scenario import FORMAT, Expectation, Request, Scenario
from schedproof.model.spyre.config import REVISIONS
from schedproof.model.systems import full_config
from schedproof.spec.systems import SYSTEMS

REQUEST = {"id": "r0", "arrival": 0, "prompt": [["r0", 40]], "max_tokens": 8}
GOOD = {"format": FORMAT, "system": "spyre", "requests": [REQUEST]}


def problem(path, content):
    """What is said about a file of this content, after the file's name; always one line."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(FileError) as caught:
        read_scenario(path)
    line = str(caught.value)
    assert line.startswith(f"{path}: ")
    assert "\n" not in line
    return line.removeprefix(f"{path}: ")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "scenario.json"


def long_one(tokens, **config):
    config |= {"block_size": 1, "max_num_batched_tokens": 2**29, "max_model_len": 2**29}
    request = {**REQUEST, "prompt": [["r0", tokens]]}
    return {"format": FORMAT, "system": "vllm", "requests": [request], "config": config}


@pytest.mark.parametrize(
    "scenario",
    [
        long_one(10**6),
        long_one(10**8, num_blocks=10**6),  # refused by the model, so it holds nothing
        long_one(131_072, num_blocks=10**8),
    ],
)
def test_real_sizes_and_requests_that_never_run_are_read(file, scenario):
    file.write_text(json.dumps(scenario))
    assert read_scenario(file).requests[0].prompt == (
        ("r0", scenario["requests"][0]["prompt"][0][1]),
    )


def test_a_run_that_would_hold_too_many_blocks_is_refused(file):
    assert problem(file, json.dumps(long_one(10**8))) == (
        "$.requests[0]: 100,000,008 tokens: the requests that may run together (1) hold "
        "100,000,008 blocks; valid: at most 1,048,576 (you can set $.config.num_blocks)"
    )
    groups = [{"kind": "full"}, *[{"kind": "sliding_window", "window": 2}] * 9]
    assert "hold 1,200,080 blocks" in problem(file, json.dumps(long_one(120_000, kv_groups=groups)))
    several = long_one(10**6)
    several["requests"] = [{**several["requests"][0], "id": f"r{number}"} for number in range(9)]
    several["config"] |= {"max_num_seqs": 3}
    assert "together (3) hold 3,000,024 blocks" in problem(file, json.dumps(several))


def test_a_scenario_is_complete_once_read(file):
    file.write_text(json.dumps(GOOD))
    scenario = read_scenario(file)
    assert scenario.revision == "sound"
    assert scenario.config == full_config("spyre", "sound", {})
    assert scenario.requests[0].prompt == (("r0", 40),)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("", "not JSON: Expecting value (line 1, column 1)"),
        ("hello", "not JSON: Expecting value (line 1, column 1)"),
        ('{"format": NaN}', "not JSON: NaN is not a finite number"),
        ('{"format": -Infinity}', "not JSON: -Infinity is not a finite number"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "not JSON: key 'c' is given twice in one object"),
        (b'{"a": "\xff"}', "byte 7 is not UTF-8"),
        ("[]", "$: []; valid: a scenario object"),
        ("3", "$: 3; valid: a scenario object"),
        ("{}", f'$.format: null; supported: "{FORMAT}"'),
        (
            '{"format": "schedproof/scenario@2"}',
            f'$.format: "schedproof/scenario@2"; supported: "{FORMAT}"',
        ),
        ('{"format": 1}', f'$.format: 1; supported: "{FORMAT}"'),
        ('{"config": {"own": ' + "[" * 39 + "]" * 39 + "}}", "nested deeper than 40 levels"),
        ('{"a": ' * 100_000 + "}" * 100_000, "nested deeper than 40 levels"),
    ],
)
def test_what_is_no_scenario_file_is_refused(file, content, line):
    assert problem(file, content) == line


def test_brackets_beside_brackets_and_in_texts_are_not_within_each_other():
    assert not is_deep(
        b'{"a\\\\": [' + b'[{"b": "[[{\\"]]"}, [3]],' * 100 + b'"' + b"[" * 100 + b'"]}'
    )
    assert is_deep(b'{"a": ' + b'[{"b": 3}, {"c": ' * 20 + b"1" + b"}]" * 20 + b"}")


def test_a_truncated_file_is_never_taken_for_a_scenario(file):
    whole = json.dumps(GOOD)
    for end in range(len(whole)):
        assert problem(file, whole[:end]).startswith("not JSON: ")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"requests": []}, "$.requests: []: Expected `array` of length >= 1"),
        ({"requests": {}}, "$.requests: {}: Expected `array`, got `object`"),
        ({"system": 3}, "$.system: 3: Expected `str`, got `int`"),
        ({"system": "spire"}, f"$.system: 'spire' is not a system; valid: {', '.join(SYSTEMS)}"),
        (
            {"revision": "2.1"},
            f"$.revision: '2.1' is not a revision of spyre; valid: {', '.join(REVISIONS)}",
        ),
        ({"config": 3}, "$.config: 3: Expected `object`, got `int`"),
        ({"config": {"block_size": 0}}, "$.config.block_size: 0: Expected `int` >= 1"),
        ({"config": {"interleave": 1}}, "$.config.interleave: 1: Expected `bool`, got `int`"),
        (
            {"config": {"chunk_size": 100}},
            "$.config.chunk_size: 100 is not a multiple of block_size (64)",
        ),
        (
            {"expect": {"holds": False}},
            "$.expect.holds: false; valid: true (to expect broken rules, list their ids in "
            "`violates`)",
        ),
        (
            {"expect": {"steps": [{"step": 0}, {"step": -1}]}},
            "$.expect.steps[1].step: -1; valid: the number of a step, from 0",
        ),
    ],
)
def test_a_value_that_means_nothing_is_shown_with_its_path(file, changes, line):
    assert problem(file, json.dumps(GOOD | changes)) == line


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"id": ""}, 'id: "": Expected `str` of length >= 1'),
        ({"arrival": -1}, "arrival: -1: Expected `int` >= 0"),
        ({"arrival": 1.5}, "arrival: 1.5: Expected `int`, got `float`"),
        ({"prompt": []}, "prompt: []: Expected `array` of length >= 1"),
        ({"prompt": [["a", 0]]}, "prompt[0][1]: 0: Expected `int` >= 1"),
        ({"prompt": [["a", 1], ["b"]]}, 'prompt[1]: ["b"]: Expected `array` of length 2, got 1'),
        ({"max_tokens": 0}, "max_tokens: 0: Expected `int` >= 1"),
        ({"output_len": 9}, "output_len: 9 is more than max_tokens (8); valid: 1 to 8"),
        ({"id": "r"}, "id: 'r' is already the id of requests[0]"),
        (
            {"abort_inside": True},
            "abort_inside: true without abort_at; valid: add abort_at, the step in which to abort",
        ),
        ({"priority": "high"}, 'priority: "high": Expected `int`, got `str`'),
    ],
)
def test_a_request_that_means_nothing_is_shown_with_its_path(file, changes, line):
    requests = [REQUEST | {"id": "r"}, REQUEST | changes]
    assert problem(file, json.dumps(GOOD | {"requests": requests})) == f"$.requests[1].{line}"


def test_an_unknown_configuration_key_is_shown_with_the_valid_ones(file):
    line = problem(file, json.dumps(GOOD | {"config": {"blocksize": 64}}))
    assert line.startswith("$.config.blocksize: unknown key; valid: block_size, chunk_size, ")


@pytest.mark.parametrize("place", ["$", "$.requests[0]", "$.expect"])
def test_an_unknown_key_is_shown_with_the_path_of_its_object(file, place):
    data = GOOD | {"expect": {}, "requests": [dict(REQUEST)]}
    within: Any = {"$": data, "$.requests[0]": data["requests"][0], "$.expect": data["expect"]}
    within[place]["colour"] = "red"
    line = problem(file, json.dumps(data))
    assert line.startswith(f"{place}.colour: unknown key; valid: ")


def test_a_missing_key_is_named(file):
    assert "`system`" in problem(file, json.dumps({k: GOOD[k] for k in ("format", "requests")}))


def test_a_long_value_is_cut(file):
    assert len(problem(file, json.dumps(GOOD | {"requests": "x" * 10_000}))) < 200


@pytest.mark.parametrize("system", ["spyre", "vllm"])
def test_encoder_inputs_need_an_encoder(file, system):
    spoiled = {**GOOD, "system": system, "requests": [REQUEST | {"encoder_inputs": [0]}]}
    assert problem(file, json.dumps(spoiled)) == (
        "$.requests[0].encoder_inputs: [0] needs a vllm configuration with "
        "max_num_encoder_input_tokens and encoder_cache_size"
    )


def test_a_huge_file_is_refused_unread(file, monkeypatch):
    monkeypatch.setattr(scenario_file, "MAX_BYTES", 10)
    assert problem(file, json.dumps(GOOD)) == "larger than 10 bytes, the limit for a scenario"


def test_a_folder_or_nothing_in_the_files_place_is_one_line(tmp_path):
    with pytest.raises(FileError) as caught:
        read_scenario(tmp_path)
    assert str(caught.value) == f"{tmp_path}: cannot be read (Is a directory)"
    with pytest.raises(FileError, match=r"cannot be read \(No such file or directory\)"):
        read_scenario(tmp_path / "none.json")


@pytest.mark.parametrize("depth", [500, 5_000, 100_000])
def test_deep_nesting_is_refused_or_harmless(file, depth):
    nested = json.dumps(GOOD)[:-1] + ', "name": ' + "[" * depth + "]" * depth + "}"
    assert problem(file, nested)


TEXT = st.text(max_size=8)
NAMES = st.text(min_size=1, max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@st.composite
def requests(draw, name):
    most = draw(st.integers(1, 10**6))
    abort_at = draw(st.none() | st.integers(0, 10**6))
    return Request(
        id=name,
        arrival=draw(st.integers(0, 10**6)),
        prompt=tuple(draw(st.lists(st.tuples(NAMES, st.integers(1, 10**6)), min_size=1))),
        max_tokens=most,
        output_len=draw(st.integers(1, most - 1)) if most > 1 and draw(st.booleans()) else None,
        abort_at=abort_at,
        abort_inside=abort_at is not None and draw(st.booleans()),
        priority=draw(st.integers(-5, 5)),
    )


@st.composite
def scenarios(draw):
    """Scenarios as they are once read: revision and configuration complete."""
    revision = draw(st.sampled_from(REVISIONS))
    config = draw(st.fixed_dictionaries({}, optional={"max_num_seqs": st.integers(1, 64)}))
    numbers = st.integers(0, 10**6)
    steps = st.lists(st.builds(lambda n, rest: rest | {"step": n}, numbers, st.just({"tkv": 1})))
    return Scenario(
        name=draw(TEXT),
        system="spyre",
        revision=revision,
        config=full_config("spyre", revision, config),
        requests=tuple(
            draw(requests(name))
            for name in draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
        ),
        expect=draw(
            st.none()
            | st.just(Expectation(holds=True))
            | st.builds(Expectation, violates=st.lists(NAMES).map(tuple))
            | st.builds(Expectation, steps=steps.map(tuple))
        ),
        origin=draw(st.none() | st.dictionaries(TEXT, JSON, max_size=3)),
    )


@pytest.mark.slow
@given(scenarios())
def test_what_is_written_is_what_is_read(scenario):
    with TemporaryDirectory() as folder:
        path = write_scenario(scenario, Path(folder) / "new", "SPY-R01")
        assert list(path.parent.iterdir()) == [path]
        origin = {**(scenario.origin or {})}
        origin["rule"] = origin.get("rule") or "SPY-R01"
        assert read_scenario(path) == msgspec.structs.replace(scenario, origin=origin)
        assert write_scenario(read_scenario(path), path.parent, "SPY-R01") == path
        assert list(path.parent.iterdir()) == [path]


@given(JSON)
def test_any_json_value_is_refused_in_one_line(value):
    with TemporaryDirectory() as folder:
        assert problem(Path(folder) / "f", json.dumps(value))


PLACES: list[list[str | int]] = [
    *([key] for key in ("name", "system", "revision", "config", "requests", "expect", "origin")),
    *(["config", key] for key in full_config("spyre", "sound", {})),
    *(["requests", 0, key] for key in Request.__struct_fields__),
    *(["expect", key] for key in Expectation.__struct_fields__),
    *(["requests", 0], ["requests", 0, "prompt", 0], ["requests", 0, "prompt", 0, 1]),
]
# Keys of these objects are not free to name: strange ones have a test of their own.
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.just("k"), inner, max_size=1),
    max_leaves=5,
)


@pytest.mark.slow
@given(st.sampled_from(PLACES), PLAIN)
def test_any_value_anywhere_is_read_or_refused_in_one_line(place, value):
    data: Any = json.loads(json.dumps(GOOD | {"config": {}, "expect": {}}))
    within = data
    for key in place[:-1]:
        within = within[key]
    within[place[-1]] = value
    with TemporaryDirectory() as folder:
        path = Path(folder) / "f"
        path.write_text(json.dumps(data))
        try:
            read_scenario(path)
        except FileError as error:
            line = str(error)
        else:
            line = "fine"
    assert "\n" not in line


def test_the_name_depends_on_what_is_run_and_on_nothing_else(tmp_path):
    scenario = msgspec.convert(GOOD, Scenario)
    path = write_scenario(scenario, tmp_path, "SPY-R07")
    assert re.fullmatch(r"SPY-R07-[0-9a-f]{10}\.json", path.name)
    reported = msgspec.structs.replace(
        scenario, name="n", origin={"engine": "z3"}, expect=Expectation(holds=True)
    )
    assert write_scenario(reported, tmp_path, "SPY-R07") == path
    for changes in ({"revision": "2.1.2"}, {"config": {"chunk_size": 64}}):
        other = msgspec.structs.replace(scenario, **changes)
        assert write_scenario(other, tmp_path, "SPY-R07") != path


def test_a_folder_that_cannot_be_written_to_is_one_line(file):
    file.write_text("in the way")
    with pytest.raises(FileError, match="cannot be written to"):
        write_scenario(msgspec.convert(GOOD, Scenario), file, "R")


def test_an_output_of_max_tokens_reads_back_as_the_same_output(tmp_path):
    data = GOOD | {"requests": [REQUEST | {"output_len": 8}]}
    path = write_scenario(msgspec.convert(data, Scenario), tmp_path, "R")
    assert read_scenario(path).requests[0].tokens_to_emit == 8


@pytest.mark.parametrize("key", ["a\nb", "a - at `$.b"])
@pytest.mark.parametrize("place", [(), ("config",)])
def test_a_strange_key_does_not_break_the_line_or_its_path(file, place, key):
    data: Any = json.loads(json.dumps(GOOD | {"config": {}}))
    (data["config"] if place else data)[key] = 1
    line = problem(file, json.dumps(data))
    assert json.dumps(key)[1:-1] in line or repr(key)[1:-1] in line


@pytest.mark.parametrize("place", ["top", "config"])
def test_a_lone_surrogate_in_a_key_is_a_file_error(file, place):
    data = GOOD | ({"\ud800": 1} if place == "top" else {"config": {"\ud800": 1}})
    assert problem(file, json.dumps(data))


@pytest.mark.parametrize("prompt", [[["r0", "\ud800"]], [["\ud800", 3]], "\ud800", ["\ud800"]])
def test_a_lone_surrogate_in_a_list_is_a_file_error(file, prompt):
    request = {"id": "r0", "arrival": 0, "prompt": prompt, "max_tokens": 1}
    assert "is not Unicode text" in problem(file, json.dumps(GOOD | {"requests": [request]}))
    assert "is not Unicode text" in problem(file, json.dumps(GOOD | {"requests": ["\ud800"]}))


def test_a_number_beyond_floats_does_not_become_a_file_that_cannot_be_read(file):
    file.write_text(json.dumps(GOOD | {"origin": {"seed": 0}}).replace(": 0}}", ": 1e999}}"))
    try:
        scenario = read_scenario(file)
    except FileError:
        return
    file.write_text(scenario_json(scenario))
    assert read_scenario(file) == scenario


def test_a_pipe_under_the_name_of_a_counterexample_is_replaced(tmp_path):
    scenario = msgspec.convert(GOOD, Scenario)
    path = write_scenario(scenario, tmp_path, "R")
    path.unlink()
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # without one, writing would wait for ever
    assert write_scenario(scenario, tmp_path, "R") == path
    os.close(reader)
    assert read_scenario(path).requests == scenario.requests


def test_a_counterexample_names_its_rule(tmp_path):
    scenario = msgspec.convert(GOOD | {"origin": {"seed": 3}}, Scenario)
    for name, origin in (("SPY-R07", {"seed": 3, "rule": "SPY-R07"}), ("diff-order", {"seed": 3})):
        assert read_scenario(write_scenario(scenario, tmp_path, name)).origin == origin


def test_a_counterexample_does_not_replace_an_entry_of_a_corpus_with_the_same_content(tmp_path):
    config = full_config("spyre", "sound", {})
    data = GOOD | {"revision": "sound", "config": config}
    scenario = msgspec.convert(data, Scenario)
    entry = msgspec.structs.replace(
        scenario, expect=Expectation(violates=("SPY-R07",)), origin={"rule": "R"}
    )
    path = write_scenario(entry, tmp_path, "R")
    before = path.read_bytes()
    assert write_scenario(scenario, tmp_path, "R") == path
    assert path.read_bytes() == before
    edited = msgspec.structs.replace(entry, config=config | {"max_num_seqs": 1})
    path.write_text(scenario_json(edited))
    assert write_scenario(scenario, tmp_path, "R") == path  # no longer what its name says
    assert read_scenario(path).expect is None
    path.write_text("{")
    assert read_scenario(write_scenario(scenario, tmp_path, "R")).requests == scenario.requests


def test_a_write_that_fails_leaves_no_partial_file_behind(tmp_path):
    scenario = msgspec.convert(GOOD, Scenario)
    path = write_scenario(scenario, tmp_path, "R")
    path.unlink()
    path.mkdir()
    with pytest.raises(FileError):
        write_scenario(scenario, tmp_path, "R")
    assert list(tmp_path.iterdir()) == [path]


def test_reading_and_writing_again_keeps_the_name_also_with_an_output_of_max_tokens(tmp_path):
    data = GOOD | {"revision": "sound", "config": full_config("spyre", "sound", {})}
    data |= {"requests": [REQUEST | {"output_len": 8}]}
    path = write_scenario(msgspec.convert(data, Scenario), tmp_path, "R")
    assert write_scenario(read_scenario(path), tmp_path, "R") == path
