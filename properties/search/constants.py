"""Hypothesis without the numbers that it reads in source code.

It draws now and then a constant of the modules that happen to be loaded, and that are no installed
package: then what a seed gives depends on what a process did before, and on how schedproof was
installed. A seed must give the same everywhere.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis.internal.conjecture import providers

READER = "_get_local_constants"  # of versions that have it
CACHE = "CONSTANTS_CACHE"


@contextmanager
def without_local_constants() -> Iterator[None]:
    """Within, no module's constants are drawn."""
    inside: Any = providers
    if not hasattr(inside, READER):
        yield
        return
    nothing, reader = inside.Constants(), getattr(inside, READER)
    setattr(inside, READER, lambda: nothing)
    getattr(inside, CACHE).cache.clear()  # of what was read, by the bounds of a draw
    try:
        yield
    finally:
        setattr(inside, READER, reader)
        getattr(inside, CACHE).cache.clear()
