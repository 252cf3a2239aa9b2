"""Steps in flight of any scheduler: when a token is due, and which tokens may be computed."""

import pytest

from schedproof.model.observation import Step
from schedproof.model.scenario import Request, Scenario
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.properties.generic.predicates import PREDICATES
from schedproof.properties.history.run_history import RunHistory
from schedproof.spec.catalogue import load

AHEAD, PIPELINE = {"async_scheduling": True}, {"pipeline_parallel_size": 2}


def run(*steps, prompt=5, **config):
    """The history after these steps, in which `a` is decided ahead of its tokens."""
    values = full_config("generic", "documented", {"block_size": 4, **config})
    history = RunHistory(values, "documented", "generic")
    history.accept(Request(id="a", arrival=0, prompt=(("a", prompt),), max_tokens=8))
    for fields in steps:
        history.observe(step(**fields))
    return history


def step(tokens=0, emitted=0, at=0, **more):
    scheduled = {"a": tokens} if tokens else {}
    came = {"a": emitted} if emitted else {}
    places = {"a": at} if emitted else {}
    shown = {"scheduled": scheduled, "finished": {}, "preempted": (), **more}
    kind = "mixed" if shown["scheduled"] else "idle"
    return Step(kind=kind, emitted=came, emitted_at=places, **shown)


def broken(rule, history, **fields):
    return PREDICATES[rule].broken(history, step(**fields))


@pytest.mark.parametrize("config", [AHEAD, PIPELINE])
def test_a_token_is_due_when_its_decision_completes(config):
    assert broken("GEN-R08", run(**config), tokens=5) is None
    assert broken("GEN-R08", run({"tokens": 5}, **config), emitted=1) is None
    assert broken("GEN-R08", run({"tokens": 5}, **config)) == (
        "the decision computed all tokens of a, but it emits none"
    )
    assert broken("GEN-R08", run({"tokens": 4}, **config), emitted=1) == (
        "a emits a token, but the decision did not compute all tokens"
    )


def test_a_worker_that_is_fast_emits_at_once():
    fast = {**AHEAD, "early_completions": 1}
    assert broken("GEN-R08", run(**fast), tokens=5, emitted=1) is None
    assert broken("GEN-R08", run(**fast), tokens=5) is not None
    assert broken("GEN-R08", run(**fast), tokens=4, emitted=1) is not None


def test_only_a_scheduler_that_decides_ahead_computes_a_token_in_flight():
    assert broken("GEN-R08", run({"tokens": 5}, **AHEAD), tokens=1, emitted=1) is None
    assert broken("GEN-R08", run({"tokens": 5}, **PIPELINE), tokens=1, emitted=1) == (
        "a has 6 tokens computed, but 5 are known"
    )
    assert broken("GEN-R08", run({"tokens": 5}, **AHEAD), tokens=2, emitted=1) == (
        "a has 7 tokens computed, but 6 are known"
    )


def test_a_preemption_may_drop_the_tokens_in_flight_or_not():
    for emitted in (0, 1):
        history = run({"tokens": 5}, **AHEAD)
        assert broken("GEN-R08", history, emitted=emitted, preempted=("a",)) is None
        history = run(pipeline_parallel_size=3)
        history.accept(Request(id="b", arrival=0, prompt=(("b", 1),), max_tokens=8))
        history.observe(step(5))
        history.observe(step(scheduled={"b": 1}, preempted=("a",)))
        assert broken("GEN-R08", history, emitted=emitted) is None


def test_a_request_that_starts_again_does_not_emit_its_token_twice():
    history = run(pipeline_parallel_size=3)
    history.accept(Request(id="b", arrival=0, prompt=(("b", 9),), max_tokens=8))
    for fields in ({"tokens": 5}, {"scheduled": {"b": 1}, "preempted": ("a",)}):
        history.observe(step(**fields))
    history.observe(step(5, emitted=1))
    history.observe(step(scheduled={"b": 1}))
    assert broken("GEN-R08", history, scheduled={"b": 1}, emitted=1, at=1) is not None
    assert broken("GEN-R08", history, scheduled={"b": 1}) is None


def test_each_token_arrives_once_and_in_order():
    ahead = run({"tokens": 5}, {"tokens": 1, "emitted": 1}, **AHEAD)
    assert broken("GEN-R14", ahead, emitted=1, at=1) is None
    assert PREDICATES["GEN-R14"].exercised(ahead, step(emitted=1, at=1))
    assert broken("GEN-R14", ahead, emitted=1, at=0) == (
        "a emits token 0 of its output after 1 arrived"
    )


def test_the_steps_of_a_request_are_bounded_by_the_decisions_in_flight():
    assert run(**AHEAD).work == 2 * run().work
    assert run(pipeline_parallel_size=3).work == 3 * run().work


DRAFTS = {"num_speculative_tokens": 2}


def drafting(accepted=(1,), **config):
    """The prompt is computed, a token emitted, and two drafts are proposed."""
    values = full_config("generic", "documented", {"block_size": 4, **DRAFTS, **config})
    history = RunHistory(values, "documented", "generic")
    asked = Request(id="a", arrival=0, prompt=(("a", 5),), max_tokens=8, accepted=accepted)
    history.accept(asked)
    history.observe(step(5, 1, computed={"a": 5}))
    return history


@pytest.mark.parametrize(
    ("tokens", "emitted", "computed", "rules"),
    [
        *((3, 2, 7, []), (2, 2, 7, []), (1, 1, 6, []), (4, 2, 7, ["GEN-R08"])),
        *((3, 3, 8, ["GEN-R15"]), (3, 1, 6, ["GEN-R15"]), (1, 2, 7, ["GEN-R09", "GEN-R15"])),
        *((3, 2, 8, ["GEN-R09"]), (3, 0, 8, ["GEN-R08"])),
    ],
)
def test_right_drafts_are_emitted_and_wrong_ones_are_not_computed(tokens, emitted, computed, rules):
    shown = {"tokens": tokens, "emitted": emitted, "at": 1, "computed": {"a": computed}}
    names = ("GEN-R09", "GEN-R08", "GEN-R15")
    assert [name for name in names if broken(name, drafting(), **shown)] == rules


def test_drafts_in_flight_count_as_computed_until_they_are_rejected():
    history = run({"tokens": 5, "computed": {"a": 5}}, **DRAFTS, **AHEAD)
    history.requests["a"].accepted = (1,)
    shown = {"tokens": 3, "emitted": 1, "computed": {"a": 8}}
    assert [broken(name, history, **shown) for name in ("GEN-R09", "GEN-R08")] == [None, None]
    history.observe(step(**shown))
    shown = {"tokens": 3, "emitted": 2, "at": 1, "computed": {"a": 10}}
    assert [broken(name, history, **shown) for name in ("GEN-R09", "GEN-R08")] == [None, None]
    assert broken("GEN-R15", history, **shown) is None
    assert broken("GEN-R09", history, **shown | {"computed": {"a": 11}}) is not None


def test_no_draft_is_computed_beyond_the_length_and_each_has_room():
    assert broken("GEN-R03", drafting(max_model_len=7), tokens=3) == (
        "a computes 8 tokens, but max_model_len is 7"
    )
    assert broken("GEN-R03", drafting(max_model_len=8), tokens=3) is None
    for blocks, breaks in ((4, False), (5, True)):
        held = {"a": list(range(blocks))}
        assert (broken("GEN-R12", drafting(), blocks=held) is not None) is breaks


def test_a_request_may_lack_blocks_that_an_ended_one_keeps_for_a_decision_in_flight():
    config = {"block_size": 4, "num_blocks": 5, "max_num_batched_tokens": 20, "max_model_len": 20}
    features = {"async_scheduling": True, "num_speculative_tokens": 3, "kv_connector": True}
    own = {"own": {}, "enable_prefix_caching": False, "enable_chunked_prefill": False}
    requests = (
        {"id": "a", "prompt": (("a", 1),), "max_tokens": 7, "output_len": 6},
        {"id": "b", "prompt": (("a", 1),), "max_tokens": 7, "load_deferrals": 1},
        {"id": "c", "prompt": (("c", 3),), "max_tokens": 9, "abort_at": 4},
    )
    accepted = ((0, 2, 2, 3), (0,), (1, 2, 2, 3))
    scenario = Scenario(
        system="generic",
        config=config | features | own,
        requests=tuple(
            Request(arrival=0, accepted=right, **request)
            for request, right in zip(requests, accepted, strict=True)
        ),
    )
    rules = [rule for rule in load("generic") if rule.checked]
    outcome = replay(ModelTarget(), scenario, rules)
    assert not outcome.broken
    assert "GEN-R13" in outcome.exercised
