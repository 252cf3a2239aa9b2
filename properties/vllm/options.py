"""Options of vLLM that are absent by default: drafts, decisions on their way, loads, an encoder."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from .request_features import encoders

Config = Mapping[str, Any]

# Decisions that are on their way while others are taken; blocks that are loaded meanwhile.
IN_FLIGHT: Mapping[str, Config] = {
    "ahead": {"async_scheduling": True},
    "pipeline": {"pipeline_parallel_size": 2},
    "longer pipeline": {"pipeline_parallel_size": 3},
    "ahead in stages": {"async_scheduling": True, "pipeline_parallel_size": 3},
    "loads": {"kv_connector": True},
    "loads ahead": {"kv_connector": True, "async_scheduling": True},
}
SEVERAL_ON_THEIR_WAY = {"async_scheduling", "pipeline_parallel_size"}
EARLY_COMPLETIONS = st.sampled_from((0, 0, 1, 0, 3, 2))


@st.composite
def options(draw: st.DrawFn, config: Config) -> dict[str, Any]:
    """Some of them, beside a configuration of the others."""
    steps = draw(st.sampled_from((*3 * ("one",), *2 * ("drafts",), *IN_FLIGHT)))
    drawn: dict[str, Any] = {}
    if steps == "drafts" or (steps == "loads" and draw(st.booleans())):
        drawn |= draw(speculations(config))
    if steps.endswith("ahead") and (drafts := most_drafts(config)) and draw(st.booleans()):
        drawn |= {"enable_prefix_caching": False, **with_lookahead(drafts)}
    if steps.startswith("loads") and draw(st.sampled_from((False, True, False))):
        drawn |= {"kv_load_failure_policy": "fail"}
    if "num_lookahead_tokens" not in drawn and draw(st.sampled_from((*3 * (False,), True))):
        drawn |= draw(encoders(config))
    drawn |= IN_FLIGHT.get(steps, {})
    if set(drawn) & SEVERAL_ON_THEIR_WAY and (early := draw(EARLY_COMPLETIONS)):
        drawn |= {"early_completions": early}
    return drawn


@st.composite
def speculations(draw: st.DrawFn, config: Config) -> dict[str, Any]:
    """A few drafts after each token, for which the pool must have room beside the shortest request;
    without a prefix cache sometimes with lookahead, for which the budget must have room, too."""
    drafts = draw(st.sampled_from((1, 3, 2)))
    if config["num_blocks"] is not None:
        room = config["num_blocks"] * config["block_size"] - 1
        drafts = min(drafts, room)
        if 2 * drafts > room:
            return {"num_speculative_tokens": drafts}
    may_look_ahead = (
        not config["enable_prefix_caching"] and drafts < config["max_num_batched_tokens"]
    )
    if not may_look_ahead or draw(st.booleans()):
        return {"num_speculative_tokens": drafts}
    return with_lookahead(drafts)


def with_lookahead(drafts: int) -> dict[str, Any]:
    """A drafter that has keys and values of its own."""
    return {"num_speculative_tokens": drafts, "num_lookahead_tokens": drafts}


def most_drafts(config: Config) -> int:
    """Drafts after each token that are decided ahead, three at most: the budget and the pool have
    room for them, the pool for those of two decisions and the lookahead beside a short request."""
    room = [3, config["max_num_batched_tokens"] - 1]
    if config["num_blocks"] is not None:
        room.append((config["num_blocks"] * config["block_size"] - 1) // 4)
    return int(min(room))
