"""Limits beside max_num_seqs, the threshold and the encoder's budget, by example."""

from schedproof.properties.vllm.history.encoder import Input
from schedproof.properties.vllm.predicates import budget, encoder, queues

from .build import book, ran, request

ADAPTIVE = {"long_prefill_token_threshold": 2, "long_prefill_token_threshold_adaptive": True}


def test_only_so_many_requests_are_active():
    history = book(request("a", 6, 6, 1), request("b"), request("c"), max_num_active_seqs=1)
    step = ran({"a": 1, "b": 6}, "ab", "c")
    assert queues.too_many_active(history, step) == "2 requests run, but max_num_active_seqs is 1"
    alone = ran({"a": 6}, "a", "bc")
    assert queues.too_many_active(history, alone) is None
    assert queues.every_active_slot_taken(history, alone)


def test_a_rule_about_a_limit_concerns_only_configurations_with_it():
    rules = {**budget.PREDICATES, **queues.PREDICATES, **encoder.PREDICATES}
    limits = {
        "V1-R87": {"max_num_active_seqs": 1},
        "V1-R88": {"long_prefill_token_threshold_adaptive": True},
        "V1-R91": {"disable_chunked_mm_input": True},
    }
    for rule, limit in limits.items():
        assert not rules[rule].concerns(book().config)
        assert rules[rule].concerns({**book().config, **limit})


def test_the_threshold_leaves_each_request_its_share():
    history = book(request("a"), request("b"), **ADAPTIVE)
    assert budget.below_its_share(history, ran({"a": 2, "b": 5}, "ab")) == (
        "a computes 2 of 6 tokens, although its share of the budget is 5 tokens"
    )
    assert budget.below_its_share(history, ran({"a": 5, "b": 3}, "ab")) is None
    assert budget.share_is_above_the_threshold(history, ran({"a": 5}, "ab"))
    assert budget.threshold_exceeded(history, ran({"a": 5}, "ab")) is None
    assert budget.threshold_exceeded(history, ran({"a": 6}, "ab")) == (
        "a computes 6 tokens > long_prefill_token_threshold 5"
    )


def test_an_input_is_computed_as_a_whole_unless_it_is_longer_than_the_threshold():
    keys = {"max_num_encoder_input_tokens": 10, "encoder_cache_size": 10}
    keys |= {"disable_chunked_mm_input": True}
    cat = request("a", 9, 0, inputs=(Input(0, "cat", 2, 8),))
    split = ran({"a": 5}, "a", encoder_inputs={"a": (0,)}, encoder_dropped=())
    history = book(cat, request("b"), **keys)
    assert encoder.input_is_split(history, split) == (
        "a computes 3 of the 6 tokens of encoder input cat"
    )
    whole = ran({"a": 8}, "a", encoder_inputs={"a": (0,)}, encoder_dropped=())
    stops = ran({"a": 2}, "a", encoder_inputs={}, encoder_dropped=())
    assert encoder.input_is_split(history, whole) is None
    assert encoder.input_is_split(history, stops) is None
    assert encoder.an_input_waits(history, stops)
    longer = book(cat, request("b"), **keys, long_prefill_token_threshold=5)
    assert encoder.input_is_split(longer, split) is None
