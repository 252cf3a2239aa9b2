"""KV-cache blocks: which are free, in what order they are handed out, and what full blocks contain.

A block is identified by its number; block 0 is the padding block. A free block keeps its old
content, and can be found by that content until it is handed out again.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from .scenario import Segment

Content = tuple[Segment, ...]
NOTHING_CACHED: Mapping[Content, tuple[int, ...]] = {}


class Names(NamedTuple):
    """The names of blocks, for a configuration in which a hit may end inside a block. A block may
    then have several names.

    `of` maps each block that can be found to its names. `new` are names of states that the current
    step has yet to compute. `copied` lists the copies that the step makes. Each copy is given by
    the number of the group, the block, and the block that becomes its copy. Both blocks stay in use
    until the decision is made.
    """

    of: Mapping[int, tuple[Content, ...]] = {}
    new: frozenset[Content] = frozenset()
    copied: tuple[tuple[int, int, int], ...] = ()


class Pool(NamedTuple):
    """The free blocks in the order in which they are handed out: `head`, then those never used,
    then `tail`.

    Blocks never used have the numbers from `fresh` to `size`, or from `fresh` on if `size` is None.
    `tail` pairs each block with its content, or with None if the block cannot be found. `cached`
    maps a content to the blocks that hold it, free or in use, in the order in which they were
    filled. `names` is None if each block has only one name. `beside` contains the pools of further
    KV groups, if each group has its own pool and numbers its blocks from 1.

    Every block is in the pool or held by a request, so none is lost (ALL-R09): blocks leave the
    pool only by `take` and `touch`, and return only by `give_back`.
    """

    size: int | None = None
    head: tuple[int, ...] = ()
    fresh: int = 1
    tail: tuple[tuple[int, Content | None], ...] = ()
    cached: Mapping[Content, tuple[int, ...]] = NOTHING_CACHED
    names: Names | None = None
    beside: tuple["Pool", ...] = ()


def free_blocks(pool: Pool) -> int | None:
    """Return the number of blocks that no request has, or None for an unbounded pool."""
    if pool.size is None:
        return None
    return len(pool.head) + pool.size + 1 - pool.fresh + len(pool.tail)


def blocks_for(tokens: int, block_size: int) -> int:
    """Return the number of blocks that hold this many tokens. Both arguments may be arrays or
    symbolic values."""
    return (tokens - 1) // block_size + 1


def fits(pool: Pool, blocks: int) -> bool:
    free = free_blocks(pool)
    return free is None or blocks <= free


def unheld(pool: Pool, hit: tuple[int, ...]) -> int:
    """Return how many of these cached blocks no request holds."""
    if not hit:
        return 0
    free = {block for block, _ in pool.tail}
    return sum(block in free for block in hit)


def take(pool: Pool, count: int) -> tuple[tuple[int, ...], Pool]:
    """Take `count` blocks. Return them, and the pool without them. Their old content can no longer
    be hit, because it will be overwritten (ALL-R11)."""
    if count <= 0:
        return (), pool
    size, head, fresh, tail, cached, names, beside = pool
    taken = head[:count]
    never_used = count - len(taken)
    if size is not None:
        never_used = min(never_used, size + 1 - fresh)
    taken += tuple(range(fresh, fresh + never_used))
    evicted = tail[: count - len(taken)]
    taken += tuple([block for block, _ in evicted])
    if names is not None:
        pool = nameless(pool, [block for block, _ in evicted])
        cached, names = pool.cached, pool.names
    fresh, tail = fresh + never_used, tail[len(evicted) :]
    cached = _without(cached, evicted)
    return taken, Pool(size, head[count:], fresh, tail, cached, names, beside)


def pool_of_group(pool: Pool, number: int) -> Pool:
    """Return the pool of a KV group; `number` counts the groups after the first, from 0."""
    return pool.beside[number] if pool.beside else pool


def with_pool_of_group(pool: Pool, number: int, own: Pool) -> Pool:
    """Return the pool, with `own` as the pool of a KV group."""
    if not pool.beside:
        return own
    return pool._replace(beside=(*pool.beside[:number], own, *pool.beside[number + 1 :]))


def touch(pool: Pool, blocks: Iterable[int]) -> Pool:
    """Return the pool after these hit blocks have been taken."""
    reused = set(blocks)
    if not reused:
        return pool
    tail = tuple([entry for entry in pool.tail if entry[0] not in reused])
    return pool._replace(tail=tail)


def give_back(
    pool: Pool, blocks: Iterable[tuple[int, Content | None]], nameless_first: bool
) -> Pool:
    """Return the pool after `blocks` have been given back. The first of them is handed out first.

    With `nameless_first`, blocks that cannot be found by their content are handed out before all
    others.
    """
    given = tuple(blocks)
    if pool.names is not None:
        given = tuple([(block, first_name(pool, block)) for block, _ in given])
    if not nameless_first:
        return pool if pool.size is None else pool._replace(tail=pool.tail + given)
    nameless = tuple([block for block, content in given if content is None])
    if pool.size is None:  # the tail of an unbounded pool is never handed out
        return pool._replace(head=nameless + pool.head)
    named = tuple([entry for entry in given if entry[1] is not None])
    return pool._replace(head=nameless + pool.head, tail=pool.tail + named)


def publish(pool: Pool, filled: Collection[tuple[int, Content]]) -> Pool:
    """Return the pool in which each block of `filled` can be found by its content."""
    if pool.names is not None:  # a full block is no longer found by a part of its content
        pool = nameless(pool, [block for block, _ in filled])
    cached = dict(pool.cached)
    for block, content in filled:
        cached[content] = (*cached.get(content, ()), block)
    pool = pool._replace(cached=cached)
    if pool.names is None:
        return pool
    of = {**pool.names.of, **{block: (content,) for block, content in filled}}
    return pool._replace(names=pool.names._replace(of=of))


def first_name(pool: Pool, block: int) -> Content | None:
    return pool.names.of.get(block, (None,))[0] if pool.names else None


def with_name(pool: Pool, block: int, content: Content) -> Pool:
    """Return the pool, with a further name for a block. If the block's first name has fewer tokens
    than the new one, its earlier names are dropped."""
    if pool.names is None or content in pool.names.of.get(block, ()):
        return pool
    first = first_name(pool, block)
    if first is not None and tokens_of(first) < tokens_of(content):
        pool = nameless(pool, [block])
    assert pool.names is not None
    of = {**pool.names.of, block: (*pool.names.of.get(block, ()), content)}
    cached = {**pool.cached, content: (*pool.cached.get(content, ()), block)}
    return pool._replace(cached=cached, names=pool.names._replace(of=of))


def nameless(pool: Pool, blocks: Iterable[int]) -> Pool:
    """Return the pool in which these blocks can no longer be found by any of their names."""
    if pool.names is None:
        return pool
    of = dict(pool.names.of)
    named = [(block, content) for block in blocks for content in of.pop(block, ())]
    return pool._replace(cached=_without(pool.cached, named), names=pool.names._replace(of=of))


def tokens_of(content: Content) -> int:
    return sum(length for _, length in content)


def forget(pool: Pool, content: Content, block: int) -> Pool:
    if pool.names is not None and content in pool.names.of.get(block, ()):
        kept = tuple([name for name in pool.names.of[block] if name != content])
        of = {**pool.names.of, block: kept} if kept else {**pool.names.of}
        if not kept:
            del of[block]
        pool = pool._replace(names=pool.names._replace(of=of))
    return pool._replace(cached=_without(pool.cached, ((block, content),)))


def _without(
    cached: Mapping[Content, tuple[int, ...]], blocks: Iterable[tuple[int, Content | None]]
) -> Mapping[Content, tuple[int, ...]]:
    """Return the mapping without these blocks. The mapping is copied once, not once for each
    block."""
    named = [(block, content) for block, content in blocks if content is not None]
    if not named:
        return cached
    kept = dict(cached)
    for block, content in named:
        holders = tuple([other for other in kept.pop(content, ()) if other != block])
        if holders:
            kept[content] = holders
    return kept


def prefix(content: Content, tokens: int) -> Content:
    """Return the first `tokens` tokens of `content`.

    The content of a block is named by the whole prefix that ends with the block, as in a chain of
    hashes. Identical prefixes have the same name, so a request finds only blocks with its own
    tokens (ALL-R11).
    """
    cut = []
    for stream, length in content:
        if tokens <= length:
            if tokens > 0:
                cut.append((stream, tokens))
            break
        cut.append((stream, length))
        tokens -= length
    return tuple(cut)


def cached_blocks(
    pool: Pool, content: Content, tokens: int, block_size: int, beyond: int = 0
) -> tuple[int, ...]:
    """Return the numbers of the longest run of cached full blocks at the start of `tokens` tokens.

    The last token is never taken from the cache, because computing it yields the next token.
    `beyond` is the number of tokens after a block that belong to the block's name.
    """
    hit: list[int] = []
    for number in range(1, (tokens - 1) // block_size + 1):
        holders = pool.cached.get(prefix(content, number * block_size + beyond))
        if not holders:
            break
        hit.append(holders[0])
    return tuple(hit)
