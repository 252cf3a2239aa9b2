"""Every run of a few requests on a reference model: a request that arrives or leaves, whenever.

For what is shown of single states: no state is left out, and none is taken for another.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

from schedproof.model.scenario import Request
from schedproof.model.systems import Model


class Move(NamedTuple):
    """One step of one run: the state that it is taken in, what it shows, and the state after."""

    before: Any
    seen: dict[str, Any]
    after: Any


def moves(model: Model, requests: Sequence[Request], *, aborts: bool = True) -> Iterator[Move]:
    """Every step of every run, states that two runs share once.

    `requests` arrive in this order, each before any step. With `aborts` any one of the unfinished
    may be given up before each step, or inside it.
    """
    start = (model.initial(), 0)
    known, open_ends = {_key(*start)}, [start]
    while open_ends:
        state, arrived = open_ends.pop()
        for newcomers in range(arrived, len(requests) + 1):
            queued = state
            for request in requests[arrived:newcomers]:
                queued = model.arrive(queued, request)
            for seen, after in _steps(model, queued, aborts=aborts):
                yield Move(queued, seen, after)
                key = _key(after, newcomers)
                if key not in known:
                    known.add(key)
                    open_ends.append((after, newcomers))


def _steps(model: Model, state: Any, *, aborts: bool) -> Iterator[tuple[dict[str, Any], Any]]:
    after, seen = model.step(state)
    yield seen, after
    queues = (state.waiting, state.running, getattr(state, "paused", ()))
    unfinished = [request for queue in queues for request in queue] if aborts else ()
    for request, inside in product(unfinished, (True, False)):
        if inside:
            after, seen = model.step(state, (request.id,))
        else:
            after, seen = model.step(model.abort(state, request.id))
        yield seen, after


def _key(state: Any, arrived: int) -> Any:
    """The state as something that a set can hold."""
    pool = state.pool._replace(cached={})
    cached = frozenset(state.pool.cached.items())
    return state._replace(pool=pool._replace(cached=())), cached, arrived
