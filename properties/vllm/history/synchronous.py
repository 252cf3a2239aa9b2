"""Synchronous loads: a connector fills a request's blocks in the step in which the request starts.

If such a load fails, the step has used blocks without content to compute tokens. Every request that
found or loaded some of these blocks then continues from the start of the first of them.

Source: release 0.33.0, KVConnectorBase_V1.get_num_new_matched_tokens, and the scheduler's comments
on blocks that failed to load.
"""

from collections.abc import Mapping, Sequence

from ....model.observation import Step
from ....model.pool import blocks_for
from ...history.content import in_common
from ...history.per_step_cache import once
from ...history.prefix_hits import caches
from . import loads
from .request_history import VllmRequestHistory
from .run import VllmRun, state_of, worker_after

Blocks = Sequence[int]


@once
def load_now(history: VllmRun, step: Step) -> list[VllmRequestHistory]:
    """Return the requests that load in this step. Include those that could load, but find the
    tokens in the cache."""
    if not loads.are_synchronous(history.config):
        return []
    starting = (history.live.get(name) for name in step.scheduled)
    return [
        request
        for request in starting
        if request is not None and not request.started and loads.is_new(history.config, request)
    ]


def loaded_now(history: VllmRun, step: Step, request: VllmRequestHistory) -> int:
    """Return how many tokens of a starting request the connector has. The request's hit includes
    them."""
    if request not in load_now(history, step):
        return 0
    return loads.offered(history.config, request)


def loads_blindly(history: VllmRun, step: Step, request: VllmRequestHistory) -> bool:
    """Return whether a request loads in this step although there is no prefix cache, so that no
    prefix hit shows the loaded tokens."""
    if request.started or request.id not in step.scheduled or not request.external:
        return False
    if not loads.are_synchronous(history.config) or caches(history.config):
        return False
    return request.parked_since in (None, history.step)


def loads_surely(history: VllmRun, step: Step, request: VllmRequestHistory) -> int | None:
    """Return how many tokens a request loads in this step, without using its hit. Return None if
    the request loads nothing, or may have found more tokens in the cache."""
    tokens = loads.offered(history.config, request)
    begins = request.parked_since in (None, history.step) and not request.started
    if not tokens or not begins or request.id not in step.scheduled:
        return None
    others = (other for other in history.kin(request) if other is not request)
    more = any(
        in_common(request, other) > tokens
        for other in others
        if other.max_computed or other.id in step.scheduled
    )
    return None if more else tokens


def failing_loads(history: VllmRun, step: Step) -> list[VllmRequestHistory]:
    """Return the requests of this step whose load fails, or would fail if the cache did not have
    all of their tokens."""
    config = history.config
    return [
        request
        for request in load_now(history, step)
        if request.load_fails_at is not None
        and request.load_fails_at < loads.offered(config, request)
    ]


def table(history: VllmRun, step: Step, name: str) -> Blocks:
    """Return those blocks of a request that the target shows, even if the request ends in this
    step."""
    if step.blocks and name in step.blocks:
        return step.blocks[name]
    held = worker_after(history, step).get(name)
    if held is not None and held.tables:
        return held.tables[0]
    last = history.last.blocks if history.last is not None else None
    return (last or {}).get(name, ())


@once
def unloaded_blocks(history: VllmRun, step: Step) -> Mapping[str, frozenset[int]]:
    """Return the blocks that get no content because their load fails in this step: those that
    certainly get none (key `certain`), and those that perhaps get none (key `possible`). Blocks
    that may have been found in the cache are not certain."""
    config, size = history.config, int(history.config["block_size"])
    certain: set[int] = set()
    possible: set[int] = set()
    for request in failing_loads(history, step):
        blocks, end = table(history, step, request.id), loads.offered(config, request)
        fails_at = request.load_fails_at or 0
        hit = history.max_hit(step, request) if caches(config) else 0
        possible.update(blocks[fails_at // size : blocks_for(end, size)])
        if hit < end:
            certain.update(blocks[max(fails_at, hit) // size : blocks_for(end, size)])
    return {"certain": frozenset(certain), "possible": frozenset(possible)}


def affected_requests(history: VllmRun, step: Step, blocks: frozenset[int]) -> dict[str, int]:
    """Return the requests of the step that found or loaded one of these blocks, each with the
    number of its tokens before the first such block."""
    size, found = int(history.config["block_size"]), {}
    if not blocks:
        return {}
    for name in step.scheduled:
        request = history.live.get(name)
        if request is None or request.started:
            continue
        own = table(history, step, name)
        end = blocks_for(start_of(history, step, request), size)
        places = [place for place, block in enumerate(own[:end]) if block in blocks]
        if places:
            found[name] = places[0] * size
    return found


def may_fall_back(history: VllmRun, step: Step) -> dict[str, int]:
    """Return the requests that may lose blocks because a load fails in this step. For each, give
    the number of its tokens before the first such block."""
    size = int(history.config["block_size"])
    found = affected_requests(history, step, unloaded_blocks(history, step)["possible"])
    for request in failing_loads(history, step):
        if table(history, step, request.id):
            continue
        kept = (request.load_fails_at or 0) // size * size  # its blocks are not shown: it has ended
        for other in history.kin(request):
            starts = other.id in step.scheduled and not other.started
            if starts and in_common(request, other) > kept:
                found.setdefault(other.id, kept)
    return found


def must_fall_back(history: VllmRun, step: Step) -> dict[str, int]:
    return affected_requests(history, step, unloaded_blocks(history, step)["certain"])


def start_of(history: VllmRun, step: Step, request: VllmRequestHistory) -> int:
    """Return how many tokens of a request were computed, found or loaded before those that the step
    computes."""
    if request.started:
        return request.computed
    hit = history.hit_now(step, request)
    return request.num_tokens - step.scheduled[request.id] if hit is None else hit


@once
def blocks_to_fill_after(history: VllmRun, step: Step) -> Mapping[int, int]:
    """Return the blocks whose load failed in an earlier step, each with the number of tokens that
    have been computed since, including this step."""
    unfilled = state_of(history).unfilled
    if not unfilled:
        return unfilled
    left, size = dict(unfilled), int(history.config["block_size"])
    for request in load_now(history, step):
        tokens = loads.offered(history.config, request)
        for place, block in enumerate(table(history, step, request.id)):
            if block in left:
                left[block] = max(left[block], min(tokens - place * size, size))
    for name, tokens in step.scheduled.items():
        if (computes := history.live.get(name)) is None:
            continue
        begin = start_of(history, step, computes)
        for place, block in enumerate(table(history, step, name)):
            first, last = max(begin - place * size, 0), min(begin + tokens - place * size, size)
            if block in left and first <= left[block] < last:
                left[block] = last
    return {block: tokens for block, tokens in left.items() if tokens < size}


def book(history: VllmRun, step: Step) -> None:
    """Record the requests that load in this step. If a load fails, also record the blocks that get
    no content, and the requests that lose computed tokens."""
    back = may_fall_back(history, step)
    certain, left = unloaded_blocks(history, step)["certain"], blocks_to_fill_after(history, step)
    if certain or left is not state_of(history).unfilled:
        unfilled = {**left, **dict.fromkeys(certain, 0)}
        history.system_state = state_of(history)._replace(unfilled=unfilled)
    for name, tokens in back.items():
        if (step.emitted or {}).get(name):
            continue
        shown = (step.computed or {}).get(name, tokens)
        history.requests[name].falls_to = max(shown, tokens)
    for name in step.scheduled:
        request = history.live.get(name)
        if request is not None and request.external and request.parked_since is None:
            request.parked_since = history.step


def fall_back(history: VllmRun, step: Step) -> None:
    for name in step.scheduled:
        request = history.requests.get(name)
        if request is not None and request.falls_to is not None:
            request.slots = max(request.slots, request.computed)
            request.computed = min(request.computed, request.falls_to)
            request.falls_to, request.went_back = None, True
