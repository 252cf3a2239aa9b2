"""The reference model: vLLM's scheduler, whose own rules are stricter than those of this system.

The comments of that code name the rules of every system (ALL-Rnn). The rules of this system are
implemented in these places: GEN-R01 in `vllm.scheduler.clamp`; GEN-R02, GEN-R04 and GEN-R10 in
`admit_waiting`; GEN-R08 in `complete`; GEN-R09 in `carry_out` and `preempt`; GEN-R05 in
`vllm.kv_cache.hold`; GEN-R06 and GEN-R07 in `allocator`; GEN-R11 in `vllm.kv_cache.free`; GEN-R12
in `hold`; GEN-R13 in `advance_running`; GEN-R03 in `VllmModel.refusal`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from ..config import MOST, Positive, convert
from ..systems import Reference
from ..vllm.config import read_config as read_vllm_config
from ..vllm.model import VllmModel

ROOM = 131_072  # tokens; the bound if a configuration leaves it to the scheduler
SLOTS = 32


class GenericConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Lengths are in tokens, `num_blocks` in blocks. null leaves the value to the scheduler, and no
    rule checks it.

    `order` is the order in which requests start: fcfs (first come, first served) or any. `own`
    holds the keys that the scheduler declares as `config_keys` in its reply to `start`.
    """

    block_size: Positive = 16
    num_blocks: Positive | None = None
    max_num_seqs: Positive | None = 8
    max_num_batched_tokens: Positive | None = 512
    max_model_len: Annotated[int, msgspec.Meta(ge=2, le=MOST)] | None = 2048
    enable_chunked_prefill: bool = True
    enable_prefix_caching: bool = False
    order: Literal["fcfs", "any"] = "fcfs"
    own: dict[str, Any] = {}


def read_config(values: Mapping[str, Any], revision: str) -> GenericConfig:
    return convert(values, GenericConfig)


def as_vllm(config: GenericConfig) -> dict[str, Any]:
    """Return the corresponding configuration of vLLM's scheduler, which meets all requirements of
    this system."""
    slots, budget = config.max_num_seqs or SLOTS, config.max_num_batched_tokens or ROOM
    return {
        "block_size": config.block_size,
        "num_blocks": config.num_blocks,
        "max_num_seqs": min(slots, budget),
        "max_num_batched_tokens": budget,
        "max_model_len": config.max_model_len or ROOM,
        "enable_chunked_prefill": config.enable_chunked_prefill,
        "enable_prefix_caching": config.enable_prefix_caching,
    }


# For each key, the value without effect, for comparisons with systems that lack the key.
NEUTRAL: Mapping[str, Any] = {
    "enable_chunked_prefill": True,
    "enable_prefix_caching": False,
    "order": "fcfs",
    "own": {},
}


def make_model(revision: str, config: Mapping[str, Any]) -> VllmModel:
    return VllmModel(read_vllm_config(as_vllm(read_config(config, revision)), "documented"))


REFERENCE = Reference(read_config, make_model)
