"""What a grammar allows: its masks, how far it has advanced, and which drafts fit it."""

import pytest

from schedproof.model.scenario import Request, Turn
from schedproof.model.target import ModelTarget
from schedproof.model.vllm.grammars import fitting
from schedproof.model.vllm.model import unsupported
from schedproof.model.vllm.state import Grammar

CONFIG = {
    **{"block_size": 4, "max_num_seqs": 2, "max_num_batched_tokens": 16, "max_model_len": 32},
    **{"num_blocks": 12, "structured_outputs": True},
}
AHEAD = {"async_scheduling": True}
EAGLE = {**AHEAD, "num_speculative_tokens": 2, "num_lookahead_tokens": 2}


def started(**changes):
    target = ModelTarget()
    assert target.start("vllm", "0.33", CONFIG | changes)["ok"]
    return target


def add(target, name="a", prompt=6, **changes):
    request = {"id": name, "prompt": [[name, prompt]], "max_tokens": 4, "grammar_ends": 9}
    assert target.add(request | changes)["ok"]


def shown(target, steps):
    seen = [target.step()["step"] for _ in range(steps)]
    return [(step["masks"], step["grammars"]) for step in seen]


@pytest.mark.parametrize(
    ("grammar", "known", "fits"),
    [
        (Grammar(), 5, 3),
        (Grammar(ends=6), 5, 1),
        (Grammar(ends=5), 5, 0),
        (Grammar(ends=4), 5, 0),
        (Grammar(drafts=(0, 2)), 4, 0),
        (Grammar(drafts=(0, 2)), 5, 2),
        (Grammar(drafts=(9,)), 5, 3),
        (Grammar(begins=7, drafts=(0,)), 5, 2),
        (Grammar(begins=9, drafts=(0,)), 5, 3),
        (Grammar(begins=5, drafts=(0,)), 5, 0),
        (Grammar(begins=6, ends=7), 5, 2),
    ],
)
def test_drafts_fit_up_to_the_first_misfit_and_the_end(grammar, known, fits):
    assert fitting(grammar, known, 3) == fits


def test_a_request_that_samples_has_a_mask_and_its_grammar_advances():
    target = started()
    add(target, grammar_ends=2, max_tokens=3)
    assert shown(target, 3) == [
        ({"a": [0]}, {"a": 1}),
        ({"a": [1]}, {"a": 2}),
        ({"a": [None]}, {"a": 2}),
    ]


def test_no_mask_is_made_for_a_part_of_a_prompt_nor_without_a_grammar():
    target = started(max_num_batched_tokens=8)
    add(target, "a", 10)
    add(target, "b", 2, grammar_ends=None)
    assert shown(target, 2) == [({}, {}), ({"a": [0]}, {"a": 1})]


def test_there_is_a_mask_for_each_draft_that_fits_and_the_next_token():
    target = started(num_speculative_tokens=3)
    add(target, max_tokens=8, grammar_drafts=[2, 1], accepted=[2])
    assert shown(target, 3) == [
        ({"a": [0]}, {"a": 1}),
        ({"a": [1, 2]}, {"a": 3}),
        ({"a": [3, 4]}, {"a": 5}),
    ]


def test_a_preempted_request_takes_its_masks_from_the_tokens_that_it_has():
    target = started(num_blocks=4, max_model_len=16)
    add(target, "a", 7, max_tokens=8)
    add(target, "b", 7, max_tokens=8)
    masks = [masks for masks, _ in shown(target, 12)]
    places = [mask["b"][0] for mask in masks if "b" in mask]
    assert places == sorted({*places})


def test_a_mask_waits_for_the_token_in_flight():
    target = started(**AHEAD)
    add(target)
    assert shown(target, 3) == [({"a": [0]}, {}), ({"a": [1]}, {"a": 1}), ({"a": [2]}, {"a": 2})]


def test_a_request_that_ends_before_its_mask_is_made_gets_none():
    target = started(**AHEAD)
    add(target, max_tokens=4, output_len=2)
    assert shown(target, 3)[2] == ({}, {"a": 2})


def test_drafts_that_the_scheduler_has_not_checked_do_not_count():
    target = started(**EAGLE, policy="priority", max_num_batched_tokens=3)
    add(target, "first", 2, grammar_ends=None)
    add(target, "late", 1, priority=1, max_tokens=8, accepted=[2])
    seen = shown(target, 7)
    assert [masks.get("late") for masks, _ in seen[:6]] == [[0], None, None, None, [1], [2, 3, 4]]


def test_tokens_of_the_reasoning_are_not_constrained_and_do_not_advance_the_grammar():
    target = started()
    add(target, grammar_begins=2, grammar_ends=3, max_tokens=4)
    assert shown(target, 4) == [
        ({"a": [None]}, {"a": 0}),
        ({"a": [None]}, {"a": 0}),
        ({"a": [2]}, {"a": 1}),
        ({"a": [None]}, {"a": 1}),
    ]


def test_the_reasoning_may_end_among_drafts():
    target = started(num_speculative_tokens=3)
    add(target, max_tokens=8, grammar_begins=2, grammar_drafts=[2], accepted=[3])
    assert shown(target, 2) == [({"a": [None]}, {"a": 0}), ({"a": [None, 2, 3]}, {"a": 2})]


@pytest.mark.parametrize("ahead", [{}, AHEAD])
def test_a_turn_has_its_own_grammar_or_none(ahead):
    target = started(streaming_inputs=True, **ahead)
    turn = {"prompt": [["b", 3]], "max_tokens": 2, "delay": None}
    turns = [{**turn, "grammar_ends": 1}, turn, {**turn, "grammar_ends": 9}]
    add(target, max_tokens=2, turns=turns)
    found = [(masks["a"], accepted) for masks, accepted in shown(target, 12) if masks]
    assert [masks for masks, _ in found] == [[0], [1], [0], [None], [0], [1]]
    if not ahead:
        assert [accepted["a"] for _, accepted in found] == [1, 2, 1, 1, 1, 2]


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"grammar_steps": 1}, "grammar_steps"),
        ({"grammar_fails": True}, "grammar_fails"),
    ],
)
def test_with_sessions_grammars_are_compiled_at_once(changes, path):
    request = Request(id="a", arrival=0, prompt=(("a", 4),), max_tokens=2, **changes)
    config = CONFIG | {"streaming_inputs": True}
    assert [field for field, _ in unsupported(request, config)] == [path]
    assert [*unsupported(request, CONFIG)] == []


def test_the_grammar_of_a_turn_needs_structured_outputs():
    turns = (Turn(prompt=(("b", 3),), max_tokens=2, grammar_ends=1),)
    request = Request(id="a", arrival=0, prompt=(("a", 4),), max_tokens=2, turns=turns)
    assert [field for field, _ in unsupported(request, {"streaming_inputs": True})] == ["turns"]


def test_in_a_pipeline_without_asynchronous_scheduling_no_mask_waits():
    target = started(pipeline_parallel_size=3)
    add(target)
    assert [masks["a"] for masks, _ in shown(target, 10) if masks] == [[0], [1], [2], [3]]


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ({"pipeline_parallel_size": 3}, [1, 3, 5]),
        ({"pipeline_parallel_size": 2, "use_v2_model_runner": True}, [1, 3, 5]),
    ],
)
def test_a_request_waits_until_its_token_comes_with_the_oldest_step(changes, steps):
    target = started(**AHEAD, **changes)
    add(target, "b", grammar_ends=None, max_tokens=20)
    seen = [target.step()["step"]]
    add(target, max_tokens=3)
    seen += [target.step()["step"] for _ in range(7)]
    assert [n for n, step in enumerate(seen) if "a" in step["scheduled"]] == steps
    assert [step["masks"]["a"] for step in seen if step["masks"]] == [[0], [1], [2]]


def test_a_mask_waits_for_the_oldest_step_even_if_another_fits_into_the_pipeline():
    target = started(**AHEAD, pipeline_parallel_size=2, use_v2_model_runner=True)
    add(target, "b", grammar_ends=None, max_tokens=9)
    target.step()
    add(target)
    masks = [step["masks"].get("a") for step in (target.step()["step"] for _ in range(9))]
    assert [mask for mask in masks if mask] == [[0], [1], [2], [3]]
