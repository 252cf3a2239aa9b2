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


AT_INTERVALS = {"prefill_schedule_interval": 3}


def decoding_beside(new, **keys):
    """The history two steps after the prefill of a, which now decodes, and b, which waits."""
    history = book(request("a"), new, **AT_INTERVALS, **keys)
    history.observe(ran({"a": 6}, "a", emitted={"a": 1}))
    history.last = ran({"a": 6}, "a")
    return history


def test_prefill_waits_for_the_interval_while_others_decode():
    history = decoding_beside(request("b"))
    history.live["b"].arrival = 1
    early = ran({"a": 1, "b": 6}, "ab")
    crowded = queues.prefill_too_early(history, early)
    assert crowded is None  # b waited in the step of the prefill
    history.system_state = history.system_state._replace(
        cadence=history.system_state.cadence._replace(crowded=False)
    )
    assert queues.prefill_too_early(history, early) == (
        "b computes 6 tokens of its prefill less than 3 steps after the last prefill, while others "
        "decode"
    )
    held = ran({"a": 1}, "a", "b")
    assert queues.prefill_too_early(history, held) is None
    assert queues.prefills_are_held(history, held)
    assert queues.needless_wait(history, held) is None


def test_a_rule_about_a_limit_concerns_only_configurations_with_it():
    rules = {**budget.PREDICATES, **queues.PREDICATES, **encoder.PREDICATES}
    limits = {
        "V1-R87": {"max_num_active_seqs": 1},
        "V1-R88": {"long_prefill_token_threshold_adaptive": True},
        "V1-R91": {"disable_chunked_mm_input": True},
        "V1-R97": AT_INTERVALS,
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
