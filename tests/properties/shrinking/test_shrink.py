"""Shrinking: smaller, still broken, within its budget."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.model.scenario import Request, Scenario, check_requests
from schedproof.model.systems import check_features
from schedproof.properties.shrinking.shrink import shrink, simpler, smaller_numbers

BLOCK = 4


@st.composite
def requests(draw, name):
    max_tokens = draw(st.integers(1, 40))
    abort_at = draw(st.none() | st.integers(0, 9))
    return Request(
        id=name,
        arrival=draw(st.integers(0, 9)),
        prompt=((name, draw(st.integers(1, 40))),),
        max_tokens=max_tokens,
        output_len=draw(st.none() | st.integers(1, max_tokens)),
        abort_at=abort_at,
        abort_inside=abort_at is not None and draw(st.booleans()),
    )


@st.composite
def scenarios(draw):
    names = [f"r{number}" for number in range(draw(st.integers(1, 4)))]
    return Scenario(
        system="spyre",
        config={"block_size": BLOCK},
        requests=tuple(draw(requests(name)) for name in names),
    )


def size(scenario):
    ours = scenario.requests
    numbers = sum(request.prompt_len + request.max_tokens + request.arrival for request in ours)
    return len(ours), numbers


def always(_):
    return True


@given(scenarios())
def test_every_candidate_is_valid_and_no_larger(scenario):
    for candidate in simpler(scenario):
        check_requests(candidate.requests)
        assert candidate.requests
        assert candidate != scenario
        assert len(candidate.requests) <= len(scenario.requests)
        assert size(candidate)[1] <= size(scenario)[1]


@given(scenarios(), st.integers(1, 60), st.integers(0, 200))
def test_the_result_still_breaks_is_no_larger_and_costs_no_more_than_the_attempts(
    scenario, least, attempts
):
    tried = []

    def breaks(candidate):
        tried.append(candidate)
        return sum(request.prompt_len for request in candidate.requests) >= least

    result = shrink(scenario, breaks, attempts)
    assert result == scenario or breaks(result)
    assert size(result) <= size(scenario)
    assert len(tried) <= attempts + 1


@pytest.mark.slow
@given(scenarios())
def test_no_attempts_change_nothing(scenario):
    assert shrink(scenario, always, 0) == scenario


@given(scenarios())
def test_what_always_breaks_shrinks_to_one_request_of_one_token(scenario):
    [request] = shrink(scenario, always, 10_000).requests
    assert (request.arrival, request.prompt_len, request.max_tokens) == (0, 1, 1)
    assert (request.abort_at, request.abort_inside, request.tokens_to_emit) == (None, False, 1)


@given(scenarios())
def test_what_breaks_no_more_is_left_alone(scenario):
    assert shrink(scenario, lambda _: False, 10_000) == scenario


@given(scenarios(), st.integers(2, 80))
def test_the_smallest_number_that_breaks_is_found(scenario, least):
    def breaks(candidate):
        return max(drawn.prompt_len for drawn in candidate.requests) >= least

    if not breaks(scenario):
        return
    [request] = shrink(scenario, breaks, 10_000).requests
    assert request.prompt_len == least


def test_idle_steps_before_the_first_arrival_go_first():
    """A quick gate has few attempts, and its steps are numbered from the first that matters."""
    both = tuple(
        Request(id=name, arrival=arrival, prompt=((name, 90),), max_tokens=80)
        for name, arrival in (("r0", 10), ("r1", 12))
    )
    scenario = Scenario(system="spyre", config={"block_size": BLOCK}, requests=both)
    small = shrink(scenario, lambda smaller: len(smaller.requests) == 2, 3)
    assert [request.arrival for request in small.requests] == [0, 2]


def test_no_candidate_is_tried_twice():
    tried: list[str] = []
    request = Request(id="a", arrival=3, prompt=(("a", 33),), max_tokens=17)
    scenario = Scenario(system="spyre", config={"block_size": BLOCK}, requests=(request,))

    def breaks(candidate):
        tried.append(repr(candidate.requests))
        return candidate.requests[0].prompt_len > 9

    shrink(scenario, breaks, 10_000)
    assert len(tried) == len(set(tried))


@given(st.integers(0, 500), st.integers(0, 5), st.integers(1, 64))
def test_smaller_numbers_are_smaller_and_different(number, least, block):
    candidates = list(smaller_numbers(number, least, block))
    assert all(least <= smaller < number for smaller in candidates)
    assert len(candidates) == len(set(candidates))
    assert bool(candidates) == (number > least)


def with_inputs(*prompt, inputs):
    request = Request(id="a", arrival=0, prompt=prompt, max_tokens=1, encoder_inputs=inputs)
    return Scenario(system="vllm", config={"block_size": BLOCK}, requests=(request,))


def test_an_encoder_input_is_left_out_or_becomes_text_and_is_never_cut():
    scenario = with_inputs(("a", 1), ("cat", 4), ("b", 2), ("dog", 3), inputs=(1, 3))
    seen = [candidate.requests[0] for candidate in simpler(scenario)]
    for request in seen:
        check_requests((request,))
        for number in request.encoder_inputs:
            assert request.prompt[number] in (("cat", 4), ("dog", 3))
    shapes = {(request.prompt, request.encoder_inputs) for request in seen}
    assert ((("a", 1), ("b", 2), ("dog", 3)), (2,)) in shapes
    assert ((("a", 1), ("a", 4), ("b", 2), ("dog", 3)), (3,)) in shapes
    assert ((("a", 10),), ()) in shapes


def test_what_needs_no_encoder_shrinks_to_text():
    scenario = with_inputs(("a", 1), ("cat", 4), ("dog", 3), inputs=(1, 2))
    shrunk = shrink(scenario, always, 200)
    assert shrunk.requests[0].encoder_inputs == ()


def test_an_encoder_goes_after_its_last_input():
    config = {"max_num_encoder_input_tokens": 16, "encoder_cache_size": 16}
    requests = with_inputs(("a", 1), ("cat", 4), inputs=(1,)).requests
    scenario = Scenario(system="vllm", revision="documented", config=config, requests=requests)
    for candidate in simpler(scenario):
        check_features(candidate, "documented", candidate.config)
    assert not shrink(scenario, always, 200).config


def test_groups_that_are_not_needed_are_left_out():
    windows = [{"kind": "sliding_window", "window": tokens} for tokens in (4, 8)]
    config = {"block_size": BLOCK, "kv_groups": [{"kind": "full"}, *windows]}
    request = Request(id="a", arrival=0, prompt=(("a", 1),), max_tokens=1)
    scenario = Scenario(system="vllm", config=config, requests=(request,))

    def breaks(candidate):
        return any(group.get("window") == 8 for group in candidate.config.get("kv_groups", ()))

    shrunk = shrink(scenario, breaks, 100)
    assert shrunk.config["kv_groups"] == [{"kind": "full"}, windows[1]]


def test_optional_fields_that_nothing_needs_go_in_one_trial():
    fields = {"external_tokens": 8, "load_steps": 3, "send_steps": 1, "accepted": (0, 2)}
    asked = tuple(
        Request(id=name, arrival=0, prompt=((name, 9),), max_tokens=4, **fields) for name in "abcd"
    )
    whole = Scenario(system="generic", config={"block_size": BLOCK}, requests=asked)
    short = shrink(whole, lambda tried: len(tried.requests) == 4, 12)
    assert all(r.external_tokens == 0 and r.accepted == () for r in short.requests)
