"""What a state and its requests say of themselves."""

import pytest

from schedproof.model.spyre.state import Sequence, State

from .build import decoding, ids, waiting


@pytest.mark.parametrize(("computed", "prefilled"), [(0, False), (4, False), (5, True), (6, True)])
def test_a_request_decodes_once_its_whole_prompt_is_computed(computed, prefilled):
    assert waiting(5, computed=computed).prefilled is prefilled


def test_remaining_is_what_max_tokens_leaves_after_what_was_generated():
    """Whatever the request really generates: the scheduler is not told."""
    assert Sequence("a", 5, max_tokens=7, output_len=4, generated=3).remaining == 4


def test_running_is_the_decode_batch_and_the_one_that_prefills_at_any_place():
    begun = waiting(20, computed=4, name="begun")
    state = State(running=(decoding("a", 5, 1), begun, decoding("b", 3, 1)))
    assert state.prefilling == begun
    assert ids(state.decoding) == ["a", "b"]
    alone = State(running=(decoding("a", 5, 1),), waiting=(begun,), paused=(begun,))
    assert alone.prefilling is None


def test_who_is_paused_is_admitted_and_does_not_decode():
    state = State(
        waiting=(waiting(5),), running=(decoding("a", 5, 1),), paused=(decoding("b", 5, 1),)
    )
    assert ids(state.admitted) == ["a", "b"]
    assert ids(state.decoding) == ["a"]
