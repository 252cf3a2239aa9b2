"""KV groups, each with its own pool: what a request holds, and what it may need in each of them.

Source: target protocol, "Groups of the KV cache".
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ...model.observation import Step
from ...model.pool import blocks_for
from ..rules.pool import held_of_group
from ..vllm.history import groups, in_flight
from ..vllm.history.request_history import VllmRequestHistory as RequestHistory
from ..vllm.history.run import VllmRun as RunHistory
from ..vllm.predicates.groups import blocks_read, first_read_in_flight

Config = Mapping[str, Any]
NULL = groups.NULL_BLOCK


class Window(NamedTuple):
    """A group after the first: its number, its window in tokens, the blocks of its pool, and the
    tokens in a block."""

    number: int
    window: int
    pool: int
    size: int

    def least(self, tokens: int) -> int:
        """Return how many blocks are enough for this many tokens, wherever in a block the first
        token is."""
        return blocks_for(tokens, self.size) + 1


def windows(config: Config) -> list[Window]:
    return [
        Window(number, group["window"], group["num_blocks"], config["block_size"])
        for number, group in enumerate(config.get("kv_groups", ())[1:], start=1)
    ]


def fit(config: Config, whole: int, ahead: int) -> bool:
    """Return whether a request of `whole` tokens certainly fits into the pool of every window. A
    request may hold its window, the tokens of all steps in flight, and blocks that it has yet to
    give back (GEN-R40)."""
    depth, budget = in_flight.depth(config), config["max_num_batched_tokens"] or whole
    chunk = min(budget, whole) if config["enable_chunked_prefill"] else whole
    return all(
        min(
            blocks_for(whole + ahead, group.size),
            group.least(group.window + depth * chunk + max(group.window, budget) + ahead),
        )
        <= group.pool
        for group in windows(config)
    )


def limits(config: Config) -> list[int]:
    """Return the lengths, in tokens, of the pools that are smaller than their window. No request
    longer than such a pool can be computed."""
    tokens = [(group.pool * group.size, group.window) for group in windows(config)]
    return [room for room, window in tokens if room < window]


def tables(step: Step, group: Window) -> Iterator[tuple[str, tuple[int, ...]]]:
    for name, shown in (step.group_blocks or {}).items():
        if len(shown) >= group.number:
            yield name, shown[group.number - 1]


def too_few_blocks(history: RunHistory, step: Step) -> str | None:
    """Check that a request has the blocks of every window (GEN-R05)."""
    if step.group_blocks is None:
        return None
    for group in windows(history.config):
        shown = dict(tables(step, group))
        for name, computed in (step.computed or {}).items():
            if name not in history.live or not computed:
                continue
            table = shown.get(name, ())
            needed = blocks_for(computed, group.size)
            if len(table) < needed:
                room = len(table) * group.size
                return (
                    f"{name} has {computed} tokens computed, but group {group.number} has blocks "
                    f"for only {room} of them"
                )
            first = max(computed - _in_flight(history, step, name) - group.window + 1, 0)
            for place in range(first // group.size, needed):
                if table[place] == NULL:
                    return (
                        f"{name} has {computed} tokens computed, but lacks block {place} of group "
                        f"{group.number}, which is in its window"
                    )
    return None


def _in_flight(history: RunHistory, step: Step, name: str) -> int:
    """Return how many tokens of a request the step's decision still computes after the step."""
    config = history.config
    if in_flight.depth(config) == 1 or config.get("early_completions"):
        return 0
    return step.scheduled.get(name, 0)


def held_twice(history: RunHistory, step: Step) -> str | None:
    """Check that no block of a group is held twice (GEN-R06)."""
    for group in windows(history.config):
        for block, times in held_of_group(step, group.number - 1).items():
            if times > 1:
                return f"block {block} of group {group.number} is held {times} times"
    return None


def more_than_the_pool(history: RunHistory, step: Step) -> str | None:
    """Check that all requests together hold no more blocks than a group's pool has (GEN-R07)."""
    for group in windows(history.config):
        held = len(held_of_group(step, group.number - 1))
        if held > group.pool:
            return f"{held} blocks of group {group.number} are held, but its pool has {group.pool}"
    return None


def more_than_its_life(history: RunHistory, step: Step, ahead: int) -> str | None:
    """Check that a request's table has no more blocks than its prompt and max_tokens can need
    (GEN-R12)."""
    for group in windows(history.config):
        for name, table in tables(step, group):
            request = history.live.get(name)
            if request is None:
                continue
            most = blocks_for(request.prompt + request.max_tokens + ahead, group.size)
            if len(table) > most:
                return (
                    f"{name} has a table of {len(table)} blocks in group {group.number}; its "
                    f"prompt and max_tokens need at most {most}"
                )
    return None


def kept_out_of_the_window(history: RunHistory, step: Step) -> str | None:
    """Check that computing requests have given back blocks that left the window long ago
    (GEN-R40)."""
    for request, number, table, needed in _needed(history, step):
        for place, block in enumerate(table[:needed]):
            if block != NULL:
                return (
                    f"{request.id} computes token {request.computed}, and holds block {block} at "
                    f"place {place} of group {number + 1}; it may hold blocks from place {needed} "
                    "on"
                )
    return None


def something_slides_out(history: RunHistory, step: Step) -> bool:
    return any(needed > 0 for *_, needed in _needed(history, step))


def _needed(
    history: RunHistory, step: Step
) -> Iterator[tuple[RequestHistory, int, tuple[int, ...], int]]:
    """For each request that computes and each group, yield the request, the group's number (from
    0), the request's table in the group, and the first place at which it may still hold a block.

    A scheduler may look for blocks to give back only once per window, or give them back a step
    later. If the budget is unknown, this place is unknown, so yield nothing.
    """
    budget = history.config["max_num_batched_tokens"]
    for request, number, table, first in blocks_read(history, step) if budget else ():
        group = windows(history.config)[number]
        needed = first_read_in_flight(history, request, number, first)
        later = blocks_for(max(group.window, budget), group.size)
        yield request, number, table, max(needed - later, 0)
