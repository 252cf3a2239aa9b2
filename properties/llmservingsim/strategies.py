"""Generators for LLMServingSim, aimed at the limits of the pool, the budget and the batch.

Requests are drawn as for vLLM, on which this scheduler is modelled. For this purpose, the
configuration gets two more keys that vLLM's strategies need: the longest request, and a watermark
of 0.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st

from ...model.pool import Content, prefix
from ...model.scenario import Request
from ..history.run_history import RunHistory
from ..search.generators import Shape
from ..vllm import strategies as vllm
from ..vllm.strategies import Scale

Config = Mapping[str, Any]
LATE_STEPS = vllm.LATE_STEPS
# The published sizes; max_num_seqs 0 means no cap.
_PUBLISHED: Mapping[str, Sequence[Any]] = {
    **{"max_num_seqs": (128, 0), "max_num_batched_tokens": (2048, 8192)},
    "enable_prefix_caching": (True, False),
}
WORKLOADS: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "crowd": {**_PUBLISHED, "num_blocks": (None,), "instances": (0, 2, 2), "pp_size": (1, 3)},
    "packed": {**_PUBLISHED, "num_blocks": (160, 90), "pp_size": (1, 3)},
    "long": {
        **{"max_num_seqs": (3, 24), "max_num_batched_tokens": (64, 512)},
        **{"num_blocks": (None, 24), "pp_size": (1, 4)},
    },
    "idle": {**_PUBLISHED, "num_blocks": (None, 48), "instances": (1, 0)},
    "deep": {**_PUBLISHED, "num_blocks": (9000,)},
    "loose": _PUBLISHED,
    "full": {**_PUBLISHED, "max_num_batched_tokens": (8192, 2048), "max_num_seqs": (0, 256)},
    "scarce": {
        **{"max_num_seqs": (4, 16), "max_num_batched_tokens": (64, 512)},
        **{"num_blocks": (24, 40), "enable_prefix_caching": (True,)},
        **{"long_prefill_token_threshold": (0, 24), "pp_size": (1, 3)},
    },
    "brim": {**_PUBLISHED, "num_blocks": (40, 64)},
    "wide": {**_PUBLISHED, "num_blocks": (6000, 1500)},
    "sharers": {
        **{"max_num_seqs": (0, 512), "max_num_batched_tokens": (8192, 2048)},
        **{"num_blocks": (2000, 600), "enable_prefix_caching": (True,)},
    },
}
# A cap of 1 is rare, since then no two requests share a batch; 0 means no cap.
MAX_IN_A_BATCH = (4, 3, 0, 5, 2, 6, 0, 4, 3, 1)
SEATS_WITHOUT_A_CAP = 6
STAGES = (1, 1, 1, 1, 2, 3)
INSTANCES = (0, 0, 0, 0, 1, 0, 0, 2, 0)
TOOL_STEPS = (0, 3, 0, 20, 1)
LONGEST_IN_BLOCKS = 8  # the most blocks in a request, so that a larger pool has room for several
ROOMY = 4 * LONGEST_IN_BLOCKS  # blocks in the largest pool of a scale


@st.composite
def configs(draw: st.DrawFn, scale: Scale, revision: str) -> dict[str, Any]:
    """Draw configurations in which the pool, the budget, the cap or the threshold is the first
    limit to be reached.
    """
    block = draw(st.sampled_from(vllm.BLOCK_SIZES[scale]))
    blocks = draw(st.sampled_from(vllm.MODEL_LENGTHS_IN_BLOCKS[scale]))
    length = max(block * blocks, 2)
    slots = draw(st.sampled_from(MAX_IN_A_BATCH))
    chunks = draw(st.sampled_from((True, True, True, False)))
    threshold = draw(vllm.thresholds(block, length))
    crowd = slots or SEATS_WITHOUT_A_CAP
    budgets = vllm.budgets(scale, block, crowd, length, chunks, threshold)
    # The budget may be too small for a token for every decoding request; prompts that are not cut
    # must share it.
    few = st.integers(1, crowd) if chunks else st.integers(2 * block, 6 * block)
    # Promised blocks keep other requests out, so some pools have room for several requests.
    pools = vllm.pools(blocks, crowd)
    roomy = st.integers(2 * LONGEST_IN_BLOCKS, ROOMY)
    return {
        "block_size": block,
        "num_blocks": draw(st.one_of(pools, roomy) if revision == "documented" else pools),
        "max_num_seqs": slots,
        "max_num_batched_tokens": draw(st.one_of(budgets, budgets, few)),
        "long_prefill_token_threshold": threshold,
        "enable_chunked_prefill": chunks,
        "enable_prefix_caching": draw(st.sampled_from((True, True, False))),
        "prioritize_prefill": revision == "documented" and draw(st.booleans()),
        "pp_size": draw(st.sampled_from(STAGES)),
        "instances": draw(st.sampled_from(INSTANCES)),
    }


def has_features(config: Config) -> bool:
    return bool(config["instances"] == 1)


def with_features(request: Request, config: Config) -> st.SearchStrategy[Request]:
    """Draw the number of steps that a tool runs before the request arrives."""
    drawn = st.sampled_from(TOOL_STEPS)
    return drawn.map(lambda steps: msgspec.structs.replace(request, tool_steps=steps))


def more_fields(config: Config) -> dict[str, Sequence[Any]]:
    """Return the numbers of steps for which a tool may run. Some tools run so long that only
    sessions are left, and two of these may end shortly after each other."""
    return {"tool_steps": (0, 3, 40, 43, 46)} if has_features(config) else {}


def too_large(config: Config, name: str) -> st.SearchStrategy[Request | None]:
    return st.none()


def as_vllm(config: Config) -> dict[str, Any]:
    block = config["block_size"]
    pool = config["num_blocks"] or LONGEST_IN_BLOCKS
    blocks = pool if pool > ROOMY else min(pool, LONGEST_IN_BLOCKS)
    return {
        **config,
        "max_num_seqs": config["max_num_seqs"] or SEATS_WITHOUT_A_CAP,
        "max_model_len": max(block * blocks + 1, 2),
        "watermark": 0.0,
    }


def shapes(config: Config) -> st.SearchStrategy[Shape]:
    return vllm.shapes(as_vllm(config))


def long_prompts(config: Config) -> st.SearchStrategy[Shape]:
    return vllm.long_prompts(as_vllm(config))


def beside_the_batch(config: Config, history: RunHistory[Any]) -> st.SearchStrategy[Shape]:
    return vllm.beside_the_batch(as_vllm(config), history)


def beside_a_prefill(config: Config, history: RunHistory[Any]) -> st.SearchStrategy[Shape]:
    return vllm.beside_a_prefill(as_vllm(config), history)


@st.composite
def contents(
    draw: st.DrawFn, config: Config, earlier: Sequence[Request], name: str, length: int
) -> Content:
    """Draw the content of a prompt of about `length` tokens: often that of an earlier request,
    sometimes the beginning of one request followed by the content of another."""
    if earlier and not caches(config) and draw(st.booleans()):
        return earlier[-1].prompt
    if len(earlier) > 1 and caches(config) and draw(st.sampled_from((False, False, True))):
        first, then = draw(st.permutations(earlier))[:2]
        blocks = max(first.prompt_len // config["block_size"], 1)
        begin = prefix(first.prompt, blocks * config["block_size"])
        return prefix((*begin, *then.prompt), vllm.longest_request(as_vllm(config)) - 1)
    return draw(vllm.contents(as_vllm(config), earlier, name, length))


def caches(config: Config) -> bool:
    return bool(config["enable_prefix_caching"])


def fitted(config: Config, content: Content, shape: Shape | None) -> Shape:
    return vllm.fitted(as_vllm(config), content, shape)


def steps_to_border(config: Config, history: RunHistory[Any]) -> int:
    return vllm.steps_to_border(as_vllm(config), history)
