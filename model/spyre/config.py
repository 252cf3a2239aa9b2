"""Spyre's parameters, with the names and defaults of the scenario format."""

from collections.abc import Mapping
from typing import Any

import msgspec

from ..config import Positive, convert
from ..errors import InputError

REVISIONS = ("sound", "documented", "2.1.2", "2.5.2")


class SpyreConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The configuration of a scheduler. Lengths are in tokens, `num_blocks` in blocks (without
    padding block 0; null: unbounded)."""

    block_size: Positive = 64
    chunk_size: Positive = 512
    max_num_seqs: Positive = 32
    max_model_len: Positive = 32768
    max_batch_tkv: Positive = 131072
    interleave: bool = True  # SPY-R33
    prefix_caching: bool = False
    num_blocks: Positive | None = None
    pausing: bool = True
    long_output_priority: bool = False


def read_config(values: Mapping[str, Any], revision: str) -> SpyreConfig:
    config = convert(values, SpyreConfig)
    if config.chunk_size % config.block_size:
        raise InputError(
            "$.config.chunk_size",
            f"{config.chunk_size} is not a multiple of block_size ({config.block_size})",
        )
    if config.long_output_priority and revision != "2.5.2":
        raise InputError(
            "$.config.long_output_priority",
            f"true needs decode pausing, which revision {revision} does not have; valid: false, "
            "or revision 2.5.2",
        )
    return config


def check_pool(config: SpyreConfig, revision: str) -> None:
    """Raise InputError if this pool has no room for even one request of max_model_len tokens,
    because release 2.5.2 would not start with it."""
    if config.num_blocks is None or revision != "2.5.2":
        return
    valid = -(-config.max_model_len // config.block_size)
    if config.num_blocks < valid:
        raise InputError(
            "$.config.num_blocks",
            f"{config.num_blocks} blocks cannot hold a request of max_model_len tokens in "
            f"revision {revision}; valid: null or at least {valid}",
        )
