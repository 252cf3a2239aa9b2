"""Generators for vLLM, aimed at block boundaries and at pools that run out.

Strategies draw configurations and requests. Pools are so small that requests grow until one must be
preempted; `beside_the_batch` aims a late request at what is left of the pool and the budget.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from hypothesis import strategies as st

from ...model.pool import Content, blocks_for
from ...model.scenario import Request
from ..search.generators import TIME_STAMP, Shape, like_an_earlier_prompt
from . import AHEAD_IN_STAGES, ANY_LENGTH, LATER_LIMITS, V2_AHEAD_IN_STAGES, WITH_THE_NULL_BLOCK
from .group_strategies import kv_groups, watermarks
from .history import groups, speculation
from .history.request_history import VllmRequestHistory
from .history.run import VllmRun
from .history.speculation import drafts as drafts  # for `drafts_of`
from .predicates.decision import watermark_blocks
from .request_features import dynamic_drafts, encoders, last_options, later_limits
from .workloads import WORKLOADS as WORKLOADS  # for `Generators`
from .workloads import more_fields as more_fields
from .workloads import pictures as pictures

Config = Mapping[str, Any]

# Options that put decisions in flight, or load blocks in the background.
IN_FLIGHT: Mapping[str, Config] = {
    "ahead": {"async_scheduling": True},
    "pipeline": {"pipeline_parallel_size": 2},
    "longer pipeline": {"pipeline_parallel_size": 3},
    AHEAD_IN_STAGES: {"async_scheduling": True, "pipeline_parallel_size": 3},
    V2_AHEAD_IN_STAGES: {
        **{"async_scheduling": True, "pipeline_parallel_size": 2},
        "use_v2_model_runner": True,
    },
    "loads": {"kv_connector": True},
    "loads ahead": {"kv_connector": True, "async_scheduling": True},
}
SEVERAL_ON_THEIR_WAY = {"async_scheduling", "pipeline_parallel_size"}
WITHOUT_ADAPTERS = {*SEVERAL_ON_THEIR_WAY, "kv_connector", "encoder_cache_size"}
EARLY_COMPLETIONS = st.sampled_from((0, 0, 1, 0, 3, 2))


@st.composite
def options(draw: st.DrawFn, config: Config, avoid: frozenset[str] = frozenset()) -> dict[str, Any]:
    in_flight = [kind for kind in IN_FLIGHT if kind not in avoid]
    kinds = (*3 * ("one",), *2 * ("drafts",), *in_flight, *2 * ("groups",), "sessions")
    steps = draw(st.sampled_from(kinds))
    if steps == "sessions":
        return draw(sessions(config, avoid))
    ahead = steps == "groups" and "ahead" not in avoid and draw(st.sampled_from((False, True)))
    drawn: dict[str, Any] = dict(IN_FLIGHT["ahead"]) if ahead else {}
    if steps == "groups":
        drawn |= draw(drafts_of_groups(config, ahead))
        if "num_lookahead_tokens" not in drawn:
            drawn |= draw(st.sampled_from(({}, {}, IN_FLIGHT["loads"])))
        drawn |= draw(kv_groups({**config, **drawn}, avoid))
    if steps == "drafts" or (steps == "loads" and draw(st.booleans())):
        drawn |= draw(speculations(config))
    if steps.endswith("ahead") and (drafts := most_drafts(config)) and draw(st.booleans()):
        drawn |= with_lookahead(drafts)
    makes_loads = steps.startswith("loads") or "kv_connector" in drawn
    if makes_loads and draw(st.sampled_from((False, True, False))):
        drawn |= {"kv_load_failure_policy": "fail"}
    if steps.startswith("loads") and draw(st.sampled_from((False, True, False))):
        drawn |= {"synchronous_loads": True}
    reads_ahead = "num_lookahead_tokens" in drawn and makes_loads
    takes_inputs = not (reads_ahead or groups.has_mamba({**config, **drawn}))
    if takes_inputs and draw(st.sampled_from((*3 * (False,), True))):
        drawn |= draw(encoders(config))
    if caches(config) and draw(st.sampled_from((*3 * (False,), True))):
        drawn |= {"cache_partitions": True}
        if not ({*IN_FLIGHT.get(steps, {})} | {*drawn}) & WITHOUT_ADAPTERS:
            drawn |= draw(st.sampled_from(({}, *({"max_loras": slots} for slots in (1, 2, 3)))))
    if (
        not makes_loads
        and "max_loras" not in drawn
        and draw(st.sampled_from((*4 * (False,), True)))
    ):
        drawn |= {"structured_outputs": True}
    if "num_speculative_tokens" in drawn and not makes_loads:
        drawn |= draw(dynamic_drafts(config, drawn["num_speculative_tokens"]))
    drawn |= IN_FLIGHT.get(steps, {})
    if steps == "longer pipeline":
        drawn["pipeline_parallel_size"] = draw(st.sampled_from((3, 4, 3, 4, 8)))
    if set(drawn) & SEVERAL_ON_THEIR_WAY and (early := draw(EARLY_COMPLETIONS)):
        drawn |= {"early_completions": early}
    return drawn


@st.composite
def sessions(draw: st.DrawFn, config: Config, avoid: frozenset[str]) -> dict[str, Any]:
    """Draw options for sessions. In half of the configurations, a turn may end while a token is in
    flight."""
    drawn = {"streaming_inputs": True, "policy": "fcfs", **draw(tight_pools(config))}
    if "ahead" not in avoid and draw(st.booleans()):
        early = draw(EARLY_COMPLETIONS)
        drawn |= {**IN_FLIGHT["ahead"], **({"early_completions": early} if early else {})}
    if draw(st.sampled_from((*3 * (False,), True))):
        drawn |= {"structured_outputs": True}
    return drawn


@st.composite
def tight_pools(draw: st.DrawFn, config: Config) -> dict[str, Any]:
    """Replace half of the bounded pools by a pool that is only slightly larger than the longest
    request needs, so that sessions wait for each other's blocks."""
    if config["num_blocks"] is None or draw(st.booleans()):
        return {}
    pool = blocks_for(config["max_model_len"], config["block_size"]) + draw(st.integers(0, 1))
    return {"num_blocks": pool, "watermark": 0.0}


@st.composite
def speculations(draw: st.DrawFn, config: Config) -> dict[str, Any]:
    """Draw the number of drafts after each token. The pool must have room for them in addition to
    the shortest request. Sometimes draw a lookahead as well; the budget must have room for it."""
    drafts = draw(st.sampled_from((1, 3, 2, 5)))
    if config["num_blocks"] is not None:
        room = config["num_blocks"] * config["block_size"] - 1
        drafts = min(drafts, room)
        if 2 * drafts > room:
            return {"num_speculative_tokens": drafts}
    if drafts >= config["max_num_batched_tokens"] or draw(st.booleans()):
        return {"num_speculative_tokens": drafts}
    return with_lookahead(drafts)


@st.composite
def drafts_of_groups(draw: st.DrawFn, config: Config, ahead: bool) -> dict[str, Any]:
    """Draw drafts for half of the configurations with several groups."""
    if draw(st.booleans()):
        if not ahead:
            return draw(speculations(config))
        if drafts := most_drafts(config):
            return with_lookahead(drafts)
    return {}


def with_lookahead(drafts: int) -> dict[str, Any]:
    return {"num_speculative_tokens": drafts, "num_lookahead_tokens": drafts}


def most_drafts(config: Config) -> int:
    """Return the largest number of drafts after each token, up to three, if decisions are made
    ahead. The budget must have room for them, and the pool for a short request, the drafts of two
    decisions, and the lookahead.
    """
    room = [3, config["max_num_batched_tokens"] - 1]
    if config["num_blocks"] is not None:
        room.append((config["num_blocks"] * config["block_size"] - 1) // 4)
    return int(min(room))


Scale = Literal["small", "short", "tight"]
# Blocks so small that boundaries are everywhere; the published block size with requests of a few
# blocks; and the published block size with requests so long that a run takes a second.
BLOCK_SIZES: Mapping[Scale, tuple[int, ...]] = {
    "small": (4, 8, 4, 8, 2, 1),
    "short": (16,),
    "tight": (16,),
}
MODEL_LENGTHS_IN_BLOCKS: Mapping[Scale, tuple[int, ...]] = {
    "small": (8, 12, 16),
    "short": (6, 4, 8),
    "tight": (8, 8, 16),
}
BUDGETS_IN_BLOCKS: Mapping[Scale, tuple[int, int]] = {
    "small": (1, 4),
    "short": (1, 4),
    "tight": (4, 128),
}
MODEL_LENGTH = 1 << 17  # a number of tokens that no scale reaches
LATE_STEPS = 8
_RESETS = 2 * ("reset_running_requests", "reset_prefix_cache")
CONTROLS = (*_RESETS, "pause_new", "pause_all", *2 * ("resume",), "sleep", "wake_up")
MAX_RUNNING = (4, 3, 6, 5, 2, 6, 5, 4, 3, 1)  # one request alone is never preempted
# Few values, so that many are equal, and a time stamp in milliseconds, which needs 41 bits.
PRIORITIES = st.sampled_from((0, 1, 0, 2, -1, TIME_STAMP))


@st.composite
def configs(
    draw: st.DrawFn, scale: Scale, revision: str, avoid: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Draw configurations in which pool, budget or threshold is the first limit to be reached."""
    block = draw(st.sampled_from(BLOCK_SIZES[scale]))
    blocks = draw(st.sampled_from(MODEL_LENGTHS_IN_BLOCKS[scale]))
    length = max(block * blocks - draw(st.sampled_from((0, 0, 0, block - 1))), 2)
    max_num_seqs = draw(st.sampled_from(MAX_RUNNING))
    chunks = draw(st.sampled_from((True, True, True, False)))
    num_blocks = draw(pools(blocks, max_num_seqs))
    if num_blocks is not None:
        length = min(length, draw(served_lengths(block, num_blocks, avoid)))
    threshold = draw(thresholds(block, length))
    caching = draw(st.sampled_from((True, True, False)))
    budget = draw(budgets(scale, block, max_num_seqs, length, chunks, threshold))
    config = {
        "block_size": block,
        "num_blocks": num_blocks,
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": budget,
        "max_model_len": length,
        "long_prefill_token_threshold": threshold,
        "enable_chunked_prefill": chunks,
        "enable_prefix_caching": caching,
        "policy": draw(st.sampled_from(("priority", "fcfs", "priority"))),
        "watermark": draw(watermarks(num_blocks)),
        "reserve_full_isl": draw(st.booleans()),
    }
    config |= {} if LATER_LIMITS in avoid else draw(later_limits(config))
    config |= draw(options(config, avoid))
    return config | draw(last_options(config, avoid))


def pools(longest: int, max_num_seqs: int) -> st.SearchStrategy[int | None]:
    """Draw the number of usable blocks.

    The pool may be crowded, with about one block for every request that may run. It may have the
    blocks of the longest request (`longest`, the minimum when a server sizes the pool itself), plus
    up to a sixth of the blocks that all requests could need. Or it may be unbounded.
    """
    crowded = st.integers(max(max_num_seqs - 2, 2), max(max_num_seqs, 2) + 1)
    enough = st.integers(longest, longest + max_num_seqs * longest // 6)
    return st.one_of(crowded, enough, crowded, enough, st.none())


def served_lengths(
    block: int, num_blocks: int, avoid: frozenset[str] = frozenset()
) -> st.SearchStrategy[int]:
    """Draw the greatest request length, in tokens, with which a server starts: usually what the
    pool holds.

    Releases before 0.29 count the null block as well, and the oldest releases start with any
    length.
    """
    whole = block * num_blocks
    beyond = {WITH_THE_NULL_BLOCK: whole + block, ANY_LENGTH: MODEL_LENGTH}
    return st.sampled_from(
        (*5 * (whole,), *(tokens for kind, tokens in beyond.items() if kind not in avoid))
    )


def thresholds(block: int, length: int) -> st.SearchStrategy[int]:
    """Draw the limit on a request's tokens in a step: none, a few blocks, or any value."""
    around = st.integers(1, 3).flatmap(lambda n: st.integers(n * block - 1, n * block + 1))
    fits = around.map(lambda tokens: min(max(tokens, 1), length))
    return st.one_of(st.just(0), fits, fits, st.integers(1, length))


def budgets(
    scale: Scale, block: int, max_num_seqs: int, length: int, chunks: bool, threshold: int
) -> st.SearchStrategy[int]:
    """Draw the token budget of a step.

    It is a few blocks, one token for every request that may run, or enough to leave room when the
    threshold limits a request. Without chunking, the longest request must fit into it.
    """
    if not chunks:
        enough = max(length, max_num_seqs)
        return st.one_of(st.just(enough), st.integers(enough, enough + 2 * block))
    fewest, most = (blocks * block for blocks in BUDGETS_IN_BLOCKS[scale])
    # The published budgets of the long runs start at a few blocks.
    floor = fewest if scale == "tight" else max_num_seqs
    least = max(fewest, max_num_seqs)
    return st.one_of(
        st.integers(least, least + 2 * block),
        st.integers(max_num_seqs, most + max_num_seqs).map(lambda tokens: max(tokens, floor)),
        *2 * [st.integers(least, least + 2 * block).map(lambda tokens: tokens + threshold)],
    )


@st.composite
def long_prompts(draw: st.DrawFn, config: Config) -> Shape:
    prompt = longest_request(config) - draw(st.integers(1, 2 * config["block_size"]))
    return with_tokens(config, prompt, draw(st.integers(1, 4)), priority=draw(PRIORITIES))


@st.composite
def shapes(draw: st.DrawFn, config: Config) -> Shape:
    """Draw requests. Most of them continue until they reach a limit or blocks run out. Short
    prompts are mostly of equal length, so that they need their blocks in the same step."""
    block, longest = config["block_size"], longest_request(config)
    crowded = is_crowded(config)
    kind = "short" if crowded else draw(st.sampled_from(("short", "short", "border", "whole")))
    if kind == "border":
        border = draw(st.sampled_from(borders(config)))
        prompt = border * draw(st.integers(1, 3)) + draw(st.integers(-1, 1))
    elif kind == "whole":
        prompt = longest - draw(st.integers(1, 2 * block))
    else:
        prompt = draw(st.one_of(st.sampled_from((1, 1, block + 1)), st.integers(1, 2 * block)))
    few, many = st.integers(1, 2 * block), st.integers(longest // 2, longest)
    max_tokens = draw(many if crowded else st.one_of(many, many, few))
    stops_early = draw(st.one_of(st.none(), st.none(), st.none(), st.integers(1, 2 * block)))
    return with_tokens(config, prompt, max_tokens, stops_early, draw(PRIORITIES))


def is_crowded(config: Config) -> bool:
    return config["num_blocks"] is not None and config["num_blocks"] <= config["max_num_seqs"] + 1


def borders(config: Config) -> list[int]:
    keys = ("block_size", "max_num_batched_tokens", "long_prefill_token_threshold")
    return [config[key] for key in keys if config[key]]


def longest_request(config: Config) -> int:
    """Return the largest length of prompt and answer together that every target accepts."""
    limits = [config["max_model_len"]]
    # The last token of an answer is never computed.
    if config["num_blocks"] is not None:
        ahead, blocks = speculation.most_ahead(config), config["num_blocks"]
        if groups.further(config):
            blocks = groups.longest_in_pool(config)
        limits.append(max(blocks * config["block_size"] + 1 - ahead, 2))
    if not config["enable_chunked_prefill"]:
        limits.append(config["max_num_batched_tokens"] + 1)
    return int(min(limits))


def with_tokens(
    config: Config, prompt: int, max_tokens: int, stops_early: int | None = None, priority: int = 0
) -> Shape:
    longest = longest_request(config)
    prompt = min(max(prompt, 1), longest - 1)
    allowed = max(min(max_tokens, longest - prompt), 1)
    return Shape(prompt, allowed, min(stops_early or allowed, allowed), priority)


@st.composite
def beside_the_batch(draw: st.DrawFn, config: Config, history: VllmRun) -> Shape:
    """Draw a late request that takes what the running requests leave, or one token more or less.

    The running requests leave the rest of the budget, and the blocks that are free after they have
    computed their next tokens. The watermark is left free in some cases. Alternatively, the late
    request fills a block in the same step as a running request. The late request is often more
    important than all running requests.
    """
    block, longest = config["block_size"], longest_request(config)
    running, free = history.decoding(), free_blocks(config, history)
    aims = [request.computed % block + 1 for request in running]
    aims.append(config["max_num_batched_tokens"] - len(running))
    if free is not None:
        room = free - sum(new_blocks(config, request, 1) for request in running)
        unit = groups.hit_unit(config)
        room = room * (unit // block) // groups.blocks_if_all_kept(config, unit)
        reserve = watermark_blocks(config)
        # Leave room for an answer that needs one more block.
        fills = [min(blocks * block, longest - block) for blocks in (room, room, room - reserve)]
        aims = draw(st.sampled_from((fills, aims)))
    prompt = draw(st.sampled_from(aims)) + draw(st.sampled_from((0, 0, 1, -1)))
    max_tokens = draw(st.one_of(st.just(longest), st.integers(1, 4)))
    first = min((request.priority for request in running), default=0) - 1
    return with_tokens(
        config, prompt, max_tokens, priority=draw(st.one_of(PRIORITIES, st.just(first)))
    )


@st.composite
def beside_a_prefill(draw: st.DrawFn, config: Config, history: VllmRun) -> Shape:
    """Draw a request that fills its blocks just when the pool runs out, because the chunks of
    another request have taken all other blocks. Its first token then needs a block in a step in
    which the next chunk is already scheduled. Usually the request is more important than all
    others, so that one of them must be preempted.
    """
    whole_pool = [blocks for blocks in range(1, 9) if fills_pool_together(config, history, blocks)]
    blocks = draw(st.sampled_from(whole_pool or [1, 2]))
    first = min(request.priority for request in history.live.values()) - 1
    priority = draw(st.sampled_from((first, first, first + 1)))
    return with_tokens(
        config, blocks * config["block_size"], draw(st.integers(2, 4)), priority=priority
    )


def fills_pool_together(config: Config, history: VllmRun, blocks: int) -> bool:
    """Return whether a newcomer with this many blocks and the prefilling request together take the
    whole pool at the moment when the newcomer's prompt is computed and another chunk is
    scheduled."""
    block, free, request = config["block_size"], free_blocks(config, history), history.ongoing()[-1]
    chunk = min(config["long_prefill_token_threshold"] or block, config["max_num_batched_tokens"])
    steps = blocks_for(blocks * block, chunk) + 1
    before = request.computed + (steps - 1) * chunk
    taken = blocks_for(min(before + chunk, request.prompt), block) - blocks_for(
        request.computed, block
    )
    return before < request.prompt and free == blocks + taken


@st.composite
def contents(
    draw: st.DrawFn, config: Config, earlier: Sequence[Request], name: str, length: int
) -> Content:
    own: Content = ((name, length),)
    origin = draw(st.sampled_from(("own", "same", "before")))
    if not earlier or origin == "own":
        return own
    if origin == "same" or not caches(config):
        # If both run, they need their next block in the same step. If the prompt comes again after
        # others have been served, the cache still has some of its blocks, and copies of some.
        return draw(st.sampled_from((earlier[-1], earlier[0]))).prompt
    longest = longest_request(config) - 1
    if config.get("streaming_inputs") and draw(st.booleans()):
        # The whole first turn of a session, whose last token the session has dropped.
        turns = [(*r.prompt, (f"out:{r.id}", r.tokens_to_emit)) for r in earlier if r.turns]
        again = draw(st.sampled_from(turns or [own]))
        room = longest - sum(tokens for _, tokens in again)
        if room > 0:
            return (*again, (name, draw(st.integers(1, min(room, 2)))))
    units = borders(config)
    return like_an_earlier_prompt(draw, earlier, name, length, config["block_size"], units, longest)


def takes_priorities(config: Config) -> bool:
    """Return True: requests may have priorities, whether or not the policy reads them."""
    return True


def orders_by_priority(config: Config) -> bool:
    return bool(config["policy"] == "priority")


def caches(config: Config) -> bool:
    return bool(config["enable_prefix_caching"])


def fitted(config: Config, content: Content, shape: Shape | None) -> Shape:
    prompt = sum(tokens for _, tokens in content)
    if shape is None:
        return with_tokens(config, prompt, 2 * config["block_size"])
    return with_tokens(config, prompt, shape.max_tokens, shape.output_len, shape.priority)


def steps_to_border(config: Config, history: VllmRun) -> int:
    """Return the number of decode steps after which the next step needs more blocks than are free.
    If this takes at least as many steps as a block has tokens, return the number of steps after
    which the first decoding request fills its block."""
    running, free = history.decoding(), free_blocks(config, history)
    if free is not None:
        for steps in range(config["block_size"]):
            if sum(new_blocks(config, request, steps + 1) for request in running) > free:
                return steps
    return min((-request.computed % config["block_size"] for request in running), default=0)


def new_blocks(config: Config, request: VllmRequestHistory, steps: int) -> int:
    """Return the number of additional blocks that a decoding request takes within `steps` steps."""
    tokens = request.computed + min(steps, request.max_tokens - request.emitted)
    held = groups.blocks_if_all_kept(config, request.computed)
    return groups.blocks_if_all_kept(config, tokens) - held


def free_blocks(config: Config, history: VllmRun) -> int | None:
    """Return the number of blocks that no request holds. If the target does not show this number,
    derive it from the computed tokens. Return None if the pool is unbounded."""
    size = config["num_blocks"]
    if size is None:
        return None
    if history.last is not None and history.last.free_blocks is not None:
        return history.last.free_blocks
    held = sum(blocks_for(request.computed, config["block_size"]) for request in history.running())
    return max(int(size) - held, 0)
