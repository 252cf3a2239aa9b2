"""A shadow of the worker: the state of a worker that follows every message from the scheduler.

Source: releases 0.19.1 to 0.33.0, GPUModelRunner._update_states.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ....model.observation import Sent

Tables = tuple[tuple[int, ...], ...]


class Held(NamedTuple):
    """What the worker knows about a request: its block table in each group, how many of its tokens
    the first stage of a pipeline has, and the encoder inputs whose data it has (None if unknown).
    """

    tables: Tables = ()
    tokens: int = 0
    inputs: frozenset[int] | None = None


Worker = Mapping[str, Held]


def after(worker: Worker, sent: Sent) -> Worker:
    """Return the worker's state after a step has been sent to it. Add each request that it does not
    know, with the data sent for it."""
    data = sent.inputs or sent.released
    if not (sent.new or sent.resumed or sent.blocks or sent.tokens or sent.dropped or data):
        return worker
    holds = {**without_dropped(worker, sent)}
    for name in (*sent.new, *sent.resumed):
        held = holds.get(name, Held())
        fresh = None if sent.inputs is None else frozenset[int]()
        holds[name] = Held((), held.tokens, fresh if name in sent.new else held.inputs)
    for name, blocks in sent.blocks.items():
        held = holds.get(name, Held())
        pairs = zip(held.tables, blocks, strict=False)
        tables = tuple([own + new for own, new in pairs]) if held.tables else blocks
        holds[name] = held._replace(tables=tables)
    for name, tokens in sent.tokens.items():
        held = holds.get(name, Held())
        holds[name] = held._replace(tokens=max(held.tokens, tokens))
    for name in {*(sent.inputs or ()), *sent.released}:
        held = holds.get(name, Held())
        if held.inputs is not None:
            kept = held.inputs.union((sent.inputs or {}).get(name, ()))
            holds[name] = held._replace(inputs=kept.difference(sent.released.get(name, ())))
    return holds


def without_dropped(worker: Worker, sent: Sent) -> Worker:
    if not sent.dropped:
        return worker
    return {name: held for name, held in worker.items() if name not in sent.dropped}
