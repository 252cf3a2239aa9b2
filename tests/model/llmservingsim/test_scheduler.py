"""One step of the protocol: arrivals, and what is seen."""

import msgspec
import pytest

from schedproof.model.errors import InputError
from schedproof.model.llmservingsim import scheduler
from schedproof.model.llmservingsim.config import read_config
from schedproof.model.llmservingsim.state import State
from schedproof.model.systems import resolve_revision, revisions_of

from .build import ModelRun, waiting

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
    run = ModelRun("documented", enable_chunked_prefill=False, max_num_batched_tokens=8)
    run.ask("a", 6, 2)
    run.ask("b", 5, 2)
    run.ask("c", 2, 2)
    assert list(run.step()["scheduled"]) == ["a", "c"]
    assert list(run.step()["scheduled"]) == ["a", "b", "c"]


@each_revision
def test_those_who_run_and_do_not_decode_are_prefilling(revision):
    run = ModelRun(revision)
    run.ask("a", 3)
    run.ask("b", 20)
    run.ask("c", 3)
    step = run.step()
    assert (step["running"], step["waiting"]) == (["a", "b"], ["c"])
    assert step["prefilling"] == ["b"]
    assert run.step()["prefilling"] == []


def test_blocks_are_shown_although_nothing_is_computed_in_them_yet():
    """By the page, tokens count once their batch has completed; those in flight are not shown."""
    run = ModelRun("documented", pp_size=2)
    run.ask("a", 5)
    step = run.step()
    assert (step["scheduled"], step["blocks"], step["emitted"]) == ({"a": 5}, {"a": [1, 2]}, {})
    assert "computed" not in step


@each_revision
def test_who_holds_nothing_is_not_listed_with_counts(revision):
    run = ModelRun(revision, max_num_seqs=1, enable_prefix_caching=True)
    run.ask("a", 5)
    run.ask("b", 5)
    step = run.step()
    assert step["waiting"] == ["b"]
    for field in ("computed", "prefix_hit", "blocks"):
        assert list(step[field]) == ["a"]


@each_revision
def test_with_two_stages_two_batches_are_in_flight_and_the_oldest_completes_when_none_starts(
    revision,
):
    run = ModelRun(revision, pp_size=2, max_num_batched_tokens=8)
    for name in "abc":
        run.ask(name, 8, 2)
    steps = [run.step() for _ in range(3)]
    assert [list(step["scheduled"]) for step in steps] == [["a"], ["b"], []]
    assert [list(step["emitted"]) for step in steps] == [[], [], ["a"]]
    assert [len(run.state.inflight), steps[2]["kind"]] == [1, "idle"]


def test_the_page_is_the_first_revision():
    assert revisions_of("llmservingsim") == ("documented", "head")
    assert resolve_revision("llmservingsim", None) == "documented"


def test_head_has_no_priority_for_prefills_and_says_so():
    assert read_config({"prioritize_prefill": True}, "documented").prioritize_prefill
    assert not read_config({"prioritize_prefill": False}, "head").prioritize_prefill
    with pytest.raises(InputError) as caught:
        read_config({"prioritize_prefill": True}, "head")
    assert str(caught.value) == (
        "$.config.prioritize_prefill: only revision documented has this option; valid: False"
    )


def test_zero_slots_are_any_number_and_a_threshold_of_zero_is_none():
    config = read_config({"max_num_seqs": 0}, "documented")
    assert config.has_slot(0)
    assert config.has_slot(10**6)
    assert config.capped(10**6) == 10**6
    capped = msgspec.structs.replace(config, max_num_seqs=2, long_prefill_token_threshold=5)
    assert [capped.has_slot(taken) for taken in (0, 1, 2, 3)] == [True, True, False, False]
    assert [capped.capped(tokens) for tokens in (1, 5, 6)] == [1, 5, 5]
