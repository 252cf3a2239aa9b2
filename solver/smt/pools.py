"""Pools with any number of free blocks, some of which may have the same content."""

from typing import Any

import z3

from ...model.pool import Content, Pool
from .execution import SymbolicRun
from .terms import boolean

LONGEST = 10**9  # tokens; longer than any prompt in the lemmas
SAME: Content = (("same", LONGEST),)  # the tokens with which every request of a lemma begins
TWINS = (90, 91)  # further free blocks with the content of the first block


def any_pool(
    run: SymbolicRun,
    free: Any,
    block: int,
    *,
    held: int = 0,
    idle: tuple[int, ...] = (),
    shared: tuple[int, ...] = (),
) -> Pool:
    """Return a pool with `free` free blocks. Blocks 1 to `held` are not free.

    The first block of a request that begins with `SAME` can be found in the blocks in `shared`,
    which are held, and in the first of the blocks in `idle`, which are free. Two other free blocks
    may have the same content.
    """
    name: Content = ((SAME[0][0], block),)
    tail = [(number, None if at else name) for at, number in enumerate(idle)]
    if run.answer(z3.And(boolean("others have the same content"), free >= len(idle) + len(TWINS))):
        tail += [(number, name) for number in TWINS]
    found = (*shared, *(number for number, content in tail if content))
    size: Any = run.number(free - len(tail) + held)
    return Pool(size, (), held + 1, tuple(tail), {name: found} if found else {})
