"""What a configuration may be, and how it is refused."""

from typing import Any

import pytest

from schedproof.model.errors import InputError
from schedproof.model.nano_vllm.config import NanoConfig, read_config
from schedproof.model.systems import full_config

from .build import REVISIONS

COUNTS = ("num_blocks", "max_num_seqs", "max_num_batched_tokens")
KEYS = ("block_size", *COUNTS)


def refusal(revision: str = "documented", **values: Any) -> str:
    with pytest.raises(InputError) as caught:
        read_config(values, revision)
    return str(caught.value)


@pytest.mark.parametrize("revision", REVISIONS)
def test_what_is_left_out_is_at_its_default(revision: str) -> None:
    defaults = {
        "block_size": 256,
        "num_blocks": 64,
        "max_num_seqs": 512,
        "max_num_batched_tokens": 16384,
    }
    read = read_config({}, revision)
    assert {key: getattr(read, key) for key in NanoConfig.__struct_fields__} == defaults
    assert full_config("nano_vllm", revision, {}) == defaults


@pytest.mark.parametrize("revision", REVISIONS)
def test_what_is_given_is_read(revision: str) -> None:
    values = {"block_size": 2, "num_blocks": 1, "max_num_seqs": 1, "max_num_batched_tokens": 1}
    read = read_config(values, revision)
    assert {key: getattr(read, key) for key in values} == values


@pytest.mark.parametrize("key", COUNTS)
@pytest.mark.parametrize("value", [0, -1])
def test_counts_are_at_least_one(key: str, value: int) -> None:
    assert refusal(**{key: value}) == f"$.config.{key}: {value}: Expected `int` >= 1"


@pytest.mark.parametrize("value", [1, 0])
def test_a_block_has_at_least_two_tokens(value: int) -> None:
    """With one token to a block no length leaves the remainder at which a block is added."""
    assert refusal(block_size=value) == f"$.config.block_size: {value}: Expected `int` >= 2"


@pytest.mark.parametrize("key", KEYS)
def test_nothing_is_unbounded_the_pool_neither(key: str) -> None:
    assert refusal(**{key: None}) == f"$.config.{key}: None: Expected `int`, got `null`"


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("4", "'4': Expected `int`, got `str`"),
        (4.5, "4.5: Expected `int`, got `float`"),
        (True, "True: Expected `int`, got `bool`"),
        ([4], "[4]: Expected `int`, got `array`"),
    ],
)
def test_a_value_of_another_type_is_named_with_what_it_is(key: str, value: Any, says: str) -> None:
    assert refusal(**{key: value}) == f"$.config.{key}: {says}"
