"""What a configuration may be, and how it is refused."""

from typing import Any

import pytest

from schedproof.model.errors import InputError
from schedproof.model.spyre import model as models
from schedproof.model.spyre.config import REVISIONS, SpyreConfig, check_pool, read_config

from .build import EACH, config

NUMBERS = ("block_size", "chunk_size", "max_num_seqs", "max_model_len", "max_batch_tkv")


def refusal(values: dict[str, Any], revision: str = "sound") -> str:
    with pytest.raises(InputError) as caught:
        read_config(values, revision)
    return str(caught.value)


def pool_refusal(values: SpyreConfig, revision: str) -> str:
    with pytest.raises(InputError) as caught:
        check_pool(values, revision)
    assert caught.value.path == "$.config.num_blocks"
    return caught.value.problem


def test_the_revisions_that_can_be_named_are_those_that_exist() -> None:
    assert tuple(models.REVISIONS) == REVISIONS


@EACH
def test_what_is_left_out_is_at_the_scenario_formats_default(revision: str) -> None:
    read = read_config({}, revision)
    assert {key: getattr(read, key) for key in SpyreConfig.__struct_fields__} == {
        "block_size": 64,
        "chunk_size": 512,
        "max_num_seqs": 32,
        "max_model_len": 32768,
        "max_batch_tkv": 131072,
        "interleave": True,
        "prefix_caching": False,
        "num_blocks": None,
        "pausing": True,
        "long_output_priority": False,
    }


def test_what_is_given_is_read() -> None:
    values = dict.fromkeys(NUMBERS, 1) | {"num_blocks": 1, "interleave": False, "pausing": False}
    read = read_config(values | {"prefix_caching": True, "long_output_priority": True}, "2.5.2")
    assert [getattr(read, key) for key in (*NUMBERS, "num_blocks")] == [1] * 6
    assert (read.interleave, read.pausing) == (False, False)
    assert (read.prefix_caching, read.long_output_priority) == (True, True)


@pytest.mark.parametrize("key", [*NUMBERS, "num_blocks"])
def test_sizes_are_at_least_one(key: str) -> None:
    assert refusal({key: 0}).startswith(f"$.config.{key}: 0: Expected `int` >= 1")


@pytest.mark.parametrize("key", NUMBERS)
def test_only_the_pool_may_be_unbounded(key: str) -> None:
    assert refusal({key: None}) == f"$.config.{key}: None: Expected `int`, got `null`"
    assert read_config({"num_blocks": None}, "sound").num_blocks is None


def test_chunks_are_whole_blocks() -> None:
    assert read_config({"block_size": 4, "chunk_size": 12}, "sound").chunk_size == 12
    assert refusal({"block_size": 4, "chunk_size": 10}) == (
        "$.config.chunk_size: 10 is not a multiple of block_size (4)"
    )
    # A block of two chunks is none either.
    assert refusal({"block_size": 8, "chunk_size": 4}).startswith("$.config.chunk_size: 4 is not")


@EACH
def test_long_output_priority_belongs_to_the_revision_that_pauses(revision: str) -> None:
    assert not read_config({"long_output_priority": False}, revision).long_output_priority
    if revision == "2.5.2":
        assert read_config({"long_output_priority": True}, revision).long_output_priority
    else:
        assert refusal({"long_output_priority": True}, revision) == (
            "$.config.long_output_priority: true belongs to decode pausing, which revision "
            f"{revision} does not have; valid: false, or revision 2.5.2"
        )


def test_a_wrong_type_is_named_with_its_value_of_60_characters_at_most() -> None:
    assert refusal({"interleave": 1}) == "$.config.interleave: 1: Expected `bool`, got `int`"
    assert refusal({"block_size": "x" * 100}) == (
        f"$.config.block_size: '{'x' * 59}: Expected `int`, got `str`"
    )


def test_2_5_2_takes_a_pool_that_holds_a_request_of_full_length() -> None:
    """9 tokens: 3 blocks."""
    check_pool(config(max_model_len=9, num_blocks=3), "2.5.2")
    assert pool_refusal(config(max_model_len=9, num_blocks=2), "2.5.2") == (
        "2 cannot hold a request of max_model_len tokens in revision 2.5.2; "
        "valid: null or at least 3"
    )


@EACH
def test_a_pool_without_a_bound_is_never_too_small(revision: str) -> None:
    assert check_pool(config(num_blocks=None), revision) is None


@pytest.mark.parametrize("revision", ["sound", "documented", "2.1.2"])
def test_the_other_revisions_take_any_pool(revision: str) -> None:
    assert check_pool(config(num_blocks=1), revision) is None
