"""nano-vLLM's parameters, under the names that scenarios use."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from ..config import MOST, Positive, convert

# A sequence gets a new block if its length modulo block_size is 1. This never occurs with
# block_size 1.
BlockSize = Annotated[int, msgspec.Meta(ge=2, le=MOST)]


class NanoConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The configuration of a scheduler. `block_size` and `max_num_batched_tokens` are in tokens,
    `num_blocks` in blocks.

    `max_num_batched_tokens` is the budget of a prefill step; decode steps have none. In
    `documented`, `max_num_seqs` bounds the running sequences; in 0.2.0, the sequences of one step.
    """

    block_size: BlockSize = 256
    num_blocks: Positive = 64
    max_num_seqs: Positive = 512
    max_num_batched_tokens: Positive = 16384


def read_config(values: Mapping[str, Any], revision: str) -> NanoConfig:
    return convert(values, NanoConfig)
