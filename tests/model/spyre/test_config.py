"""What a configuration may be, and how it is refused."""

import pytest

from schedproof.model.errors import InputError
from schedproof.model.spyre.config import check_pool, read_config

from .build import EACH, config


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
            "$.config.long_output_priority: true belongs to decode pausing, which revision "
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
        "2 cannot hold a request of max_model_len tokens in revision 2.5.2; "
        "valid: null or at least 3"
    )


@EACH
def test_a_pool_without_a_bound_is_never_too_small(revision):
    assert check_pool(config(num_blocks=None), revision) is None


@pytest.mark.parametrize("revision", ["sound", "documented", "2.1.2"])
def test_the_other_revisions_take_any_pool(revision):
    assert check_pool(config(num_blocks=1), revision) is None
