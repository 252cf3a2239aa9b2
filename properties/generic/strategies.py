"""Generators for any scheduler. They work like those for vLLM, with fewer keys.

Source: `properties.vllm.strategies`, which aims at the remaining pool, budget and slots.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from ...model.generic.model import FEATURES, as_vllm, read_config
from ...model.pool import Content, blocks_for
from ...model.scenario import Request
from ...model.systems import full_config
from ..history.run_history import RunHistory
from ..search.generators import Shape
from ..vllm import strategies as vllm
from ..vllm.history import speculation
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
    "whole": {
        **{"enable_chunked_prefill": (False,), "max_model_len": (128,), "max_num_seqs": (64,)},
        **{"max_num_batched_tokens": (128,), "num_blocks": (24, 12)},
        **{"enable_prefix_caching": (False, True), "order": ("fcfs", "any")},
        "order_by_priority": (False, True),
    },
    "sharers": {
        **{"max_num_seqs": (512, 1024), "max_num_batched_tokens": (1024, 8192)},
        **{"max_model_len": (512,), "num_blocks": (2000, 600), "enable_prefix_caching": (True,)},
        **{"order": ("fcfs", "any", "any"), "order_by_priority": (False, True, True)},
    },
}
KEYS = (
    *("block_size", "num_blocks", "max_num_seqs", "max_num_batched_tokens", "max_model_len"),
    *("enable_chunked_prefill", "enable_prefix_caching"),
)
LONGEST_IN_BLOCKS = 8  # the longest request, if no length is bounded
SLOTS = 4  # requests in a batch, if their number is unbounded


@st.composite
def configs(draw: st.DrawFn, scale: Scale, revision: str) -> dict[str, Any]:
    """Draw configurations in which a pool, the budget or the slots are the first limit to be
    reached.

    A vLLM server's pool must have room for the longest request; this pool need not.
    """
    drawn = draw(vllm.configs(scale, "documented"))
    config = _in_own_terms(drawn, draw(st.sampled_from((1, 1, 2))))
    cannot = {"kv_connector", "pipeline_parallel_size"} & config.keys()
    if cannot or config["num_blocks"] is None:
        return config
    # Groups exclude a prefix cache, which must not become rare.
    often = 5 if not config["enable_prefix_caching"] else 1
    if draw(st.integers(1, 6)) > often:
        return config
    return config | draw(group_pools(config))


@st.composite
def group_pools(draw: st.DrawFn, config: Config) -> dict[str, Any]:
    """Draw one or two sliding windows, each with its own pool.

    The pool of a window has about as many blocks as the longest request may need there. In half of
    the configurations, prompts are long and the budget is small, so windows slide while a prompt is
    computed, and only the pools of the windows run out of blocks.
    """
    block, length, budget = (
        config[key] for key in ("block_size", "max_model_len", "max_num_batched_tokens")
    )
    pool = config["num_blocks"]
    if config["enable_chunked_prefill"] and draw(st.booleans()):
        blocks = draw(st.sampled_from((8, 12)))
        length, pool = blocks * block, max(pool, 2 * blocks)
        budget = min(budget, max(2 * block + draw(st.sampled_from((0, 1, -1))), 4))
    steps = 2 if speculation.decides_ahead(config) else 1
    window = st.sampled_from((block + 1, 2 * block, 2, 3 * block + 1, block, length + 1))
    groups: list[dict[str, Any]] = [{"kind": "full"}]
    for _ in range(draw(st.sampled_from((1, 1, 2)))):
        tokens = max(draw(window), 2)
        at_once = tokens - 1 + steps * budget
        whole = blocks_for(length + speculation.most_ahead(config), block)
        most = min(whole, blocks_for(at_once, block) + 1)
        own = max(most + draw(st.sampled_from((0, -1, 1, 0, -1, most))), 1)
        groups.append({"kind": "sliding_window", "window": tokens, "num_blocks": own})
    return {
        "kv_groups": groups,
        "num_blocks": pool,
        "max_model_len": length,
        "max_num_batched_tokens": budget,
        "enable_prefix_caching": False,
    }


def _in_own_terms(config: Config, beyond: int) -> dict[str, Any]:
    drawn = {**{key: config[key] for key in KEYS}, "order": "fcfs", "own": {}}
    drawn |= {key: config[key] for key in FEATURES if key in config and key != "kv_groups"}
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
