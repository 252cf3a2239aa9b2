"""Prefix hits that end inside a block. With Mamba layers, such a hit ends where a state was left.

Source: release 0.33.0, FullAttentionManager, MambaManager, BlockPool.cache_partial_block.

With a `prefix_match_unit`, the prefill of a prompt also stops at the last multiple of the unit, and
leaves a state there. The blocks of this *tail* can be found from then on. A request that finds such
a block copies it in every group, because the request continues in the middle of the block. The
request that left the state overwrites the state in its next step, so it first makes a copy for
other requests.
"""

from collections.abc import Iterable
from operator import itemgetter

from ..pool import (
    Content,
    Names,
    Pool,
    blocks_for,
    cached_blocks,
    first_name,
    forget,
    give_back,
    nameless,
    prefix,
    take,
    tokens_of,
    touch,
    with_name,
)
from .config import VllmConfig
from .state import Sequence

FULL = 0  # the number of full attention among all groups


def tail_end(config: VllmConfig, sequence: Sequence) -> int:
    """Return the last multiple of the unit in a prompt. The last token never counts, because it is
    always computed."""
    return (sequence.prompt - 1) // config.match_unit * config.match_unit


def groups_of_states(config: VllmConfig) -> list[int]:
    return [number for number, group in enumerate(config.more_groups) if group.kind == "mamba"]


def state_name(sequence: Sequence, number: int, tokens: int) -> Content:
    """Return the name under which the state after the first `tokens` tokens can be found in a
    group."""
    return ((f"group {number}", 0), *prefix(sequence.known, tokens))


def longest(config: VllmConfig, pool: Pool, sequence: Sequence) -> tuple[tuple[int, ...], int]:
    """Return the cached blocks of full attention at the start of a request, and how many tokens
    they hold. The last block may be found by a part of its tokens."""
    size, unit = config.block_size, config.match_unit
    blocks = cached_blocks(pool, sequence.known, sequence.num_tokens, size)
    whole = len(blocks) * size
    most = min(whole + size - unit, (sequence.num_tokens - 1) // unit * unit)
    for tokens in range(most, whole, -unit):
        if holders := pool.cached.get(prefix(sequence.known, tokens)):
            return (*blocks, holders[0]), tokens
    return blocks, whole


def found(config: VllmConfig, pool: Pool, sequence: Sequence) -> tuple[tuple[int, ...], int]:
    """Return the cached blocks of full attention for the longest hit, and the number of its tokens.
    The hit ends where full attention has cached all tokens, and every Mamba group has cached a
    state."""
    blocks, most = longest(config, pool, sequence)
    groups = groups_of_states(config)
    for tokens in range(most, 0, -config.match_unit):
        if all(state_name(sequence, number, tokens) in pool.cached for number in groups):
            return blocks[: blocks_for(tokens, config.block_size)], tokens
    return (), 0


def hit(config: VllmConfig, pool: Pool, sequence: Sequence) -> tuple[tuple[int, ...], Sequence]:
    """Return the whole blocks of a request's hit, and the request. The request's `inside` is the
    number of tokens that the hit covers in the block after the whole ones."""
    blocks, tokens = found(config, pool, sequence)
    whole, inside = divmod(tokens, config.block_size)
    return blocks[:whole], sequence._replace(computed=inside, inside=inside)


def copied_blocks(config: VllmConfig, pool: Pool, sequence: Sequence) -> tuple[int, ...]:
    """Return the blocks that a request with a hit copies: one of full attention, and one of each
    Mamba group."""
    blocks, tokens = found(config, pool, sequence)
    names = [state_name(sequence, number, tokens) for number in groups_of_states(config)]
    return (blocks[-1], *[pool.cached[name][0] for name in names])


def is_being_computed(
    config: VllmConfig,
    pool: Pool,
    sequence: Sequence,
    tokens: int,
    computing: Iterable[Sequence],
) -> bool:
    """Return whether a hit of this many tokens needs something that only this step computes or
    copies: a state (V1-R57), or the block of full attention in which the hit ends (ALL-R11).
    `computing`: the requests that the step already computes."""
    assert pool.names is not None
    names = [state_name(sequence, number, tokens) for number in groups_of_states(config)]
    states = [pool.cached[name][0] for name in names if tokens]
    if any(first_name(pool, block) in pool.names.new for block in states):
        return True
    place, inside = divmod(tokens, config.block_size)
    if not inside:
        return False
    source, *_ = copied_blocks(config, pool, sequence)
    return any(
        source in other.blocks and (other.computed < tokens or copies_into(config, other, place))
        for other in computing
    )


def copies_into(config: VllmConfig, sequence: Sequence, place: int) -> bool:
    """Return whether the block at this place of a request's table is a copy that is made before the
    request computes in this step."""
    whole, inside = divmod(sequence.prefix_hit, config.block_size)
    return sequence.computed == sequence.prefix_hit and inside > 0 and whole == place


def start(
    config: VllmConfig, pool: Pool, sequence: Sequence
) -> tuple[Sequence, Pool, tuple[int, ...]]:
    """Return the request and the pool after the request has taken the blocks that it will copy.
    Also return these blocks. `kv_cache.hold` takes the blocks for the copies."""
    blocks = copied_blocks(config, pool, sequence)
    tokens = sequence.computed + sequence.inside
    started = sequence._replace(computed=tokens, prefix_hit=tokens, inside=0)
    return started, touch(pool, blocks), blocks


def copying(config: VllmConfig, pool: Pool, sequence: Sequence, blocks: tuple[int, ...]) -> Pool:
    """Return the pool after a request has taken the blocks into which it copies these `blocks`."""
    place, groups = sequence.prefix_hit // config.block_size, groups_of_states(config)
    copies = (sequence.blocks[place], *[sequence.tables[number][place] for number in groups])
    numbers = (FULL, *[number + 1 for number in groups])
    return pinned(pool, *zip(numbers, blocks, copies, strict=True))


def pinned(pool: Pool, *copied: tuple[int, int, int]) -> Pool:
    assert pool.names is not None
    return pool._replace(names=pool.names._replace(copied=(*pool.names.copied, *copied)))


def keep_tail(config: VllmConfig, pool: Pool, sequence: Sequence, number: int) -> Pool:
    """Return the pool after a request that left a state inside a block has taken another block for
    a copy. From now on, the copy is found instead."""
    source = sequence.tables[number][tail_end(config, sequence) // config.block_size]
    (copy,), pool = take(pool, 1)
    assert pool.names is not None
    moved = pool.names.of.get(source, ())
    pool = nameless(pool, [source])
    for content in moved:
        pool = with_name(pool, copy, content)
    return pinned(with_new(pool, moved[:1]), (number + 1, source, copy))


def with_new(pool: Pool, names: tuple[Content, ...]) -> Pool:
    """Return the pool in which states with these names cannot be read before the next step."""
    assert pool.names is not None
    return pool._replace(names=pool.names._replace(new=pool.names.new.union(names)))


def name_tails(
    config: VllmConfig, pool: Pool, sequence: Sequence, covered: int
) -> tuple[Sequence, Pool]:
    """If the first `covered` tokens of the request include the end of the prompt's last unit, name
    the blocks in which this unit ends, so that hits can end there. Return the request and the pool.
    """
    end, size = tail_end(config, sequence), config.block_size
    if not 0 < end <= covered:
        return sequence, pool
    if end % size:
        pool = with_name(pool, sequence.blocks[end // size], prefix(sequence.known, end))
    if covered != end:
        return sequence, pool
    tails = []
    for number in groups_of_states(config):
        block = sequence.tables[number][blocks_for(end, size) - 1]
        name = state_name(sequence, number, end)
        if block and first_name(pool, block) != name:
            pool = with_new(with_name(pool, block, name), (name,))
            tails += [number] if end % size else []
    return sequence._replace(tails=tuple(tails)), pool


def begin(pool: Pool) -> Pool:
    """Return the pool as it is before a decision: by then, earlier steps have computed all
    states."""
    return pool._replace(names=(pool.names or Names())._replace(new=frozenset()))


def copies_made(pool: Pool, holders: tuple[Sequence, ...]) -> Pool:
    """Return the pool after a decision: copies are made before anything else is computed, so the
    copied blocks may be given back now."""
    if pool.names is None or not pool.names.copied:
        return pool
    held = {
        block for other in holders for table in (other.blocks, *other.tables) for block in table
    }
    copied = sorted(pool.names.copied, key=itemgetter(0))
    blocks = [block for _, *pair in copied for block in pair]
    last = [block for n, block in enumerate(blocks) if block not in blocks[n + 1 :]]
    pool = pool._replace(names=pool.names._replace(copied=()))
    return give_back(pool, [(block, None) for block in last if block not in held], True)


def in_copies(pool: Pool) -> set[int]:
    copied = pool.names.copied if pool.names is not None else ()
    return {block for _, *pair in copied for block in pair}


def forget_uncomputed(pool: Pool, sequence: Sequence) -> Pool:
    """Return the pool after dropping, for each block of a request, the names that include tokens
    which the request has not computed."""
    if pool.names is None:
        return pool
    blocks = {block for table in (sequence.blocks, *sequence.tables) for block in table}
    for block in blocks & pool.names.of.keys():
        for name in pool.names.of[block]:
            if tokens_of(name) > sequence.computed:
                pool = forget(pool, name, block)
    return pool
