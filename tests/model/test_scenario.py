"""Scenarios in memory: what types cannot say, and what a target is sent."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.model.errors import InputError
from schedproof.model.scenario import Expectation, Request, Scenario, check_requests
from schedproof.model.spyre.config import REVISIONS, SpyreConfig
from schedproof.model.systems import full_config, make_model, resolve_revision


def request(name="a", **changes):
    given_: dict[str, Any] = {"arrival": 0, "prompt": (("a", 3),), "max_tokens": 4}
    return Request(id=name, **(given_ | changes))


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=5))
def test_prompt_len_is_the_sum_of_the_segments(lengths):
    prompt = tuple((f"s{number}", length) for number, length in enumerate(lengths))
    assert request(prompt=prompt).prompt_len == sum(lengths)


def test_a_request_generates_max_tokens_unless_told_otherwise():
    assert request().tokens_to_emit == 4
    assert request(output_len=2).tokens_to_emit == 2


def test_a_target_is_sent_every_key_of_the_protocol_and_no_plan():
    """Neither when it arrives nor when it is aborted: the gate does these."""
    sent = request(output_len=2, abort_at=3, abort_inside=True, priority=5).for_target()
    assert sent == {
        "id": "a",
        "prompt": [["a", 3]],
        "max_tokens": 4,
        "output_len": 2,
        "priority": 5,
    }
    assert request().for_target()["output_len"] == 4


@pytest.mark.parametrize(
    ("requests", "line"),
    [
        (
            (request(), request("b"), request()),
            "$.requests[2].id: 'a' is already the id of requests[0]",
        ),
        (
            (request(), request("b", output_len=5)),
            "$.requests[1].output_len: 5 is more than max_tokens (4); valid: 1 to 4",
        ),
        (
            (request(abort_inside=True),),
            "$.requests[0].abort_inside: true without abort_at; "
            "valid: add abort_at, the step in which to abort",
        ),
    ],
)
def test_what_the_types_cannot_say_is_refused_with_its_path(requests, line):
    with pytest.raises(InputError) as caught:
        check_requests(requests)
    assert str(caught.value) == line


def test_requests_that_mean_something_pass():
    check_requests((request(output_len=4), request("b", abort_at=0, abort_inside=True)))


def test_the_revision_is_the_first_of_its_system_where_none_is_given():
    assert resolve_revision("spyre", None) == REVISIONS[0] == "sound"
    assert [resolve_revision("spyre", revision) for revision in REVISIONS] == list(REVISIONS)


@pytest.mark.parametrize(
    ("system", "revision", "path", "valid"),
    [("spire", None, "$.system", "spyre"), ("spyre", "2.1", "$.revision", "sound, documented")],
)
def test_an_unknown_system_or_revision_names_the_valid_ones(system, revision, path, valid):
    with pytest.raises(InputError) as caught:
        resolve_revision(system, revision)
    assert caught.value.path == path
    assert f"valid: {valid}" in caught.value.problem


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_full_configuration_has_every_key_at_the_formats_default(revision):
    """Each default is in the tests of Spyre's configuration."""
    defaults = {key: getattr(SpyreConfig(), key) for key in SpyreConfig.__struct_fields__}
    given_ = {"max_num_seqs": 3, "interleave": False}
    assert full_config("spyre", revision, given_) == defaults | given_


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_full_configuration_is_its_own_full_configuration(revision):
    full = full_config("spyre", revision, {})
    assert full_config("spyre", revision, full) == full
    assert full.keys() == set(SpyreConfig.__struct_fields__)


@pytest.mark.parametrize(
    ("revision", "config", "line"),
    [
        (
            "sound",
            {"chunk_size": 100},
            "$.config.chunk_size: 100 is not a multiple of block_size (64)",
        ),
        ("sound", {"block_size": "64"}, "$.config.block_size: '64': Expected `int`, got `str`"),
        ("sound", {"num_blocks": 0}, "$.config.num_blocks: 0: Expected `int` >= 1"),
        ("sound", {"interleave": 1}, "$.config.interleave: 1: Expected `bool`, got `int`"),
        (
            "2.1.2",
            {"long_output_priority": True},
            "$.config.long_output_priority: true needs decode pausing, which revision 2.1.2 does "
            "not have; valid: false, or revision 2.5.2",
        ),
    ],
)
def test_an_impossible_configuration_is_refused_with_path_and_value(revision, config, line):
    with pytest.raises(InputError) as caught:
        full_config("spyre", revision, config)
    assert str(caught.value) == line


@pytest.mark.parametrize("revision", REVISIONS)
def test_every_revision_has_a_model_in_its_full_configuration(revision):
    model = make_model("spyre", revision, full_config("spyre", revision, {"max_num_seqs": 3}))
    assert (model.revision.name, model.config) == (revision, SpyreConfig(max_num_seqs=3))


def test_a_model_is_made_of_what_exists():
    with pytest.raises(
        InputError, match=r"^\$\.revision: '2\.5' is not a revision of spyre; valid: "
    ):
        make_model("spyre", "2.5", {})


def test_scenarios_and_requests_do_not_change():
    scenario = Scenario(system="spyre", requests=(request(),))
    for thing, field in ((scenario, "name"), (scenario.requests[0], "id")):
        with pytest.raises(AttributeError):
            setattr(thing, field, "x")


def test_scenarios_do_not_share_their_default_configuration():
    first, other = (Scenario(system="spyre", requests=(request(),)) for _ in range(2))
    first.config["block_size"] = 4
    assert other.config == {}


def test_a_request_cannot_be_read_with_a_key_that_is_not_in_the_format():
    plain = msgspec.to_builtins(request())
    with pytest.raises(msgspec.ValidationError, match="colour"):
        msgspec.convert(plain | {"colour": "red"}, Request)


def read(**changes):
    return msgspec.convert(msgspec.to_builtins(request()) | changes, Request)


@pytest.mark.parametrize(
    ("key", "least", "most"),
    [
        ("arrival", 0, 10**7),
        ("abort_at", 0, 10**7),
        ("max_tokens", 1, 10**9),
        ("output_len", 1, 10**9),
    ],
)
def test_numbers_of_a_request_have_bounds_that_no_run_reaches(key, least, most):
    assert [getattr(read(**{key: value}), key) for value in (least, most)] == [least, most]
    for value in (least - 1, most + 1):
        with pytest.raises(msgspec.ValidationError, match=key):
            read(**{key: value})


def test_a_prompt_has_segments_and_a_segment_a_name_and_tokens():
    assert read(prompt=[["s", 1], ["t", 10**9]]).prompt == (("s", 1), ("t", 10**9))
    for prompt in ([], [["s", 0]], [["s", 10**9 + 1]], [["", 1]], [["s"]], [["s", 1, 1]]):
        with pytest.raises(msgspec.ValidationError, match="prompt"):
            read(prompt=prompt)


def test_what_a_request_leaves_out_is_at_the_formats_default():
    plain = request()
    assert (plain.output_len, plain.abort_at, plain.abort_inside, plain.priority) == (
        None,
        None,
        False,
        0,
    )


def test_names_are_not_empty_and_a_scenario_has_a_request():
    with pytest.raises(msgspec.ValidationError, match="id"):
        read(id="")
    plain = msgspec.to_builtins(Scenario(system="s", revision="r", requests=(request("i"),)))
    kept = msgspec.convert(plain, Scenario)
    assert (kept.system, kept.revision, kept.requests[0].id) == ("s", "r", "i")
    for change in ({"system": ""}, {"revision": ""}, {"requests": []}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(plain | change, Scenario)


def test_what_a_scenario_leaves_out_is_at_the_formats_default():
    scenario = Scenario(system="spyre", requests=(request(),))
    assert (scenario.format, scenario.name, scenario.config) == ("schedproof/scenario@1", "", {})
    assert (scenario.revision, scenario.expect, scenario.origin) == (None, None, None)


def test_a_scenario_or_an_expectation_cannot_be_read_with_a_key_that_is_not_in_the_format():
    plain = msgspec.to_builtins(Scenario(system="spyre", requests=(request(),)))
    for change in ({"colour": "red"}, {"expect": {"colour": "red"}}):
        with pytest.raises(msgspec.ValidationError, match="colour"):
            msgspec.convert(plain | change, Scenario)


def test_an_expectation_says_only_what_it_expects():
    expect = Expectation(holds=True)
    assert (expect.violates, expect.steps) == (None, None)
    assert msgspec.to_builtins(expect) == {"holds": True}
    assert msgspec.to_builtins(Expectation()) == {}
    with pytest.raises(AttributeError):
        setattr(expect, "holds", False)  # noqa: B010
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"violates": [""]}, Expectation)


def test_scenarios_and_requests_are_written_by_name_only():
    with pytest.raises(TypeError):
        Request("a", 0, (("a", 3),), 4)
    with pytest.raises(TypeError):
        Scenario("schedproof/scenario@1")
