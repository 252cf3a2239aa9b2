"""The model as the rest of the suite sees it: what it shows, what it refuses."""

from typing import Any

import pytest

from schedproof.model.errors import InputError
from schedproof.model.pool import Pool
from schedproof.model.scenario import Request
from schedproof.model.vllm.config import VllmConfig
from schedproof.model.vllm.model import VllmModel, make_model
from schedproof.model.vllm.state import Sequence, State

from .build import SMALL, ids

ALWAYS = (
    *("kind", "scheduled", "emitted", "waiting", "running", "prefilling", "preempted"),
    *("finished", "computed", "blocks"),
)


def model(**changes: Any) -> VllmModel:
    return make_model("documented", SMALL | changes)


def request(prompt: int, max_tokens: int, **changes: Any) -> Request:
    content = (("s", prompt - 1), ("t", 1))
    return Request(
        **{"id": "a", "arrival": 0, "prompt": content, "max_tokens": max_tokens} | changes
    )


def test_the_model_has_the_configuration_read() -> None:
    assert model() == VllmModel(VllmConfig(**SMALL))
    with pytest.raises(InputError) as caught:
        model(max_num_seqs=17)
    assert caught.value.path == "$.config.max_num_batched_tokens"


@pytest.mark.parametrize("caching", [False, True])
@pytest.mark.parametrize("bounded", [False, True])
def test_optional_fields_are_shown_where_they_mean_something(caching: bool, bounded: bool) -> None:
    one = model(enable_prefix_caching=caching, num_blocks=9 if bounded else None)
    optional = [*(["prefix_hit"] if caching else []), *(["free_blocks"] if bounded else [])]
    assert list(one.observes) == [*ALWAYS, *optional]


def test_nothing_is_anywhere_before_the_first_request() -> None:
    assert model().initial() == State(pool=Pool(None))
    assert model(num_blocks=9).initial() == State(pool=Pool(9))


def test_a_request_enters_with_what_the_scheduler_is_told() -> None:
    one = model()
    state = one.arrive(one.initial(), request(5, 4))
    state = one.arrive(state, request(6, 4, id="b", output_len=2, priority=3))
    assert state.waiting == (
        Sequence("a", 5, 4, 4, (("s", 4), ("t", 1))),
        Sequence("b", 6, 4, 2, (("s", 5), ("t", 1)), priority=3, arrival=1),
    )
    assert state.arrived == 2


def test_by_priority_a_more_important_request_passes_those_who_wait() -> None:
    for policy, expected in (("fcfs", "ab"), ("priority", "ba")):
        one = model(policy=policy)
        state = one.arrive(one.initial(), request(5, 4, priority=1))
        assert ids(one.arrive(state, request(5, 4, id="b")).waiting) == list(expected)


@pytest.mark.parametrize(
    ("values", "refusal"),
    [
        ({}, None),
        ({"max_model_len": 22}, None),
        ({"max_model_len": 21}, "prompt + max_tokens = 22 tokens is beyond max_model_len (21)"),
        ({"num_blocks": 6}, None),
        ({"num_blocks": 7}, None),
        ({"num_blocks": 5}, "prompt + max_tokens - 1 = 21 tokens needs 6 blocks of 5"),
        ({"max_num_batched_tokens": 20}, None),
        ({"max_num_batched_tokens": 21, "enable_chunked_prefill": False}, None),
        ({"max_num_batched_tokens": 22, "enable_chunked_prefill": False}, None),
        (
            {"max_num_batched_tokens": 20, "enable_chunked_prefill": False},
            "prompt + max_tokens - 1 = 21 tokens is beyond max_num_batched_tokens (20), "
            "and prompts are not chunked",
        ),
        # Two reasons: the first one is told.
        (
            {"max_model_len": 21, "num_blocks": 5},
            "prompt + max_tokens = 22 tokens is beyond max_model_len (21)",
        ),
    ],
)
def test_what_can_never_run_is_refused_with_the_limit_that_it_exceeds(
    values: dict[str, Any], refusal: str | None
) -> None:
    """18 + 4 = 22 tokens, of which the last is never computed: 21, 6 blocks."""
    assert model(**values).refusal(request(18, 4)) == refusal


def test_the_last_token_needs_no_block() -> None:
    """17 + 4 - 1 = 20 tokens, 5 blocks."""
    assert model(num_blocks=5).refusal(request(17, 4)) is None


def test_what_a_request_will_really_generate_does_not_count_at_the_door() -> None:
    assert model().refusal(request(60, 5, output_len=1)) is not None
    assert model().refusal(request(60, 4, output_len=1)) is None
