"""One step of the protocol: arrivals, and what is seen."""

import pytest

from schedproof.model.llmservingsim import scheduler
from schedproof.model.llmservingsim.state import State

from .build import Run, waiting

each_revision = pytest.mark.parametrize("revision", ["documented", "head"])


def test_requests_are_numbered_as_they_come():
    state = State()
    for name in "abc":
        state = scheduler.arrive(state, waiting(5, name=name))
    assert state.waiting == tuple(
        waiting(5, name=name, arrival=place) for place, name in enumerate("abc")
    )
    assert state.arrived == 3


def test_who_came_first_goes_first_even_if_it_started_later():
    run = Run("documented", enable_chunked_prefill=False, max_num_batched_tokens=8)
    run.ask("a", 6, 2)
    run.ask("b", 5, 2)
    run.ask("c", 2, 2)
    assert list(run.step()["scheduled"]) == ["a", "c"]
    assert list(run.step()["scheduled"]) == ["a", "b", "c"]


@each_revision
def test_those_who_run_and_do_not_decode_are_prefilling(revision):
    run = Run(revision)
    run.ask("a", 3)
    run.ask("b", 20)
    run.ask("c", 3)
    step = run.step()
    assert (step["running"], step["waiting"]) == (["a", "b"], ["c"])
    assert step["prefilling"] == ["b"]
    assert run.step()["prefilling"] == []


def test_blocks_are_shown_although_nothing_is_computed_in_them_yet():
    """By the page tokens count once their batch is through."""
    run = Run("documented", pp_size=2)
    run.ask("a", 5)
    run.schedule()
    step = run.step()
    assert (step["scheduled"], step["blocks"], step["computed"]) == ({}, {"a": [1, 2]}, {"a": 0})


@each_revision
def test_who_holds_nothing_is_not_listed_with_counts(revision):
    run = Run(revision, max_num_seqs=1, enable_prefix_caching=True)
    run.ask("a", 5)
    run.ask("b", 5)
    step = run.step()
    assert step["waiting"] == ["b"]
    for field in ("computed", "prefix_hit", "blocks"):
        assert list(step[field]) == ["a"]


def test_the_pipeline_depth_makes_no_difference_where_a_step_completes_at_once():
    seen = []
    for depth in (1, 3):
        run = Run("head", pp_size=depth, num_blocks=4)
        for name in "abc":
            run.ask(name, 5, 4)
        seen.append([run.step() for _ in range(12)])
    assert seen[0] == seen[1]
