"""Blocks: as many as what is computed needs, in one hand each, and of the pool.

Source: target protocol, The step observation: blocks, computed.
"""

from ....model.observation import Step
from ...history.prefix_hits import caches
from ...history.run_history import RunHistory
from ...rules.pool import blocks_for
from ...rules.predicate import Predicate


def too_few_blocks(history: RunHistory, step: Step) -> str | None:
    """A request has blocks for all its computed tokens (GEN-R05)."""
    for name, tokens in (step.computed or {}).items():
        held = len((step.blocks or {}).get(name, ()))
        if name in history.live and held < blocks_for(history, tokens):
            return f"{name} has {tokens} tokens computed, and {held} blocks for them"
    return None


def one_takes_another_block(history: RunHistory, step: Step) -> bool:
    """A request that goes on has a block more than before."""
    before = (history.last.blocks or {}) if history.last is not None else {}
    return any(
        name in before and len(blocks) > len(before[name])
        for name, blocks in (step.blocks or {}).items()
    )


def in_two_hands(history: RunHistory, step: Step) -> str | None:
    """Without a prefix cache a block is in one request's hands, once (GEN-R06)."""
    if caches(history.config):
        return None
    holder: dict[int, str] = {}
    for name, blocks in (step.blocks or {}).items():
        for block in blocks:
            if block in holder:
                twice = f"{name} holds block {block} twice"
                return twice if holder[block] == name else f"{holder[block]} and {twice[:-6]}"
            holder[block] = name
    return None


def two_hold_blocks(history: RunHistory, step: Step) -> bool:
    """Two requests hold blocks, without a prefix cache."""
    holding = sum(bool(blocks) for blocks in (step.blocks or {}).values())
    return not caches(history.config) and holding > 1


def more_than_the_pool(history: RunHistory, step: Step) -> str | None:
    """All requests together hold at most num_blocks blocks (GEN-R07)."""
    size, held = history.config["num_blocks"], _held(step)
    if size is None or held <= size:
        return None
    return f"{held} blocks are held, num_blocks is {size}"


def pool_is_taken(history: RunHistory, step: Step) -> bool:
    """Every block of the pool is held."""
    return bool(_held(step) == history.config["num_blocks"])


def _held(step: Step) -> int:
    return len({block for blocks in (step.blocks or {}).values() for block in blocks})


PREDICATES = {
    "GEN-R05": Predicate(too_few_blocks, one_takes_another_block),
    "GEN-R06": Predicate(in_two_hands, two_hold_blocks),
    "GEN-R07": Predicate(more_than_the_pool, pool_is_taken),
}
