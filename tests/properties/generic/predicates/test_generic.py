"""Predicates of any scheduler, by example: what breaks each, what is near it, and its witness."""

import pytest

from schedproof.model.observation import Step
from schedproof.model.systems import full_config
from schedproof.properties.generic.predicates import PREDICATES
from schedproof.properties.history.run_history import RunHistory
from schedproof.properties.vllm.history.request_history import VllmRequestHistory as RequestHistory

SMALL = {"block_size": 4, "num_blocks": 8, "max_num_seqs": 2, "max_num_batched_tokens": 8}


def account(name, prompt=5, computed=0, emitted=0):
    return RequestHistory(name, prompt, 4, 4, ((name, prompt),), computed=computed, emitted=emitted)


def book(*requests, last=None, **config):
    values = full_config("generic", "documented", {**SMALL, "max_model_len": 16, **config})
    by_id = {request.id: request for request in requests}
    return RunHistory(
        values,
        "documented",
        "generic",
        requests=by_id,
        live=dict(by_id),
        last=None if last is None else step(**last),
    )


def step(**fields):
    return Step(kind="mixed" if fields.get("scheduled") else "idle", **{"scheduled": {}, **fields})


def judged(rule, history, **fields):
    """Whether the step breaks the rule, and whether it is exercised."""
    predicate, seen = PREDICATES[rule], step(**fields)
    return predicate.broken(history, seen) is not None, predicate.exercised(history, seen)


NO_BOUND = dict.fromkeys(("num_blocks", "max_num_seqs", "max_num_batched_tokens", "max_model_len"))


@pytest.mark.parametrize(
    ("tokens", "expected"), [(7, (False, False)), (8, (False, True)), (9, (True, False))]
)
def test_a_step_keeps_the_token_budget(tokens, expected):
    assert judged("GEN-R01", book(account("a", 20)), scheduled={"a": tokens}) == expected
    assert (
        judged("GEN-R01", book(account("a", 20), **NO_BOUND), scheduled={"a": tokens})[0] is False
    )


@pytest.mark.parametrize(
    ("names", "expected"), [("a", (False, False)), ("ab", (False, True)), ("abc", (True, False))]
)
def test_a_step_keeps_the_sequence_cap(names, expected):
    history = book(*map(account, "abcd"))
    assert judged("GEN-R02", history, scheduled=dict.fromkeys(names, 1)) == expected
    free = book(*map(account, "abcd"), **NO_BOUND)
    assert judged("GEN-R02", free, scheduled=dict.fromkeys(names, 1)) == (False, False)


@pytest.mark.parametrize(
    ("emitted", "expected"), [(2, (False, False)), (3, (False, True)), (4, (True, False))]
)
def test_a_request_keeps_the_length(emitted, expected):
    history = book(account("a", 13, 13, emitted - 1))
    assert judged("GEN-R03", history, scheduled={"a": 1}, emitted={"a": 1}) == expected


def test_no_request_starts_before_one_that_came_before_it():
    history = book(account("a", 5, 5, 1), account("b"), account("c"))
    assert judged("GEN-R04", history, scheduled={"a": 1, "b": 5}) == (False, True)
    assert judged("GEN-R04", history, scheduled={"c": 5}) == (True, True)
    assert judged("GEN-R04", history, scheduled={"b": 2, "c": 5}) == (False, False)
    anyhow = book(account("b"), account("c"), order="any")
    assert judged("GEN-R04", anyhow, scheduled={"c": 5}) == (False, False)


def test_one_that_can_never_run_holds_up_no_other():
    large = account("b", 99)
    large.never_runnable = True
    assert judged("GEN-R04", book(large, account("c")), scheduled={"c": 5})[0] is False


@pytest.mark.parametrize(("blocks", "breaks"), [([1], True), ([1, 2], False), ([], True)])
def test_a_request_has_blocks_for_its_tokens(blocks, breaks):
    history = book(account("a"), last={"blocks": {"a": [1]}})
    shown = {"computed": {"a": 5}, "blocks": {"a": blocks}}
    assert judged("GEN-R05", history, **shown) == (breaks, len(blocks) > 1)


@pytest.mark.parametrize(
    ("blocks", "breaks"),
    [({"a": [1], "b": [2]}, False), ({"a": [1], "b": [1]}, True), ({"a": [1, 1], "b": [2]}, True)],
)
def test_a_block_is_in_one_hand_unless_there_is_a_cache(blocks, breaks):
    assert judged("GEN-R06", book(account("a"), account("b")), blocks=blocks) == (breaks, True)
    cached = book(account("a"), account("b"), enable_prefix_caching=True)
    assert judged("GEN-R06", cached, blocks=blocks) == (False, False)


@pytest.mark.parametrize(
    ("held", "expected"), [(7, (False, False)), (8, (False, True)), (9, (True, False))]
)
def test_all_blocks_are_of_the_pool(held, expected):
    assert judged("GEN-R07", book(account("a")), blocks={"a": list(range(held))}) == expected


@pytest.mark.parametrize(
    ("computed", "emitted", "breaks"),
    [(5, 1, False), (5, 0, True), (4, 0, False), (4, 1, True), (6, 1, True)],
)
def test_a_token_comes_when_all_before_it_is_computed(computed, emitted, breaks):
    shown = {"scheduled": {"a": computed}, "computed": {"a": computed}, "emitted": {"a": emitted}}
    assert judged("GEN-R08", book(account("a")), **shown) == (breaks, computed < 5)


def test_what_leaves_in_the_step_is_not_asked_for_a_token():
    shown = {"scheduled": {"a": 4}, "computed": {}, "emitted": {"a": 1}}
    assert judged("GEN-R08", book(account("a")), **shown, finished={"a": "eos"})[0] is False
    assert judged("GEN-R08", book(account("a")), **shown, preempted=["a"])[0] is False


@pytest.mark.parametrize(
    ("now", "preempted", "breaks"),
    [(6, [], False), (5, [], True), (0, [], True), (0, ["a"], False)],
)
def test_what_is_computed_grows_by_what_is_scheduled(now, preempted, breaks):
    history = book(account("a", 5, 5, 1), last={"computed": {"a": 5}})
    shown = {"scheduled": {"a": 1}, "computed": {"a": now}, "preempted": preempted}
    assert judged("GEN-R09", history, **shown) == (breaks, True)


@pytest.mark.parametrize(
    ("hit", "now", "breaks"), [(4, 5, False), (0, 5, True), (4, 1, True), (None, 5, False)]
)
def test_what_is_computed_at_a_start_is_its_hit_and_what_is_scheduled(hit, now, breaks):
    shown = {"scheduled": {"a": 1}, "computed": {"a": now}, "preempted": []}
    hits = {} if hit is None else {"prefix_hit": {"a": hit}}
    for caching, found in ((True, hits), (False, {})):
        history = book(account("a"), enable_prefix_caching=caching)
        expected = breaks if caching else now != 1
        assert judged("GEN-R09", history, **shown, **found)[0] == expected


@pytest.mark.parametrize(("computed", "breaks"), [(5, False), (3, True)])
def test_a_prompt_is_whole_where_none_is_cut(computed, breaks):
    shown = {"scheduled": {"a": computed}, "computed": {"a": computed}}
    whole = book(account("a"), enable_chunked_prefill=False)
    assert judged("GEN-R10", whole, **shown) == (breaks, True)
    assert judged("GEN-R10", book(account("a")), **shown) == (False, False)
