"""Count the blocks that tokens need, and those that were free when a step was decided."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...model.observation import Step
from ..history.content import common_prefix_len
from ..history.per_step_cache import once
from ..history.request_history import RequestHistory
from ..history.run_history import RunHistory
from .predicate import Predicate


def hit_too_short(
    history: RunHistory[Any], step: Step, starting: Iterable[Any], must_find: Callable[[Any], int]
) -> str | None:
    """Return a message if a starting request finds fewer tokens in the cache than `must_find`
    returns for it."""
    for request in starting:
        hit, shared = history.hit_now(step, request), must_find(request)
        if hit is not None and hit < shared:
            return (
                f"{request.id} finds {hit} tokens in the cache; a running request holds "
                f"{shared} of its tokens"
            )
    return None


def must_be_found_again(
    starting: Callable[[Any, Step], Iterable[Any]],
    computed_again: Callable[[Mapping[str, Any]], int] = lambda config: 0,
) -> Predicate:
    """Return a predicate for the rules which say that computed tokens must be found again.

    A starting request must find every token that was computed before, even in blocks that no
    request holds any more, unless the token's block has been handed out since. `starting` returns
    the requests that start in a step, and `computed_again` how many of these tokens a request may
    compute again in this configuration.
    """

    @once
    def due(history: RunHistory[Any], step: Step) -> list[tuple[RequestHistory, int]]:
        kept, again = history.kept, computed_again(history.config)
        if kept is None:
            return []
        return [
            (request, max(kept.must_find(history, step, request) - again, 0))
            for request in starting(history, step)
            if not request.started and request.id not in (step.preempted or ())
        ]

    def missed(history: RunHistory[Any], step: Step) -> str | None:
        for request, tokens in due(history, step):
            hit = history.hit_now(step, request)
            if hit is not None and hit < tokens:
                return (
                    f"{request.id} finds {hit} tokens in the cache, but {tokens} were computed "
                    "before, in blocks that have not been handed out since"
                )
        return None

    def exercised(history: RunHistory[Any], step: Step) -> bool:
        return any(tokens for _, tokens in due(history, step))

    return Predicate(missed, exercised, reads_kept=True)


def in_common_after(history: RunHistory[Any], step: Step, name: str, other: str) -> int:
    """Return the number of leading tokens that two requests share, including those they emit in
    this step."""
    if not history.requests.keys() >= {name, other}:
        return 0  # nothing is known about a request that schedproof did not send
    contents = []
    for request in (history.requests[name], history.requests[other]):
        emitted = request.emitted + (step.emitted or {}).get(request.id, 0)
        contents.append(
            (*request.content, (f"out:{request.id}", emitted)) if emitted else request.content
        )
    return common_prefix_len(*contents)


def blocks_for(history: RunHistory[Any], tokens: int) -> int:
    return -(-tokens // int(history.config["block_size"]))


def held_after(history: RunHistory[Any], step: Step) -> Mapping[str, tuple[int, ...]]:
    """Return the blocks of each request after a step, including those of further groups that share
    the pool."""
    shown, further = step.blocks or {}, step.group_blocks
    if not further or history.features.group_pools(history.config):
        return shown
    return {
        name: (*table, *(block for more in further.get(name, ()) for block in more if block))
        for name, table in shown.items()
    }


def held_of_group(step: Step, number: int) -> Counter[int]:
    """Return how many requests hold each block of a KV group after a step. `number` is the index of
    the group among those after the first. Blocks that have slid out of a window are left out."""
    tables = [groups[number : number + 1] for groups in (step.group_blocks or {}).values()]
    return Counter(block for found in tables for table in found for block in table if block)


@once
def tables_before(history: RunHistory[Any]) -> dict[str, tuple[int, ...]]:
    """Return the blocks of unfinished requests before the step. Include ended requests that keep
    their blocks until a load has finished or the blocks are sent."""
    shown = held_after(history, history.last) if history.last is not None else {}
    keeps = history.features.held_after_end(history.config)
    return {name: table for name, table in shown.items() if keeps or name in history.live}


def blocks_before(history: RunHistory[Any], request: RequestHistory) -> int:
    """Return the number of blocks that an unfinished request held before the step."""
    shown = (history.last.blocks or {}) if history.last is not None else {}
    return len(shown.get(request.id, ()))


@once
def held_before(history: RunHistory[Any]) -> set[int]:
    return set().union(*tables_before(history).values())


@once
def free_when_decided(history: RunHistory[Any]) -> int | None:
    """Return the number of free blocks at the decision; None if unknown or unbounded."""
    size = history.config["num_blocks"]
    if size is None or (history.last is not None and history.last.blocks is None):
        return None
    if history.features.free_is_unknown(history):
        return None
    return int(size) - len(held_before(history))


def released_by(history: RunHistory[Any], gone: Iterable[RequestHistory]) -> int:
    """Return the number of blocks that only these requests held before the step."""
    leaving = {request.id for request in gone}
    before = tables_before(history)
    kept = {block for name, table in before.items() if name not in leaving for block in table}
    return len(held_before(history) - kept)


def perhaps_preempted(history: RunHistory[Any], step: Step) -> set[str]:
    """Return the requests that the step may have preempted without saying so.

    They ran, compute nothing in this step, and are aborted inside it. Since they have ended, the
    target need not list them in `preempted`.
    """
    ran = (history.last.running or ()) if history.last is not None else ()
    elsewhere = {*step.scheduled, *(step.preempted or ())}
    return {name for name in ran if name in history.aborts_inside and name not in elsewhere}


def taken_by(history: RunHistory[Any], step: Step, request: RequestHistory, block_size: int) -> int:
    """Return how many blocks a running request takes for the tokens that it computes in the
    step."""
    covered = request.computed + step.scheduled.get(request.id, 0)
    if request.id in step.scheduled:
        covered = history.features.slots(history.config, covered)
    after = -(-covered // block_size)
    return max(after - blocks_before(history, request), 0)
