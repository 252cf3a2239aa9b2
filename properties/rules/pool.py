"""Blocks: how many tokens need, and what was free when a step was decided, from those that were
shown before it."""

from collections.abc import Callable, Iterable, Iterator
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
    """One of the requests that start finds fewer tokens than one that runs holds of it."""
    for one in starting:
        hit, shared = history.hit_now(step, one), must_find(one)
        if hit is not None and hit < shared:
            return f"{one.id} finds {hit} tokens in the cache; one that runs holds {shared} of them"
    return None


def found_again(starting: Callable[[Any, Step], Iterable[Any]]) -> Predicate:
    """What was computed before is found, also when no request holds it any more, unless its blocks
    were handed out since. `starting`: the requests of which a step says it."""

    def due(history: RunHistory[Any], step: Step) -> Iterator[tuple[RequestHistory, int]]:
        for one in starting(history, step) if history.kept is not None else ():
            if not one.started and one.id not in (step.preempted or ()):
                yield one, history.kept.must_find(history, step, one)

    def missed(history: RunHistory[Any], step: Step) -> str | None:
        for one, tokens in due(history, step):
            hit = history.hit_now(step, one)
            if hit is not None and hit < tokens:
                return (
                    f"{one.id} finds {hit} tokens in the cache; {tokens} were computed before, in "
                    "blocks that were not handed out since"
                )
        return None

    def left(history: RunHistory[Any], step: Step) -> bool:
        return any(tokens for _, tokens in due(history, step))

    return Predicate(missed, left)


def in_common_after(history: RunHistory[Any], step: Step, name: str, other: str) -> int:
    """Tokens at the start that two requests share, with what they emit in this step."""
    if not history.requests.keys() >= {name, other}:
        return 0  # of a request that was never made nothing is known
    contents = []
    for one in (history.requests[name], history.requests[other]):
        emitted = one.emitted + (step.emitted or {}).get(one.id, 0)
        contents.append((*one.content, (f"out:{one.id}", emitted)) if emitted else one.content)
    return common_prefix_len(*contents)


def blocks_for(history: RunHistory[Any], tokens: int) -> int:
    """Blocks that hold so many tokens, by the run's configuration."""
    return -(-tokens // int(history.config["block_size"]))


@once
def tables_before(history: RunHistory[Any]) -> dict[str, tuple[int, ...]]:
    """The blocks of the unfinished requests before the step, and of those that have ended and keep
    them until a load has landed, or they are sent."""
    shown = (history.last.blocks or {}) if history.last is not None else {}
    keeps = history.features.held_after_end(history.config)
    return {name: tuple(table) for name, table in shown.items() if keeps or name in history.live}


def blocks_before(history: RunHistory[Any], one: RequestHistory) -> int:
    """Blocks that an unfinished request held before the step."""
    shown = (history.last.blocks or {}) if history.last is not None else {}
    return len(shown.get(one.id, ()))


@once
def held_before(history: RunHistory[Any]) -> set[int]:
    """The numbers of the blocks that requests held before the step."""
    return {block for table in tables_before(history).values() for block in table}


@once
def free_when_decided(history: RunHistory[Any]) -> int | None:
    """Blocks free at the decision; None where that is not known, or without a bound."""
    size = history.config["num_blocks"]
    if size is None or (history.last is not None and history.last.blocks is None):
        return None
    if history.features.free_is_unknown(history):
        return None
    return int(size) - len(held_before(history))


def released_by(history: RunHistory[Any], gone: Iterable[RequestHistory]) -> int:
    """Blocks that only these requests held before the step."""
    leaving = {one.id for one in gone}
    before = tables_before(history)
    kept = {block for name, table in before.items() if name not in leaving for block in table}
    return len(held_before(history) - kept)


def taken_by(history: RunHistory[Any], step: Step, one: RequestHistory, block_size: int) -> int:
    """Blocks that a request that ran before took for what it computes in the step."""
    covered = one.computed + step.scheduled.get(one.id, 0)
    if one.id in step.scheduled:
        covered = history.features.slots(history.config, covered)
    after = -(-covered // block_size)
    return max(after - blocks_before(history, one), 0)
