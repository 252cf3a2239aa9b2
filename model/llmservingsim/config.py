"""LLMServingSim's parameters, with LLMServingSim's own names and the defaults of its documentation
page (LSS-R36)."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from ..config import Count, Positive, convert
from ..errors import InputError


class LlmServingSimConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The configuration of a simulator. Lengths are in tokens, `num_blocks` in blocks (null:
    unbounded), `pp_size` in pipeline stages. `instances` is the number of schedulers that the
    simulator's main loop serves. With two, the first prefills and the second decodes; 0 means that
    one scheduler runs without the main loop.

    A `max_num_seqs` of 0 allows any number of requests, and a `long_prefill_token_threshold` of 0
    means no threshold.
    """

    block_size: Positive = 16
    num_blocks: Positive | None = None
    max_num_seqs: Count = 128
    max_num_batched_tokens: Positive = 2048
    long_prefill_token_threshold: Count = 0
    enable_chunked_prefill: bool = True
    enable_prefix_caching: bool = True
    prioritize_prefill: bool = False
    pp_size: Positive = 1
    instances: Annotated[int, msgspec.Meta(ge=0, le=2)] = 0

    def has_slot(self, taken: int) -> bool:
        """Return whether a request may join `taken` others (LSS-R04). If `max_num_seqs` is 0, it
        always may (LSS-R05)."""
        return not self.max_num_seqs or taken < self.max_num_seqs

    def capped(self, tokens: int) -> int:
        """Return how many of `tokens` tokens one step may compute for a request (LSS-R07)."""
        return min(tokens, self.long_prefill_token_threshold or tokens)


def read_config(values: Mapping[str, Any], revision: str) -> LlmServingSimConfig:
    config = convert(values, LlmServingSimConfig)
    if config.prioritize_prefill and revision == "head":
        raise InputError(
            "$.config.prioritize_prefill",
            "only revision documented has this option; valid: False",
        )
    return config


# For each key, the value that has no effect, for comparisons with systems that lack the key.
NEUTRAL: Mapping[str, Any] = {
    "long_prefill_token_threshold": 0,
    "enable_chunked_prefill": True,
    "enable_prefix_caching": True,
    "prioritize_prefill": False,
    "pp_size": 1,
    "instances": 0,
}
