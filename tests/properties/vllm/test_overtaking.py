"""Which features let requests overtake others: only requests that use them."""

import pytest

from schedproof.properties.vllm.bounds import waits
from schedproof.properties.vllm.history.encoder import Input
from schedproof.properties.vllm.predicates.decision import place_is_known

from .predicates.build import book, request

PICTURE = Input(0, "p", 0, 6)
ENCODER = {"max_num_encoder_input_tokens": 10, "encoder_cache_size": 10}
ADAPTERS = {"cache_partitions": True, "max_loras": 1}
GRAMMARS = {"structured_outputs": True}
ADAPTER = {"partition": ("x", None)}


@pytest.mark.parametrize(
    ("keys", "revision", "feature", "bounded"),
    [
        (ENCODER, "documented", {}, True),
        (ENCODER, "documented", {"inputs": (PICTURE,)}, False),
        (GRAMMARS, "0.31", {}, True),
        (GRAMMARS, "0.31", {"arrived_blocked": True}, False),
        (GRAMMARS, "0.30", {}, False),  # one that arrives later may go ahead
        (ADAPTERS, "0.31", {}, True),
        (ADAPTERS, "0.31", ADAPTER, False),
        (ADAPTERS, "0.30", {}, False),
    ],
)
def test_the_first_in_line_waits_for_a_bounded_time_unless_it_may_be_overtaken(
    keys, revision, feature, bounded
):
    first, plain, config = request("a", **feature), request("a"), book(**keys).config
    running = request("b", computed=6, emitted=1)
    allowed = waits(config, revision, first, [running])
    assert (allowed is not None) is bounded
    ahead = request("b", computed=6, emitted=1, **feature)
    assert (waits(config, revision, plain, [ahead]) is not None) is bounded


@pytest.mark.parametrize(
    ("keys", "feature"), [(ENCODER, {"inputs": (PICTURE,)}), (ADAPTERS, ADAPTER)]
)
def test_the_place_of_a_preempted_request_is_known_unless_a_request_may_have_been_overtaken(
    keys, feature
):
    again = request("b", preemptions=1)
    assert place_is_known(book(request("a"), again, **keys), again)
    assert not place_is_known(book(request("a", **feature), again, **keys), again)
