"""Faults in what blocks contain, for every system: the allocator is the same for all."""

from typing import Any

from ...model import allocator
from .mutant import Plant, replaced


def hit_in_reverse(original: Any) -> Any:
    """The cached blocks of a request are its own, in the wrong order."""

    def start(pool: Any, one: Any, hit: tuple[int, ...], block_size: int) -> Any:
        return original(pool, one, hit[::-1], block_size)

    return start


HIT_IN_REVERSE: Plant = replaced(allocator, "start", hit_in_reverse)


def nothing_found(original: Any) -> Any:
    """There is no prefix cache, whatever is configured."""
    return lambda *args: ()
