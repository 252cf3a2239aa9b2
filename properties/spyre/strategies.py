"""Generators for Spyre, aimed at block and chunk boundaries, the limit, and late arrivals.

Strategies draw configurations and requests; `beside_the_batch` aims a late request at the limit.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, Literal

from hypothesis import strategies as st

from ...model.pool import Content
from ...model.scenario import Request
from ..history.run_history import RunHistory
from ..search.generators import Shape, like_an_earlier_prompt
from . import FEWER_BLOCKS
from .predicates.volume import Member, overrun

Scale = Literal["small", "short", "tight"]
# Blocks so small that boundaries are everywhere, for targets that allow them; the published block
# size with requests of a few blocks; and the published block size with requests so long that a run
# takes a second.
BLOCK_SIZES: Mapping[Scale, tuple[int, ...]] = {"small": (2, 4, 8), "short": (64,), "tight": (64,)}
CHUNKS_IN_BLOCKS: Mapping[Scale, tuple[int, ...]] = {
    "small": (2, 1, 3),
    "short": (2, 1, 3),
    "tight": (2, 1, 4, 8),
}
MODEL_LENGTHS_IN_BLOCKS: Mapping[Scale, tuple[int, ...]] = {
    "small": (8, 12),
    "short": (3, 4, 6),
    "tight": (8, 8, 16),
}
LATE_STEPS = 60
# The published sizes; limits that 4 to 32 requests reach together, and limits that are hardly ever
# reached.
_BOTH = (True, False)
WORKLOADS: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "crowd": {
        **{"chunk_size": (512,), "max_num_seqs": (32,), "max_model_len": (2048, 512)},
        **{"max_batch_tkv": (131_072,), "prefix_caching": (False, True)},
    },
    "packed": {
        **{"chunk_size": (512,), "max_num_seqs": (32,), "max_model_len": (512,)},
        "max_batch_tkv": (10 * 192 + 1, 32 * 192, 18 * 192 + 1, 6 * 192 - 5),
        "prefix_caching": (False, True),
    },
    "long": {
        **{"chunk_size": (512,), "max_num_seqs": (2, 4), "max_model_len": (256,)},
        **{"max_batch_tkv": (768,), "prefix_caching": _BOTH, "num_blocks": (None, 16)},
    },
    "idle": {
        **{"chunk_size": (512,), "max_num_seqs": (4,), "max_model_len": (512,)},
        **{"max_batch_tkv": (1024,), "prefix_caching": _BOTH, "num_blocks": (None, 32)},
    },
    "deep": {
        **{"chunk_size": (512,), "max_num_seqs": (32,), "max_model_len": (131_072,)},
        **{"max_batch_tkv": (131_072,), "prefix_caching": _BOTH},
    },
    "loose": {
        **{"chunk_size": (512,), "max_num_seqs": (32,), "max_model_len": (32_768,)},
        **{"max_batch_tkv": (131_072,), "prefix_caching": _BOTH, "interleave": (False, True)},
    },
    "scarce": {
        **{"chunk_size": (128, 512), "max_num_seqs": (4, 32), "max_model_len": (512,)},
        **{"max_batch_tkv": (4096,), "prefix_caching": (True,), "num_blocks": (9, 16, 40)},
    },
    "wide": {
        **{"chunk_size": (512,), "max_num_seqs": (32,), "max_model_len": (32_768, 16_384)},
        **{"max_batch_tkv": (131_072,), "prefix_caching": (True, True, True, False)},
        "num_blocks": (8192, 512),
    },
    "relay": {
        **{"chunk_size": (512,), "max_num_seqs": (4, 32), "max_model_len": (1024,)},
        **{"max_batch_tkv": (1280, 1601, 2048), "prefix_caching": (False, True)},
    },
    "joiners": {
        **{"chunk_size": (512,), "max_num_seqs": (48,), "max_model_len": (512, 2048)},
        **{"max_batch_tkv": (131_072,), "prefix_caching": (True,), "num_blocks": (256, 512)},
    },
}


@st.composite
def configs(
    draw: st.DrawFn, scale: Scale, revision: str, avoid: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Draw configurations in which the limit is reached before the other constraints.

    `pools` draws the pool or, if `avoid` contains FEWER_BLOCKS, `served_pools` does. Options that
    the revision does not have stay at their defaults.
    """
    block = draw(st.sampled_from(BLOCK_SIZES[scale]))
    chunk = block * draw(st.sampled_from(CHUNKS_IN_BLOCKS[scale]))
    max_num_seqs = draw(st.integers(2, 8) if scale == "tight" else st.integers(1, 5))
    blocks = draw(st.sampled_from(MODEL_LENGTHS_IN_BLOCKS[scale]))
    # Mostly whole blocks: a remainder makes the max-model-length rule matter.
    length = block * blocks - draw(st.sampled_from((0,) * 7 + (block - 1,)))
    # A limit just above what `batch` requests of `row` whole blocks need, so that one more block in
    # any of them exceeds it. If `row` is max_model_len, such a batch reaches that length first; and
    # if `batch` is max_num_seqs as well, the limit is no constraint.
    few = st.integers(min(2, max_num_seqs), min(4, max_num_seqs))
    batch = draw(few if scale == "tight" else few | st.just(max_num_seqs))
    row = draw(st.integers(ceil(blocks / batch), blocks) | st.just(blocks))
    # Or a limit just below that value, so that `batch` such requests exceed it.
    below = draw(st.booleans() if scale == "tight" else st.sampled_from((False,) * 3 + (True,)))
    beside = draw(st.integers(-batch, -1) if below else st.integers(0, batch * block // 16))
    limit = max(batch * row * block + beside, block * blocks)
    return {
        "block_size": block,
        "chunk_size": chunk,
        "max_num_seqs": max_num_seqs,
        "max_model_len": length,
        "max_batch_tkv": limit,
        "interleave": draw(st.sampled_from((True, True, True, False))),
        "prefix_caching": draw(st.booleans()),
        "num_blocks": draw(
            st.one_of(st.none(), st.none(), served_pools(block, length, max_num_seqs, limit))
            if FEWER_BLOCKS in avoid
            else pools(blocks, max_num_seqs) | (st.none() if scale == "tight" else st.nothing())
        ),
        "pausing": revision != "2.5.2" or draw(st.sampled_from((True, True, False))),
        "long_output_priority": revision == "2.5.2" and draw(st.booleans()),
    }


def pools(longest: int, max_num_seqs: int) -> st.SearchStrategy[int | None]:
    """Draw the number of usable blocks: unbounded, or between the number that a request of
    max_model_len needs (`longest`) and half of the number that a full batch could need."""
    return st.none() | st.integers(longest, longest + max_num_seqs * longest // 2)


def served_pools(
    block: int, max_model_len: int, max_num_seqs: int, limit: int
) -> st.SearchStrategy[int]:
    """Draw the number of usable blocks of a pool that is only just large enough for a server to
    start.

    The platform rounds the number of blocks, including the padding block, down to a multiple of
    max_num_seqs. There must be blocks for the padding block and for a full batch. If the limit
    allows only part of a full batch, blocks for this part are enough.
    """
    needed = min(max_num_seqs * (max_model_len // block), limit // block) + 1
    least = ceil(needed / max_num_seqs) * max_num_seqs - 1
    return st.integers(least, least + max_num_seqs)


@st.composite
def shapes(draw: st.DrawFn, config: Mapping[str, Any]) -> Shape:
    block, chunk, length = (config[k] for k in ("block_size", "chunk_size", "max_model_len"))
    kind = draw(st.sampled_from(("old", "border", "short")))
    if kind == "border":
        unit = draw(st.sampled_from((block, chunk)))
        border = draw(st.integers(0, max(length // unit - 1, 0))) * unit
        prompt = border + draw(st.integers(-1, 2))
    else:
        prompt = draw(st.integers(1, 2 * block))
    if kind == "old":
        max_tokens = length - draw(st.integers(0, length // 2))
    else:
        max_tokens = draw(st.one_of(st.integers(1, 4), st.integers(1, 2 * block)))
    stops_early = draw(st.one_of(st.none(), st.none(), st.none(), st.integers(1, 2 * block)))
    return with_tokens(config, min(max(prompt, 1), length - block), max_tokens, stops_early)


@st.composite
def long_prompts(draw: st.DrawFn, config: Mapping[str, Any]) -> Shape:
    longest = config["max_model_len"] - config["block_size"]
    prompt = draw(st.integers(max(longest // 2, 1), max(longest, 1)))
    stops_early = draw(st.sampled_from((None, None, None, 1)))
    return with_tokens(config, prompt, draw(st.integers(1, 4)), stops_early)


def with_tokens(
    config: Mapping[str, Any], prompt: int, max_tokens: int, stops_early: int | None = None
) -> Shape:
    """Return a shape with `max_tokens` output tokens, or with as many as fit, but at least one. The
    prompt, in whole blocks, and the output together must fit within max_model_len. The request on
    its own must stay within the limit."""
    padded = ceil(prompt / config["block_size"]) * config["block_size"]
    room = min(config["max_model_len"] - padded, config["max_batch_tkv"] - prompt + 1)
    allowed = max(min(max_tokens, room), 1)
    return Shape(prompt, allowed, min(stops_early or allowed, allowed))


@st.composite
def beside_the_batch(draw: st.DrawFn, config: Mapping[str, Any], history: RunHistory) -> Shape:
    """Draw a late request that joins earlier ones and reaches the limit with its last token.

    In a batch of n requests, including this one, no tkv may exceed `row`. This is the limit divided
    by n, or max_model_len if that is smaller. The prompt ends at a chosen offset in a block, and
    the last token comes close to `row`.
    """
    block, chunk, length = (config[k] for k in ("block_size", "chunk_size", "max_model_len"))
    lengths = [request.computed for request in history.decoding()] or [0]
    row = min(config["max_batch_tkv"] // (len(lengths) + 1), length)
    offset, few = draw(st.sampled_from((1, 2, 1, block // 2, block))), draw(st.integers(1, 3))
    if history.decoding() and row == length and draw(st.booleans()):
        return with_tokens(config, longest_beside(draw, config, history) + offset, few)
    blocks = draw(st.integers(0, min(max(lengths), length - 2 * block) // block))
    prompt = min(blocks * block + offset, length - block)
    reached = max(lengths) + ceil(prompt / chunk)
    joins = max(reached, prompt) // block * block + prompt % block
    # A request that ends exactly with the last whole block of the row reveals projections that
    # forget a realignment; other ends reveal those that miscount tokens.
    whole = row // block * block
    border = draw(st.sampled_from((whole, row, whole, row, None)))
    if border is None:
        waits = ceil(prompt / chunk) - draw(st.integers(0, 1)) if config["interleave"] else 0
        return with_tokens(config, prompt, fewest_too_many(config, history, prompt, waits) or few)
    ends = border + draw(st.sampled_from((0, 0, -1, 1)))
    return with_tokens(config, prompt, max(ends - joins + 1, few))


def longest_beside(draw: st.DrawFn, config: Mapping[str, Any], history: RunHistory) -> int:
    """Draw the length of a prompt, in whole blocks. If a prompt of this length joins, some request
    of the batch only just ends within max_model_len, or only just exceeds it."""
    block, length = config["block_size"], config["max_model_len"]
    request = draw(st.sampled_from(history.decoding()))
    ends = request.computed + request.max_tokens - request.emitted
    padding = max((length - ends) // block + draw(st.integers(0, 1)), 0)
    blocks = request.computed // block + padding
    return int(min(blocks * block, length - 2 * block))


def fewest_too_many(
    config: Mapping[str, Any], history: RunHistory, prompt: int, waits: int
) -> int | None:
    """Return the smallest max_tokens with which a newcomer can exceed the limit if it joins after
    `waits` decode steps. Return None if no max_tokens is large enough."""
    batch = [
        Member(request.computed + waits, request.max_tokens - request.emitted - waits)
        for request in history.decoding()
        if request.max_tokens - request.emitted > waits
    ]
    block, limit = config["block_size"], config["max_batch_tkv"]
    numbers = range(2, config["max_model_len"] + 1)
    place = bisect_left(
        numbers,
        True,
        key=lambda tokens: overrun(batch, Member(prompt, tokens - 1), block, limit) is not None,
    )
    return numbers[place] if place < len(numbers) else None


# A request that arrives during a prefill waits until the prefill is over: the batch at that time is
# what matters.
beside_a_prefill = beside_the_batch


@st.composite
def contents(
    draw: st.DrawFn, config: Mapping[str, Any], earlier: Sequence[Request], name: str, length: int
) -> Content:
    own: Content = ((name, length),)
    if not config["prefix_caching"] or not earlier or draw(st.integers(0, 3)) == 0:
        return own
    block, chunk = config["block_size"], config["chunk_size"]
    longest = config["max_model_len"] - block
    return like_an_earlier_prompt(draw, earlier, name, length, block, (block, chunk), longest)


def caches(config: Mapping[str, Any]) -> bool:
    return bool(config["prefix_caching"])


def fitted(config: Mapping[str, Any], content: Content, shape: Shape | None) -> Shape:
    prompt = sum(tokens for _, tokens in content)
    if shape is None:
        return with_tokens(config, prompt, 2)
    return with_tokens(config, prompt, shape.max_tokens, shape.output_len)


def steps_to_border(config: Mapping[str, Any], history: RunHistory) -> int:
    block = config["block_size"]
    return min((-request.computed % block for request in history.decoding()), default=0)
