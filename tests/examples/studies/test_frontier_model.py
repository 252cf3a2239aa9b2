"""The frontier on the model: small cases by hand, and what holds of every chunk size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.examples.studies.frontier_model import (
    KNOBS,
    SHORT,
    Load,
    Point,
    StepCost,
    configured,
    even_chunk,
    even_chunks,
    measure,
    possible,
    priced,
    request,
    settled,
    until_first_token,
)
from schedproof.model.vllm.model import VllmModel

TEN = Load(prompt=10, decoding=2)


def test_a_threshold_of_four_cuts_ten_tokens_into_4_4_and_2():
    # Beside two decodes: steps of 6, 6 and 4. The 16 tokens of the one behind are cut as well.
    assert measure(TEN, "threshold", 4) == Point("threshold", 4, 4, 3, 6, 16, waits=4)


def test_a_budget_of_six_does_the_same_and_the_one_behind_waits_for_what_is_left():
    # It gets nothing beside 2 + 4, then 2 beside 2 + 2, then 3 a step beside three decodes: 2, 5,
    # 8, 11, 14, 16.
    assert measure(TEN, "budget", 6) == Point("budget", 6, 4, 3, 6, 16, waits=7)


@pytest.mark.parametrize(("knob", "setting"), [("budget", 12), ("threshold", 10)])
def test_a_prompt_that_fits_is_done_in_one_step(knob, setting):
    point = measure(TEN, knob, setting)
    assert point[2:6] == (10, 1, 12, 12)


def test_a_budget_that_the_decodes_use_up_is_not_possible():
    assert not possible(TEN, "budget", 3)
    assert possible(TEN, "budget", 4)
    assert possible(TEN, "threshold", 1)


def test_every_decode_goes_on_in_every_step():
    for knob, setting in (("budget", 5), ("threshold", 3)):
        model = VllmModel(configured(TEN, knob, setting))
        steps = until_first_token(model, settled(model, TEN), request("long", TEN.prompt, TEN))
        assert {(step["emitted"]["d0"], step["emitted"]["d1"]) for step in steps} == {(1, 1)}


def test_for_every_chunk_size_steps_and_tokens_are_those_of_the_division():
    load = Load(prompt=24, decoding=3)
    for chunk in range(1, 27):
        steps = -(-24 // chunk)
        for knob, setting in (("threshold", chunk), ("budget", chunk + 3)):
            if possible(load, knob, setting):
                point = measure(load, knob, setting)
                assert point[2:4] == (min(chunk, 24), steps)
                assert point.longest == min(chunk, 24) + 3
                assert point.tokens == 24 + 3 * steps


def test_the_frontier_over_all_chunk_sizes_are_the_even_slices():
    load = Load(prompt=24, decoding=3)
    points = [measure(load, "threshold", chunk) for chunk in range(1, 25)]
    for cost in (StepCost(0, 1), StepCost(256, 1), StepCost(1, 0.001)):
        kept = [one.point.chunk for one in priced(points, cost) if not one.dominated]
        assert kept == [1, 2, 3, 4, 5, 6, 8, 12, 24]
        assert kept == sorted({even_chunk(24, chunk) for chunk in range(1, 25)})
    assert even_chunks(24) == 9


@given(
    st.builds(Load, prompt=st.integers(1, 70), decoding=st.integers(1, 4)),
    st.sampled_from(KNOBS),
    st.tuples(st.integers(1, 80), st.integers(1, 80)).map(sorted),
)
def test_a_smaller_setting_never_brings_the_first_token_forward(load, knob, settings):
    smaller, larger = (load.decoding + 1 + one for one in settings)
    less, more = measure(load, knob, smaller), measure(load, knob, larger)
    assert less.steps >= more.steps
    assert less.longest <= more.longest
    assert less.tokens >= more.tokens


@given(st.builds(Load, prompt=st.integers(1, 70), decoding=st.integers(1, 4)), st.integers(1, 80))
def test_both_knobs_move_the_long_prompt_along_the_same_curve(load, chunk):
    by_threshold = measure(load, "threshold", chunk + 1)
    by_budget = measure(load, "budget", chunk + 1 + load.decoding)
    assert by_threshold[2:6] == by_budget[2:6]


def test_whom_the_threshold_leaves_room_does_not_wait_for_the_long_prompt():
    load = Load(prompt=400, decoding=2)
    assert measure(load, "threshold", 2 * SHORT).waits == 1
    assert measure(load, "budget", 2 * SHORT + 2).waits == 400 // (2 * SHORT)


def test_a_price_is_fixed_per_step_and_by_token():
    points = [measure(TEN, "threshold", 4), measure(TEN, "threshold", 10)]
    four, ten = priced(reversed(points), StepCost(fixed=10, per_token=2))
    assert (four.point.chunk, four.ttft, four.itl) == (4, 3 * 10 + 2 * 16, 10 + 2 * 6)
    assert four.mean_itl == pytest.approx(62 / 3)
    assert (ten.ttft, ten.itl, ten.mean_itl) == (34, 34, 34)


def test_a_point_is_dominated_by_one_that_is_no_longer_in_both_and_shorter_in_one():
    # 10 = 5 + 5 = 6 + 4 = 7 + 3: two steps each. A request that coincides does not dominate.
    points = [measure(TEN, "threshold", chunk) for chunk in (4, 5, 6, 7)]
    points.append(measure(TEN, "budget", 7))
    found = priced(points, StepCost(1, 1))
    assert [(one.point.knob, one.point.chunk, one.dominated) for one in found] == [
        ("threshold", 4, False),
        ("threshold", 5, False),
        ("budget", 5, False),
        ("threshold", 6, True),
        ("threshold", 7, True),
    ]


def test_even_slices_of_thirty_thousand_tokens():
    assert even_chunk(30_000, 2048) == 2000
    assert even_chunk(30_000, 29_999) == 15_000
    assert even_chunk(30_000, 40_000) == 30_000
    assert even_chunks(30_000) == 346
    assert even_chunks(1) == 1
