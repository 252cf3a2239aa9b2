"""Whatever a target replies is read, or is one of its faults: never an error of ours."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.model.faults import ConfigRefused, TargetBroken, TargetCrashed, TargetFault
from schedproof.model.observation import FIELDS, REQUIRED, Step
from schedproof.model.replies import read_ok, read_started, read_step

STARTED = {"ok": True, "name": "n", "version": "1", "observes": ["tkv", "running"]}
IDLE = {"kind": "idle", "scheduled": {}}
DECODE = {"kind": "decode", "scheduled": {"a": 1}}
PLAIN = frozenset(REQUIRED)


def test_started_names_the_target_and_what_it_shows():
    says = read_started(STARTED)
    assert (says.name, says.version) == ("n", "1")
    assert says.observes == {"tkv", "running", "kind", "scheduled"}


def test_fields_that_the_protocol_does_not_have_are_not_observed():
    says = read_started(STARTED | {"observes": ["tkv", "temperature"]})
    assert says.observes == {"tkv", *REQUIRED}


def test_a_target_may_say_its_defaults_and_only_then_shows_them():
    assert read_started(STARTED).shows == read_started(STARTED).observes
    says = read_started(STARTED | {"defaults": {"interleave": True}})
    assert says.defaults == {"interleave": True}
    assert says.shows == says.observes | {"defaults"}


def test_a_target_may_say_whether_its_server_starts_so():
    assert read_started(STARTED).start_up is None
    checked = read_started(STARTED | {"start_up": {"starts": True, "why": "vllm 0.33.0 check"}})
    assert str(checked.start_up) == "yes, by vllm 0.33.0 check"
    beyond = read_started(STARTED | {"start_up": {"starts": False, "why": "too few blocks"}})
    assert str(beyond.start_up) == "no, too few blocks"
    unknown = read_started(STARTED | {"start_up": {"starts": None, "why": "no such method"}})
    assert str(unknown.start_up) == "not checked, no such method"


@pytest.mark.parametrize("reply", [True, {"starts": "yes", "why": ""}, {"starts": True}])
def test_a_start_up_that_says_nothing_is_a_broken_target(reply):
    with pytest.raises(TargetBroken, match="start_up is"):
        read_started(STARTED | {"start_up": reply})


def test_a_refused_configuration_is_not_a_fault_of_the_scheduler():
    with pytest.raises(ConfigRefused, match="no such key"):
        read_started({"ok": False, "error": "config", "message": "no such key"})


@pytest.mark.parametrize(
    "changes",
    [
        {"name": None},
        {"version": 3},
        {"observes": None},
        {"observes": "tkv"},
        {"observes": [1]},
        {"defaults": ["interleave"]},
        {"defaults": None},
        {"ok": None},
        {"ok": 1},
    ],
)
def test_a_start_that_lacks_something_is_a_broken_target(changes):
    with pytest.raises(TargetBroken, match="ADAPTER: at 'start'"):
        read_started(STARTED | changes)


@pytest.mark.parametrize("reply", [None, [], "config", 3])
def test_a_start_that_is_no_object_is_a_broken_target(reply):
    with pytest.raises(TargetBroken, match="valid: an object with ok"):
        read_started(reply)


def test_only_a_start_that_failed_may_refuse_its_configuration():
    assert read_started(STARTED | {"error": "config"}).name == "n"
    with pytest.raises(TargetBroken, match="ok is 0"):
        read_started({"ok": 0, "error": "config", "message": "m"})


@pytest.mark.parametrize("error", ["broken", "rejected", None, 3])
def test_a_start_that_failed_for_another_reason_is_a_broken_target(error):
    with pytest.raises(TargetBroken, match=r"\(m\) is not valid in this reply"):
        read_started({"ok": False, "error": error, "message": "m"})


def test_a_crash_at_the_start_is_a_crash_and_no_refusal():
    with pytest.raises(TargetCrashed, match="boom"):
        read_started({"ok": False, "error": "crashed", "message": "boom"})


def test_ok_is_true_or_false_and_no_number():
    for ok in (0, 1, None, "true"):
        with pytest.raises(TargetBroken) as caught:
            read_ok("add", {"ok": ok, "error": "rejected", "message": "m"})
        shown = ok if isinstance(ok, str) else repr(ok)
        assert caught.value.why == f"ok is {shown}; valid: true or false"


def test_a_refusal_at_the_door_is_an_answer():
    assert read_ok("add", {"ok": True}) is None
    assert read_ok("add", {"ok": False, "error": "rejected", "message": "long"}) == "long"
    assert read_ok("abort", {"ok": False, "error": "unsupported", "message": "no"}) == "no"


@pytest.mark.parametrize(
    ("op", "error"),
    [("abort", "rejected"), ("step", "rejected"), ("add", "unsupported"), ("add", "config")],
)
def test_an_error_that_does_not_belong_to_the_operation_is_a_broken_target(op, error):
    with pytest.raises(TargetBroken, match="is not valid in this reply"):
        read_ok(op, {"ok": False, "error": error, "message": "m"})


@pytest.mark.parametrize("op", ["start", "add", "abort", "step", "stop"])
def test_a_crash_is_reported_with_its_traceback(op):
    reply = {"ok": False, "error": "crashed", "message": "boom", "traceback": "line 1\nline 2"}
    with pytest.raises(TargetCrashed) as caught:
        read_ok(op, reply)
    assert (caught.value.op, caught.value.message) == (op, "boom")
    assert caught.value.details == "line 1\nline 2"


def test_a_crash_without_a_traceback_shows_none():
    with pytest.raises(TargetCrashed) as caught:
        read_ok("step", {"ok": False, "error": "crashed", "message": "boom"})
    assert caught.value.details == ""


def test_a_step_is_read_with_every_field_given():
    seen = DECODE | {"tkv": 7, "running": ["a"], "finished": {}, "blocks": {"a": [1, 2]}}
    assert read_step({"ok": True, "step": seen}, PLAIN) == Step(
        kind="decode", scheduled={"a": 1}, tkv=7, running=("a",), finished={}, blocks={"a": (1, 2)}
    )


@pytest.mark.parametrize("gone", [{}, {"running": None}])
def test_a_promised_field_that_is_missing_is_a_broken_target(gone):
    with pytest.raises(TargetBroken, match="lacks the field running"):
        read_step({"ok": True, "step": IDLE | gone}, PLAIN | {"running"})


@pytest.mark.parametrize("seen", [IDLE, IDLE | {"tkv": None}, IDLE | {"tkv": 0}])
def test_tkv_may_be_absent_or_null_even_if_promised(seen):
    assert read_step({"ok": True, "step": seen}, PLAIN | {"tkv"}).kind == "idle"


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "sleep"},
        {"kind": "idle"},
        {"scheduled": {}},
        {"scheduled": ["a"]},
        {"scheduled": {"a": -1}},
        {"scheduled": {"a": 1.5}},
        {"emitted": {"a": "1"}},
        {"tkv": -1},
        {"running": "a"},
        {"running": [1]},
        {"finished": {"a": "tired"}},
        {"blocks": {"a": [-1]}},
        {"free_blocks": True},
    ],
)
def test_a_step_of_the_wrong_form_is_a_broken_target(changes):
    with pytest.raises(TargetBroken):
        read_step({"ok": True, "step": DECODE | changes}, PLAIN)


@pytest.mark.parametrize("reply", [None, [], "ok", 3, {}, {"ok": True}, {"ok": True, "step": []}])
def test_a_reply_without_a_step_is_a_broken_target(reply):
    with pytest.raises(TargetBroken):
        read_step(reply, PLAIN)


def test_of_several_missing_fields_the_first_is_named():
    with pytest.raises(
        TargetBroken, match="the step lacks the field blocks, although observes lists it"
    ):
        read_step({"ok": True, "step": IDLE}, PLAIN | {"waiting", "blocks", "running"})


def test_a_field_that_every_step_has_need_not_be_listed_in_observes():
    step = {"free_blocks": 3, "scheduled": {}}
    with pytest.raises(TargetBroken, match="the step lacks the field kind, which every step has"):
        read_step({"ok": True, "step": step}, PLAIN | {"blocks"})


def test_a_kind_that_contradicts_what_is_scheduled_is_named_with_the_number():
    for seen, why in (
        (IDLE | {"scheduled": {"a": 1, "b": 2}}, "kind idle with 2 requests scheduled"),
        (DECODE | {"scheduled": {}}, "kind decode with 0 requests scheduled"),
    ):
        with pytest.raises(TargetBroken) as caught:
            read_step({"ok": True, "step": seen}, PLAIN)
        assert (caught.value.op, caught.value.why) == ("step", why)


@pytest.mark.parametrize(
    ("message", "shown"),
    [("x" * 200, "x" * 200), ("x" * 201, "x" * 199 + "…"), (["y" * 300], "['" + "y" * 197 + "…")],
)
def test_a_message_has_200_characters_at_most(message, shown):
    assert read_ok("add", {"ok": False, "error": "rejected", "message": message}) == shown


def test_a_traceback_has_a_million_characters_at_most():
    for length in (10**6, 10**6 + 1, 2 * 10**6):
        reply = {"ok": False, "error": "crashed", "message": "m", "traceback": "x" * length}
        with pytest.raises(TargetCrashed) as caught:
            read_ok("step", reply)
        ending = "x" if length == 10**6 else "…"
        # No comparison of the texts: a difference would be printed whole.
        assert len(caught.value.details) == 10**6
        assert caught.value.details[-2:] == "x" + ending


# A value of any form, also where the protocol wants a certain one.
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
WORDS = st.sampled_from(("rejected", "unsupported", "crashed", "config", "idle", "decode"))
ANYTHING = WORDS | VALUES
REPLIES = VALUES | st.fixed_dictionaries(
    {"ok": st.booleans() | ANYTHING},
    optional=dict.fromkeys(("error", "message", "traceback", "name", "version"), ANYTHING)
    | {"observes": st.lists(st.sampled_from(sorted(FIELDS))) | ANYTHING}
    | {
        "step": st.fixed_dictionaries(
            {"kind": ANYTHING, "scheduled": ANYTHING},
            optional=dict.fromkeys(sorted(FIELDS - REQUIRED), ANYTHING),
        )
        | ANYTHING
    },
)


@pytest.mark.parametrize("error", [[], {}, [1], {"a": 1}])
def test_an_error_that_is_no_text_is_a_broken_target(error):
    with pytest.raises(TargetBroken):
        read_ok("add", {"ok": False, "error": error})


@given(REPLIES)
def test_any_reply_is_read_or_is_a_fault(reply):
    for read in (
        lambda: read_started(reply),
        lambda: read_ok("add", reply),
        lambda: read_step(reply, FIELDS),
        lambda: read_step(reply, PLAIN),
    ):
        with suppress(TargetFault):
            read()
