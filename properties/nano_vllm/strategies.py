"""Generators for nano-vLLM, aimed at pools that run out and at block boundaries.

Strategies draw configurations and requests. Pools are so small that sequences grow until one must
be preempted; `beside_the_batch` aims a late request at the remaining blocks.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from hypothesis import strategies as st

from ...model.pool import Content, prefix
from ...model.scenario import Request
from ..history.run_history import RunHistory
from ..rules.pool import blocks_for
from ..search.generators import Shape, like_an_earlier_prompt
from ..search.workloads import FEATURES, MORE
from .predicates.decision import WHOLE_PROMPTS

Config = Mapping[str, Any]
Scale = Literal["small", "short", "tight"]
# Block sizes: so small that boundaries are everywhere; usual sizes; and the published one.
BLOCK_SIZES: Mapping[Scale, tuple[int, ...]] = {
    "small": (4, 2, 4, 8, 3),
    "short": (16,),
    "tight": (256,),
}
FEWEST_BLOCKS, MAX_BLOCKS = 2, 14
LATE_STEPS = 8
# Usual or small block sizes, along with the published max_num_seqs and budget.
_PUBLISHED: Mapping[str, Sequence[Any]] = {
    **{"block_size": (16, 4), "max_num_seqs": (512,), "max_num_batched_tokens": (16_384,)},
}
# Prompts are computed whole, so long ones need a larger budget than the published one.
_LONG_PROMPTS = {"max_num_seqs": (512,), "max_num_batched_tokens": (131_072,)}
WORKLOADS: Mapping[str, Mapping[str, Any]] = {
    "crowd": {**_PUBLISHED, "block_size": (4, 16), "num_blocks": (1200,)},
    "packed": {**_PUBLISHED, "num_blocks": (160, 300)},
    "long": {
        **{"block_size": (16,), "max_num_seqs": (3, 24), "max_num_batched_tokens": (2048,)},
        "num_blocks": (90,),
    },
    "idle": {**_PUBLISHED, "num_blocks": (48,)},
    "deep": {"block_size": (8,), "num_blocks": (18_000,), **_LONG_PROMPTS},
    "loose": {**_PUBLISHED, "num_blocks": (2000,)},
    "full": {
        **{"block_size": (16, 4), "num_blocks": (4000, 1500), **_LONG_PROMPTS},
        # Only a few prompts fit into a step, so that the first requests wait long for a decode.
        FEATURES: ({"max_num_batched_tokens": 96}, *7 * ({},)),
        MORE: 1,
    },
    "scarce": {
        **{"block_size": (16, 4), "max_num_seqs": (4, 16), "max_num_batched_tokens": (512,)},
        "num_blocks": (9, 16, 40),
    },
    "brim": {**_PUBLISHED, "num_blocks": (40, 64)},
    "wide": {**_PUBLISHED, "num_blocks": (6000, 1500)},
    "sharers": {**_PUBLISHED, "num_blocks": (2000, 600)},
}
MAX_RUNNING = (4, 3, 6, 2, 5, 1)
# How many tokens a request may generate at the published block size: a run must end within seconds.
LONGEST_ANSWER: Mapping[Scale, int] = {"small": 10**6, "short": 64, "tight": 40}


@st.composite
def configs(draw: st.DrawFn, scale: Scale, revision: str) -> dict[str, Any]:
    block = draw(st.sampled_from(BLOCK_SIZES[scale]))
    num_blocks = draw(st.integers(FEWEST_BLOCKS, MAX_BLOCKS))
    whole = block * num_blocks
    # If whole prompts are computed at once, requests are cut to fit this budget.
    budgets = st.integers(whole // 2 + 1, whole + block)
    if revision != WHOLE_PROMPTS:
        budgets = st.one_of(st.integers(1, 4 * block), st.integers(block - 1, whole), budgets)
    return {
        "block_size": block,
        "num_blocks": num_blocks,
        "max_num_seqs": draw(st.sampled_from(MAX_RUNNING)),
        "max_num_batched_tokens": draw(budgets),
    }


@st.composite
def long_prompts(draw: st.DrawFn, config: Config) -> Shape:
    prompt = longest_request(config) - draw(st.integers(1, 2 * config["block_size"]))
    return with_tokens(config, prompt, draw(st.integers(1, 4)))


@st.composite
def shapes(draw: st.DrawFn, config: Config) -> Shape:
    block, longest = config["block_size"], longest_request(config)
    kind = draw(st.sampled_from(("short", "short", "border", "whole")))
    if kind == "border":
        prompt = draw(st.sampled_from(borders(config))) * draw(st.integers(1, 3))
        prompt += draw(st.integers(-1, 1))
    elif kind == "whole":
        prompt = longest - draw(st.integers(1, 2 * block))
    else:
        prompt = draw(st.integers(1, 2 * block))
    few, many = st.integers(1, 2 * block), st.integers(longest // 2, longest)
    stops_early = draw(st.one_of(st.none(), st.none(), st.none(), st.integers(1, 2 * block)))
    return with_tokens(config, prompt, draw(st.one_of(many, many, few)), stops_early)


def borders(config: Config) -> list[int]:
    return [config["block_size"], config["max_num_batched_tokens"]]


def longest_request(config: Config) -> int:
    """Return the most tokens that prompt and answer may have together, including the last token,
    which is never computed.

    If the budget is more than half the pool, whole prompts must fit into the budget; with a smaller
    budget, prompts are computed in chunks.
    """
    whole, budget = config["num_blocks"] * config["block_size"], config["max_num_batched_tokens"]
    return int(min(whole, budget) if 2 * budget > whole else whole) + 1


def with_tokens(
    config: Config, prompt: int, max_tokens: int, stops_early: int | None = None
) -> Shape:
    longest = longest_request(config)
    prompt = min(max(prompt, 1), longest - 1)
    most = LONGEST_ANSWER[scale_of(config)]
    allowed = max(min(max_tokens, longest - prompt, most), 1)
    return Shape(prompt, allowed, min(stops_early or allowed, allowed))


def scale_of(config: Config) -> Scale:
    """Return the scale that has blocks of this size."""
    for scale, sizes in BLOCK_SIZES.items():
        if config["block_size"] in sizes:
            return scale
    return "tight"


@st.composite
def beside_the_batch(draw: st.DrawFn, config: Config, history: RunHistory) -> Shape:
    """Draw a late request that takes exactly the free blocks, give or take a token, or a request
    that fills a block in the same step as a running request."""
    block, running = config["block_size"], history.decoding()
    free = free_blocks(config, history)
    aims = [
        free * block,
        (free - 1) * block,
        *(request.computed % block + 1 for request in running),
    ]
    prompt = draw(st.sampled_from(aims)) + draw(st.sampled_from((0, 0, 1, -1)))
    longest = longest_request(config)
    return with_tokens(config, prompt, draw(st.one_of(st.just(longest), st.integers(1, 4))))


# Prefills come first, so a request that arrives during a prefill starts after it. The numbers to
# aim at are therefore the same.
beside_a_prefill = beside_the_batch


@st.composite
def contents(
    draw: st.DrawFn, config: Config, earlier: Sequence[Request], name: str, length: int
) -> Content:
    own: Content = ((name, length),)
    origin = draw(st.sampled_from(("own", "same", "before")))
    if not earlier or origin == "own":
        return own
    if origin == "same":
        # If both run, they need their next block in the same step.
        return earlier[-1].prompt
    if draw(st.booleans()):
        return goes_on(config, draw(st.sampled_from(earlier)), name, length)
    longest = longest_request(config) - 1
    return like_an_earlier_prompt(
        draw, earlier, name, length, config["block_size"], borders(config), longest
    )


def goes_on(config: Config, other: Request, name: str, length: int) -> Content:
    """Return content that begins with the first blocks of another request's prompt and answer, and
    continues with new tokens."""
    block, most = config["block_size"], longest_request(config) - 2
    whole = min(other.prompt_len + block, most) // block * block
    shared = prefix((*other.prompt, (f"out:{other.id}", other.tokens_to_emit)), whole)
    rest = max(length - sum(tokens for _, tokens in shared), 1)
    return (*shared, (name, rest))


def caches(config: Config) -> bool:
    """Return True: the block manager always looks for cached blocks."""
    return True


def fitted(config: Config, content: Content, shape: Shape | None) -> Shape:
    prompt = sum(tokens for _, tokens in content)
    if shape is None:
        return with_tokens(config, prompt, 2 * config["block_size"])
    return with_tokens(config, prompt, shape.max_tokens, shape.output_len)


def steps_to_border(config: Config, history: RunHistory) -> int:
    return min(
        (-request.computed % config["block_size"] for request in history.decoding()), default=0
    )


def free_blocks(config: Config, history: RunHistory) -> int:
    """Return the number of blocks that no request holds. If the target does not show it, derive it
    from the computed tokens."""
    if history.last is not None and history.last.free_blocks is not None:
        return history.last.free_blocks
    held = sum(blocks_for(history, request.computed) for request in history.running())
    return max(int(config["num_blocks"]) - held, 0)
