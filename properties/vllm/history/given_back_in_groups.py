"""Blocks of several groups of the KV cache that requests have given back and that nobody has
received since.

As in `given_back`, a client sees that a request gives back its blocks when its block tables
disappear.

Source: release 0.33.0: KVCacheCoordinator.free, BlockPool.free_blocks.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ....model.observation import Step
from ...history.prefix_hits import caches
from ...history.run_history import RunHistory
from . import given_back, groups, in_flight, kept_in_groups, loads, sessions, speculation
from .groups import BUFFER, NULL_BLOCK, Group
from .request_history import VllmRequestHistory
from .run import Returned, of


def are_followed(config: Mapping[str, Any]) -> bool:
    """Return whether a client can tell, in every group, which blocks can be found."""
    return (
        groups.are_several(config)
        and caches(config)
        and not groups.has_mamba(config)
        and not groups.keeps_few_blocks(config)
        and not sessions.are_held(config)
    )


def after(
    history: RunHistory[Any], step: Step, returned: Mapping[int, Returned]
) -> Mapping[int, Returned]:
    """Return the blocks that are still in the pool after the step."""
    kept, gone = given_back.still_free(history, step, returned)
    held = given_back.held_after(step) if gone else ()
    for name in gone:
        kept |= {
            block: known for block, known in _given_back(history, step, name) if block not in held
        }
    return kept


def _given_back(history: RunHistory[Any], step: Step, name: str) -> Iterator[tuple[int, Returned]]:
    config, account = history.config, history.requests.get(name)
    tables = kept_in_groups.tables_of(history.last).get(name, ())
    every = kept_in_groups.every_group(config)
    for number, (group, table) in enumerate(zip(every, tables, strict=False)):
        named = range(0)
        if account is not None:
            named = _named(history, step, of(account), group)
        for place, block in enumerate(table):
            if block != NULL_BLOCK:
                yield block, Returned(name, history.step, number, place in named)


def _named(
    history: RunHistory[Any], step: Step, request: VllmRequestHistory, group: Group
) -> range:
    """Return the places in a group's block table whose blocks can certainly be found after the
    request has given them back. These are whole blocks of the prompt that the group reads until the
    end of the request. There are none if the request did not end normally, or if a load may
    fail."""
    reason, config = request.ended or (step.finished or {}).get(request.id), history.config
    if reason not in ("eos", "length") or group.kind == BUFFER or loads.may_fail(request):
        return range(0)
    unit = groups.hit_unit(config)
    ahead = in_flight.depth(config) * (1 + speculation.drafts(config))
    tokens = request.prompt + request.emitted + (step.emitted or {}).get(request.id, 0) + ahead
    first = groups.first_block_read(config, group, tokens)
    return range(first, request.prompt // unit * unit // group.size)
