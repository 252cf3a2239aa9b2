"""The differences of vLLM's releases from the documents."""

import pytest

from schedproof.model.target import ModelTarget
from schedproof.model.vllm import scheduler
from schedproof.model.vllm.model import REVISIONS
from schedproof.model.vllm.releases import RELEASES
from schedproof.model.vllm.revision import DOCUMENTED
from schedproof.model.vllm.state import State
from schedproof.spec.systems import SYSTEMS

from .build import config, decoding, pool, waiting

SMALL = {
    **{"block_size": 4, "max_num_seqs": 4, "max_num_batched_tokens": 16, "max_model_len": 64},
    "enable_prefix_caching": False,
}
DRAFTS = {"num_speculative_tokens": 2}


def request(name, prompt, tokens=4, **more):
    return {"id": name, "prompt": [[name, prompt]], "max_tokens": tokens, **more}


def scheduled(revision, *arrivals, **config):
    """Return the scheduled tokens of each step; a step's arrivals are requests."""
    target = ModelTarget()
    assert target.start("vllm", revision, SMALL | config)["ok"]
    seen = []
    for requests in arrivals:
        for arrival in requests:
            assert target.add(arrival)["ok"]
        seen.append(target.step()["step"]["scheduled"])
    return seen


def test_the_models_are_the_revisions_of_the_descriptor():
    assert [release.name for release in (DOCUMENTED, *RELEASES)] == [*SYSTEMS["vllm"].revisions]


@pytest.mark.parametrize(("revision", "alone"), [("documented", 4), ("0.30", 4), ("0.31", 9)])
def test_from_0_31_on_the_threshold_is_lifted_for_a_request_that_is_alone(revision, alone):
    limit = {"long_prefill_token_threshold": 4}
    assert scheduled(revision, [request("a", 9)], **limit) == [{"a": alone}]
    both = [request("a", 9), request("b", 9)]
    assert scheduled(revision, both, **limit) == [{"a": 4, "b": 4}]


@pytest.mark.parametrize(("revision", "joins"), [("documented", 1), ("0.25", 3), ("0.33", 3)])
def test_from_0_25_on_a_request_that_joins_decodes_is_padded_like_them(revision, joins):
    steps = scheduled(revision, [request("a", 5)], [request("b", 1)], **DRAFTS)
    assert steps == [{"a": 5}, {"a": 3, "b": joins}]


@pytest.mark.parametrize("revision", ["0.25", "0.33"])
def test_beside_a_prefill_nobody_is_padded(revision):
    steps = scheduled(revision, [request("a", 17)], [request("b", 1)], **DRAFTS)
    assert steps == [{"a": 16}, {"a": 1, "b": 1}]


def test_who_has_no_room_to_be_padded_waits():
    steps = scheduled(
        "0.25", [request("a", 4)], [request("b", 1)], [], **DRAFTS, max_num_batched_tokens=5
    )
    assert steps[:2] == [{"a": 4}, {"a": 3}]


@pytest.mark.parametrize(("revision", "first"), [("0.25", 1), ("0.30", 3), ("0.33", 3)])
def test_from_0_30_on_a_head_start_is_padded_too(revision, first):
    """All of its prompt but the last token is loaded, and no other request runs."""
    loaded = request("a", 8, external_tokens=8)
    steps = scheduled(revision, [loaded], [], **DRAFTS, kv_connector=True)
    assert steps == [{}, {"a": first}]


@pytest.mark.parametrize(("threshold", "joins"), [(2, 1), (3, 3)])
def test_a_padding_that_the_threshold_would_cut_is_left_out(threshold, joins):
    limit = {**DRAFTS, "long_prefill_token_threshold": threshold}
    steps = scheduled("0.33", [request("a", 1)], [request("b", 1)], **limit)
    assert steps[1]["b"] == joins


def test_what_is_made_up_counts_as_wrong():
    target = ModelTarget()
    assert target.start("vllm", "0.25", SMALL | DRAFTS)["ok"]
    assert target.add(request("a", 5))["ok"]
    target.step()
    assert target.add(request("b", 1, accepted=[2]))["ok"]
    steps = [target.step()["step"] for _ in range(2)]
    assert [step["emitted"]["b"] for step in steps] == [1, 3]


@pytest.mark.parametrize(("revision", "goes_on"), [("0.31", False), ("0.33", True)])
def test_from_0_33_on_the_round_goes_on_behind_a_request_that_preempts_itself(revision, goes_on):
    """Of four blocks each holds two when the first, the less important one, needs a third."""
    first, urgent = request("a", 7, 9, priority=1), request("b", 7, 9)
    steps = scheduled(revision, [first], [urgent], [], policy="priority", num_blocks=4)
    assert steps == [{"a": 7}, {"a": 1, "b": 7}, {"b": 1} if goes_on else {}]


@pytest.mark.parametrize(("revision", "order"), [("0.30", "ab"), ("0.31", "ba")])
def test_from_0_31_on_a_preempted_request_stands_in_front_of_those_set_aside(revision, order):
    aside = waiting(4, name="a", aside=True)
    victim = decoding("b", 8, 1, 2)
    state = State(running=(victim,), waiting=(aside,), pool=pool(2, 2))
    limits = config(num_blocks=2, max_num_batched_tokens=16)
    plan = scheduler.schedule(limits, state, scheduler.by_policy, REVISIONS[revision])
    assert plan.preempted == ("b",)
    assert "".join(sequence.id for sequence in plan.waiting) == order


@pytest.mark.parametrize(("revision", "resumes"), [("0.31", 5), ("0.33", 3)])
def test_from_0_33_on_a_block_of_verified_drafts_can_be_found_at_once(revision, resumes):
    """The second is preempted when its first block is full and a token is left to compute."""
    both = [request(name, 1, 5, accepted=[2]) for name in "ab"]
    small = {"num_blocks": 3, "max_model_len": 12, "max_num_batched_tokens": 11}
    steps = scheduled(revision, both, [], [], [], **DRAFTS, **small, enable_prefix_caching=True)
    assert steps[2:] == [{"a": 3}, {"b": resumes}]
