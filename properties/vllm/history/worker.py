"""A shadow of the worker: the state of a worker that follows every message from the scheduler.

Source: releases 0.19.1 to 0.33.0, GPUModelRunner._update_states.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ....model.observation import Sent

Tables = tuple[tuple[int, ...], ...]


class Held(NamedTuple):
    """The worker's state of a request: a block table for each group, and how many of its tokens the
    first stage of a pipeline knows."""

    tables: Tables = ()
    tokens: int = 0


Worker = Mapping[str, Held]


def after(worker: Worker, sent: Sent) -> Worker:
    """Return the worker's state after a step has been sent to it. Add each request that it does not
    know, with the data sent for it."""
    if not (sent.new or sent.resumed or sent.blocks or sent.tokens or sent.dropped):
        return worker
    holds = {**without_dropped(worker, sent)}
    for name in (*sent.new, *sent.resumed):
        holds[name] = Held((), holds[name].tokens if name in holds else 0)
    for name, blocks in sent.blocks.items():
        held = holds.get(name, Held())
        pairs = zip(held.tables, blocks, strict=False)
        tables = tuple([own + new for own, new in pairs]) if held.tables else blocks
        holds[name] = Held(tables, held.tokens)
    for name, tokens in sent.tokens.items():
        held = holds.get(name, Held())
        holds[name] = Held(held.tables, max(held.tokens, tokens))
    return holds


def without_dropped(worker: Worker, sent: Sent) -> Worker:
    if not sent.dropped:
        return worker
    return {name: held for name, held in worker.items() if name not in sent.dropped}
