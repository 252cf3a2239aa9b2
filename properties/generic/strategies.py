"""Generators for any scheduler: requests as for vLLM, with fewer keys.

Source: `properties.vllm.strategies`, which aims at the remaining pool, budget and slots.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from ...model.generic.model import FEATURES, as_vllm, read_config
from ...model.pool import Content
from ...model.scenario import Request
from ...model.systems import full_config
from ..history.run_history import RunHistory
from ..search.generators import Shape
from ..vllm import strategies as vllm
from ..vllm.request_features import has_features, too_large, with_features
from ..vllm.strategies import Scale

__all__ = ["has_features", "too_large", "with_features"]  # its requests have vLLM's features
Config = Mapping[str, Any]
LATE_STEPS = vllm.LATE_STEPS
_PUBLISHED: Mapping[str, Sequence[Any]] = {
    **{"max_num_seqs": (128, 32), "max_num_batched_tokens": (2048, 512)},
    "enable_prefix_caching": (True, False),
}
WORKLOADS: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "crowd": {
        **{"max_num_seqs": (64, 128, 32), "max_num_batched_tokens": (2048, 160)},
        **{"enable_prefix_caching": (True, False), "max_model_len": (512,)},
        "num_blocks": (1000, 160, 160),
        **{"order": ("fcfs", "any", "any"), "order_by_priority": (False, True, True)},
    },
    "packed": {
        **_PUBLISHED,
        **{"max_model_len": (512,), "num_blocks": (90, 48)},
        **{"enable_chunked_prefill": (True, False), "num_speculative_tokens": (0, 3)},
        "order_by_priority": (True, False),  # if the target takes no other order than `any`
    },
    "long": {
        **{"max_num_seqs": (3, 24), "max_num_batched_tokens": (64, 512), "max_model_len": (128,)},
        "num_blocks": (24, 12),
    },
    "idle": {**_PUBLISHED, "max_model_len": (512,), "num_blocks": (None, 48)},
    "deep": {
        **_PUBLISHED,
        **{"max_num_seqs": (1, 128, 256), "max_model_len": (131_072,), "num_blocks": (30_000,)},
        "max_num_batched_tokens": (32_768, 2048, 512),
    },
    "loose": {
        **_PUBLISHED,
        "max_model_len": (8192,),
        "enable_chunked_prefill": (True, True, False),
    },
    "full": {
        **{"max_num_seqs": (256, 512), "max_num_batched_tokens": (8192, 2048)},
        **{"max_model_len": (16_384,), "num_blocks": (1500, None)},
        "enable_prefix_caching": (True, False),
    },
    "scarce": {
        **{"max_num_seqs": (4, 16), "max_num_batched_tokens": (64, 512), "max_model_len": (144,)},
        **{"num_blocks": (16, 40), "enable_prefix_caching": (True,)},
        **{"order": ("fcfs", "any"), "order_by_priority": (False, True)},
        **{"num_speculative_tokens": (0, 3), "async_scheduling": (False, True)},
    },
    "brim": {**_PUBLISHED, "max_model_len": (512,), "num_blocks": (40, 64)},
    "wide": {
        **{**_PUBLISHED, "max_num_batched_tokens": (16_384, 2048)},
        **{"max_model_len": (16_384,), "num_blocks": (6000, 1100)},
        "enable_chunked_prefill": (False, True),
    },
}
KEYS = (
    *("block_size", "num_blocks", "max_num_seqs", "max_num_batched_tokens", "max_model_len"),
    *("enable_chunked_prefill", "enable_prefix_caching"),
)
LONGEST_IN_BLOCKS = 8  # the longest request, if no length is bounded
SLOTS = 4  # requests in a batch, if their number is unbounded


def configs(scale: Scale, revision: str) -> st.SearchStrategy[dict[str, Any]]:
    """Draw configurations in which the pool, the budget or the slots are the first limit to be
    reached.

    A vLLM server's pool must have room for the longest request; this pool need not.
    """
    return st.builds(_in_own_terms, vllm.configs(scale, "documented"), st.sampled_from((1, 1, 2)))


def _in_own_terms(config: Config, beyond: int) -> dict[str, Any]:
    drawn = {**{key: config[key] for key in KEYS}, "order": "fcfs", "own": {}}
    drawn |= {key: config[key] for key in FEATURES if key in config}
    if beyond == 2 and config["policy"] == "priority":
        drawn |= {"order": "any", "order_by_priority": True}
    if drawn.keys() >= {"async_scheduling", "num_speculative_tokens"}:
        drawn["enable_prefix_caching"] = False
    if config["num_blocks"] is not None:
        drawn["max_model_len"] *= beyond
    return drawn


def in_its_terms(config: Config) -> dict[str, Any]:
    block = config["block_size"]
    bounded = {
        **config,
        "max_num_seqs": config["max_num_seqs"] or SLOTS,
        "max_model_len": config["max_model_len"] or block * LONGEST_IN_BLOCKS,
        "max_num_batched_tokens": config["max_num_batched_tokens"] or block * LONGEST_IN_BLOCKS,
    }
    return full_config("vllm", "documented", as_vllm(read_config(bounded, "documented")))


def shapes(config: Config) -> st.SearchStrategy[Shape]:
    return vllm.shapes(in_its_terms(config))


def long_prompts(config: Config) -> st.SearchStrategy[Shape]:
    return vllm.long_prompts(in_its_terms(config))


def beside_the_batch(config: Config, history: RunHistory[Any]) -> st.SearchStrategy[Shape]:
    return vllm.beside_the_batch(in_its_terms(config), history)


def beside_a_prefill(config: Config, history: RunHistory[Any]) -> st.SearchStrategy[Shape]:
    return vllm.beside_a_prefill(in_its_terms(config), history)


def contents(
    config: Config, earlier: Sequence[Request], name: str, length: int
) -> st.SearchStrategy[Content]:
    return vllm.contents(in_its_terms(config), earlier, name, length)


def fitted(config: Config, content: Content, shape: Shape | None) -> Shape:
    return vllm.fitted(in_its_terms(config), content, shape)


def caches(config: Config) -> bool:
    return bool(config["enable_prefix_caching"])


def steps_to_border(config: Config, history: RunHistory[Any]) -> int:
    return vllm.steps_to_border(in_its_terms(config), history)


def takes_priorities(config: Config) -> bool:
    """Return whether requests have priorities. If requests are served in order of arrival, they
    have none, because priorities must not change this order."""
    return bool(config["order"] == "any")


orders_by_priority = takes_priorities
drafts = vllm.drafts
