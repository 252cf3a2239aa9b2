"""States of nano-vLLM's scheduler without names: what two of them share that behave alike.

The block manager always looks for cached blocks, so it always matters what blocks hold and in
which order the free ones go.
"""

from collections.abc import Hashable
from typing import Any

from ...model.nano_vllm.state import Sequence, State
from ...model.pool import free_blocks
from ..exploration.branching_history import BranchingHistory
from ..exploration.canonical_names import CanonicalNames
from ..exploration.undecided import left
from .undecided import OpenSequence


def key(state: State, history: BranchingHistory, mentioned: frozenset[str]) -> Hashable:
    """Equal for states that differ in names only; requests that are `mentioned` in prompts of the
    menu keep theirs."""
    queues = (state.waiting, state.running)
    places = {name: place for place, name in enumerate(history.live)}
    # A request that has arrived since the last step: rules about newcomers go by it.
    queued = (history.last.waiting or ()) if history.last is not None else ()
    newcomers = tuple(one.id not in queued for one in state.waiting)
    names = CanonicalNames(mentioned, queues, history)
    computed = names.computed(history, newest=True)
    return (
        tuple(tuple(_member(one, names, history, places) for one in queue) for queue in queues),
        free_blocks(state.pool),
        names.pool(state.pool),
        computed,
        len(state.aborted),
        newcomers,
    )


def _member(
    one: Sequence, names: CanonicalNames, history: BranchingHistory, places: dict[str, int]
) -> tuple[Any, ...]:
    """What the scheduler goes by, and what the client knows that is no part of it."""
    account = history.live.get(one.id)
    content: Hashable = None
    if isinstance(one, OpenSequence):
        content = one.candidates.bits
    client: tuple[Any, ...] = ()
    if account is not None:
        client = (
            account.computed - one.computed,
            account.emitted - one.generated,
            account.prefix_hit - one.prefix_hit,
            account.preemptions > 0,
            account.regenerated,
        )
    return (
        names.request(one.id),
        names.content(one.content) if content is None else content,
        tuple(names.block(block) for block in one.blocks),
        one.computed,
        one.generated,
        one.prefix_hit,
        one.published,
        left(one),
        places.get(one.id),
        client,
    )
