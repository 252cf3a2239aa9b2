"""Configurations of Spyre that are valid, and how the others are refused."""

import pytest

from schedproof.model.errors import InputError
from schedproof.model.spyre.config import check_pool, read_config
from schedproof.model.spyre.state import Sequence, State

from .build import EACH, config, decoding, ids, waiting


def refusal(values, revision="sound"):
    with pytest.raises(InputError) as caught:
        read_config(values, revision)
    return str(caught.value)


def pool_refusal(values, revision):
    with pytest.raises(InputError) as caught:
        check_pool(values, revision)
    assert caught.value.path == "$.config.num_blocks"
    return caught.value.problem


def test_chunks_are_whole_blocks():
    assert read_config({"block_size": 4, "chunk_size": 12}, "sound").chunk_size == 12
    assert refusal({"block_size": 4, "chunk_size": 10}) == (
        "$.config.chunk_size: 10 is not a multiple of block_size (4)"
    )
    # A block of two chunks is none either.
    assert refusal({"block_size": 8, "chunk_size": 4}).startswith("$.config.chunk_size: 4 is not")


@EACH
def test_long_output_priority_belongs_to_the_revision_that_pauses(revision):
    assert not read_config({"long_output_priority": False}, revision).long_output_priority
    if revision == "2.5.2":
        assert read_config({"long_output_priority": True}, revision).long_output_priority
    else:
        assert refusal({"long_output_priority": True}, revision) == (
            "$.config.long_output_priority: true needs decode pausing, which revision "
            f"{revision} does not have; valid: false, or revision 2.5.2"
        )


def test_a_wrong_type_is_named_with_its_value_of_60_characters_at_most():
    assert refusal({"interleave": 1}) == "$.config.interleave: 1: Expected `bool`, got `int`"
    assert refusal({"block_size": "x" * 100}) == (
        f"$.config.block_size: '{'x' * 59}: Expected `int`, got `str`"
    )


def test_2_5_2_takes_a_pool_that_holds_a_request_of_full_length():
    """9 tokens: 3 blocks."""
    check_pool(config(max_model_len=9, num_blocks=3), "2.5.2")
    assert pool_refusal(config(max_model_len=9, num_blocks=2), "2.5.2") == (
        "2 blocks cannot hold a request of max_model_len tokens in revision 2.5.2; valid: null "
        "or at least 3"
    )


@EACH
def test_a_pool_without_a_bound_is_never_too_small(revision):
    assert check_pool(config(num_blocks=None), revision) is None


@pytest.mark.parametrize("revision", ["sound", "documented", "2.1.2"])
def test_the_other_revisions_take_any_pool(revision):
    assert check_pool(config(num_blocks=1), revision) is None


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
