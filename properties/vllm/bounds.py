"""Bounds for vLLM V1: how many steps requests may take, and which requests can run.

Source: target protocol, "Bounds" and "Refusals at add".
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ...spec.systems import SYSTEMS
from ..history.bounds import Bounds, fits_pool, fits_pool_and_budget, in_chunks, pool_limit
from .history import blocked, cadence, groups, in_flight, loads, partitions, sessions
from .history.request_history import VllmRequestHistory
from .history.speculation import lookahead, most_ahead

Config = Mapping[str, Any]
# The revisions in which a request that lacks its grammar or a slot for its adapter keeps its place
# in the queue.
IN_LINE = SYSTEMS["vllm"].revisions[SYSTEMS["vllm"].revisions.index("0.31") :]


def alone(config: Config, request: VllmRequestHistory) -> int:
    """Return the largest number of steps of one request: all its tokens in chunks, plus one step
    per generated token.

    The result is multiplied by the number of decisions that can be in flight, and by the interval
    between prefills. Tokens computed so far are not deducted, since a preempted request starts
    again.
    """
    # A chunk ends before an encoder input for which the step has no room; the next chunk begins
    # there.
    steps = in_chunks(config, request) + 2 * len(request.inputs)
    if request.turns:
        steps += of_turns(config, request)
    if groups.aligns(config):  # a chunk also ends at block boundaries, the last of them included
        steps += -(-(request.prompt + request.max_tokens) // config["block_size"]) + 2
    return steps * in_flight.depth(config) * cadence.interval(config) + request.deferrals


def of_turns(config: Config, request: VllmRequestHistory) -> int:
    """Return the largest number of steps that the further turns of a session take. In the worst
    case, each turn computes all tokens of the session again, one in each step."""
    tokens = request.prompt + request.max_tokens
    steps = 0
    for turn in request.turns:
        tokens += turn.prompt_len + turn.max_tokens
        steps += tokens + (turn.delay or 0) + 1
    return steps


def waits(
    config: Config,
    revision: str,
    first: VllmRequestHistory,
    started: Sequence[VllmRequestHistory],
) -> int | None:
    """Return the largest number of steps until all `started` requests have ended, if requests are
    served in order of arrival. Return None if there is no bound.

    There is no bound if other requests may overtake `first` again and again: under the priority
    policy, with more than two steps in flight (preempted requests may overtake), and in
    configurations with sessions or loads. Requests with encoder inputs, grammars or adapters may
    also be overtaken, and before 0.31.0, later requests with grammars or adapters went ahead of
    others.
    """
    depth, requests = in_flight.depth(config), (first, *started)
    in_line = revision in IN_LINE
    overtaken = (
        sessions.are_held(config)
        or loads.are_made(config)
        or any(request.inputs for request in requests)
        or (blocked.can_be(config) and not in_line)
        or any(request.arrived_blocked for request in requests)
        or (partitions.adapters_are_limited(config) and not in_line)
        or (partitions.adapters_are_limited(config) and partitions.have_adapters(requests))
    )
    if config["policy"] == "priority" or depth > 2 or overtaken:
        return None
    return sum(alone(config, request) for request in started) + (len(started) + 2) * depth


def together(config: Config, work: int, requests: int) -> int:
    """Return the largest number of steps of all requests together.

    Under FCFS, the oldest request is never preempted. Under the priority policy, the most important
    request is never preempted, but it may have to wait behind all running requests, once for each
    other request. The same is true of sessions, which may lose their blocks while they wait.
    """
    waits_again = config["policy"] == "priority" or sessions.are_held(config)
    turns = requests + 1 if waits_again else 1
    return turns * (work + (2 * requests + 2) * in_flight.depth(config))


def can_run(config: Config, prompt: int, max_tokens: int) -> bool:
    whole = prompt + max_tokens
    with_drafts = whole + most_ahead(config)
    within = whole <= config["max_model_len"] and fits_pool(config, with_drafts)
    if groups.further(config) and config["num_blocks"] is not None:
        blocks = groups.blocks_of_all(config, with_drafts)
        within = within and blocks <= config["num_blocks"]
    return within and fits_pool_and_budget(config, prompt, max_tokens)


def limits(config: Config) -> list[int]:
    whole = [] if config["enable_chunked_prefill"] else [config["max_num_batched_tokens"]]
    longest = config["max_model_len"]
    ahead = lookahead(config)
    rooms = pool_limit(config)
    if rooms and groups.further(config):
        rooms = [groups.longest_in_pool(config) * config["block_size"]]
    pools = [
        size if min(longest - 1 + ahead, longest) <= size else size - most_ahead(config)
        for size in rooms
    ]
    return [longest - 1, *pools, *whole]


BOUNDS = Bounds(alone, waits, together, can_run, limits)
