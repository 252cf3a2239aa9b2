"""Records: the states of a scheduler and the requests in it."""

from typing import Any, Self

import msgspec
from msgspec.structs import replace


class Record(msgspec.Struct, frozen=True, gc=False):
    """Fields that never change; a changed record is another one.

    Used as a named tuple is, but several times as quick to make, which every step does for every
    request. The garbage collector leaves it alone: it holds nothing that could hold itself.
    """

    def _replace(self, **changes: Any) -> Self:
        """The record with other values in some fields."""
        return replace(self, **changes)
