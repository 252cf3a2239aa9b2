"""A target's requests hold exactly what it shows."""

from typing import Any

import msgspec
import pytest

from schedproof.model.observation import Step
from schedproof.model.scenario import Request
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget
from schedproof.properties.history.run_history import RunHistory
from schedproof.properties.rules.common import shown_wrongly, something_shown
from schedproof.properties.rules.predicate import default_is
from schedproof.properties.search.run import run_search
from schedproof.properties.search.state import Search, SearchOptions
from schedproof.spec.catalogue import load
from schedproof.spec.systems import SYSTEMS


def history():
    """`a` has computed 5 tokens, `b` waits."""
    config = full_config("nano_vllm", "0.2.0", {"block_size": 4, "num_blocks": 8})
    made = RunHistory(config, "0.2.0", "nano_vllm")
    for name in "ab":
        made.accept(Request(id=name, arrival=0, prompt=((name, 5),), max_tokens=9))
    made.observe(step({"a": 5}, emitted={"a": 1}))
    return made


def step(scheduled, **seen):
    fields: dict[str, Any] = {"finished": {}, "prefix_hit": {}, "preempted": ()}
    return Step(kind="decode", scheduled=scheduled, **{**fields, **seen})


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        ({"computed": {"a": 6}, "blocks": {"a": (1, 2)}, "slot_blocks": {"a": (2,)}}, None),
        ({"computed": {}}, "a has 6 tokens computed, but shows none"),
        ({"blocks": {}}, "a has 6 tokens computed, but shows no block"),
        ({"slot_blocks": {}}, "a computes 1 tokens, but no request shows where it writes"),
        (
            {"computed": {"a": 6}, "blocks": {"a": (1, 2), "b": (3,)}},
            "b waits, but shows 0 tokens computed and 1 blocks",
        ),
        ({"computed": {"a": 6, "b": 2}}, "b waits, but shows 2 tokens computed and 0 blocks"),
        # Of requests that leave in the step nothing is asked.
        ({"computed": {}, "finished": {"a": "eos"}}, None),
        ({"computed": {}, "preempted": ("a",)}, None),
        ({}, None),
    ],
)
def test_a_request_shows_what_it_holds(seen, says):
    assert shown_wrongly(history(), step({"a": 1}, **seen)) == says


@pytest.mark.parametrize(
    ("kind", "scheduled", "says"),
    [
        ("decode", {"a": 1}, None),
        ("prefill", {"b": 5}, None),
        ("mixed", {"a": 1, "b": 5}, None),
        ("prefill", {"a": 1}, "a already generates: say decode"),
        ("decode", {"b": 1}, "b has emitted no token yet: say prefill"),
        ("prefill", {"a": 1, "b": 5}, "a already generates: say mixed"),
        ("mixed", {"a": 1}, "its only work is decode: say decode"),
        ("mixed", {"b": 5}, "its only work is prefill: say prefill"),
    ],
)
def test_a_step_is_named_after_what_its_requests_do(kind, scheduled, says):
    message = shown_wrongly(history(), Step(kind=kind, scheduled=scheduled))
    assert message == (says and f"kind is {kind} in step 1, but {says}")


@pytest.mark.parametrize(
    ("scheduled", "emitted", "prefilling", "says"),
    [
        ({"a": 1}, {"a": 1}, (), None),
        ({"a": 1}, {"a": 1}, ("a",), "a already generates, but is listed as prefilling"),
        ({"b": 3}, {}, ("b",), None),
        ({"b": 3}, {}, (), "b has emitted no token yet, but is not listed as prefilling"),
        ({"b": 5}, {"b": 1}, (), None),
        ({"b": 5}, {"b": 1}, ("b",), "b already generates, but is listed as prefilling"),
        ({}, {}, ("b",), None),
    ],
)
def test_what_prefills_is_named_so(scheduled, emitted, prefilling, says):
    kind: Any = "prefill" if "b" in scheduled else "decode"
    fields: dict[str, Any] = {"finished": {}, "prefix_hit": {}, "emitted": emitted}
    seen = Step(kind=kind, scheduled=scheduled, prefilling=prefilling, **fields)
    assert shown_wrongly(history(), seen) == says


def test_a_preempted_request_that_found_all_but_one_token_may_have_either_name():
    before = history()
    before.observe(step({"b": 5}, preempted=("a",), emitted={"b": 1}, prefix_hit={"b": 0}))
    for kind in ("prefill", "decode", "mixed"):
        seen = Step(kind=kind, scheduled={"a": 1}, prefix_hit={"a": 5})  # type: ignore[arg-type]
        assert shown_wrongly(before, seen) is None


def test_a_preempted_request_that_computes_again_what_it_lost_does_not_decode():
    before = history()
    before.observe(step({"b": 5}, preempted=("a",), emitted={"b": 1}, prefix_hit={"b": 0}))
    seen = Step(kind="decode", scheduled={"a": 2}, prefix_hit={"a": 4})
    says = "kind is decode in step 2, but a computes 2 lost tokens: say prefill"
    assert shown_wrongly(before, seen) == says
    assert shown_wrongly(before, msgspec.structs.replace(seen, kind="prefill")) is None
    assert shown_wrongly(before, msgspec.structs.replace(seen, kind="mixed")) is not None


def test_it_is_exercised_where_one_waits_and_another_goes_on():
    assert something_shown(history(), step({"a": 1}, computed={"a": 6}))
    assert not something_shown(history(), step({"a": 1}))
    assert not something_shown(history(), step({"a": 1, "b": 5}, computed={"a": 6, "b": 5}))


@pytest.mark.slow
@pytest.mark.parametrize("system", ["spyre", "vllm", "nano_vllm", "llmservingsim"])
@pytest.mark.parametrize("field", ["computed", "blocks", "slot_blocks"])
def test_a_field_that_is_promised_and_always_empty_is_broken(system, field):
    class ShowsNothing(ModelTarget):
        def step(self):
            reply = super().step()
            if field in reply["step"]:
                reply["step"][field] = {}
            return reply

    revision = SYSTEMS[system].revisions[0]
    shown = field in ModelTarget().start(system, revision, {})["observes"]
    search = Search(SearchOptions(ShowsNothing(), system, revision, load(system), "small"))
    assert run_search(search, 30, 0, 0) == shown


@pytest.mark.slow
@pytest.mark.parametrize("system", ["spyre", "vllm", "nano_vllm", "llmservingsim"])
def test_a_request_that_waits_with_a_block_is_broken(system):
    class HoldsEarly(ModelTarget):
        def step(self):
            reply = super().step()
            for name in reply["step"]["waiting"]:
                reply["step"]["blocks"].setdefault(name, [1])
            return reply

    revision = SYSTEMS[system].revisions[0]
    rules = [rule for rule in load(system) if rule.id == "ALL-R13"]
    search = Search(SearchOptions(HoldsEarly(), system, revision, rules, "small"))
    assert run_search(search, 30, 0, 0)


STEP = Step(kind="idle", scheduled={})
RULE = default_is("interleave", True)


@pytest.mark.parametrize(
    ("default", "step", "broken", "exercised"),
    [
        ({"interleave": True}, 0, False, True),
        ({"interleave": False}, 0, True, True),
        ({"interleave": False}, 1, False, False),
        ({"chunk_size": 64}, 0, False, False),
        ({}, 0, False, False),
    ],
)
def test_a_default_is_judged_once_and_only_where_the_target_says_it(
    default, step, broken, exercised
):
    history = RunHistory({}, "sound", "spyre", defaults=default, step=step)
    assert (RULE.broken(history, STEP) is not None) == broken
    assert RULE.exercised(history, STEP) == exercised


def test_the_message_has_both_values():
    message = RULE.broken(RunHistory({}, "sound", "spyre", defaults={"interleave": False}), STEP)
    assert message == ("interleave is False if a configuration does not give it, expected True")
