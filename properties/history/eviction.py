"""Requests that have ended: how long a run remembers them, where it forgets.

A rule asks for such a request in two cases: the target still lists blocks of it, or another request
may find its tokens in the prefix cache. The shadow cache knows when the last block that holds some
of them is written over.
"""

from collections.abc import Container
from dataclasses import dataclass, field

from .shadow_cache import ShadowCache


@dataclass
class Ended:
    """Requests that have ended and are still remembered.

    Attributes:
        listed: the target may still list blocks of them.
        cached: blocks may still hold tokens of them.
    """

    listed: list[str] = field(default_factory=list)
    cached: set[str] = field(default_factory=set)

    def add(self, name: str) -> None:
        """A request has ended."""
        self.listed.append(name)

    def not_needed(self, holding: Container[str], shadow: ShadowCache | None) -> list[str]:
        """The requests to forget after a step, in which these requests hold blocks. Without a
        shadow cache no request is needed that holds none."""
        unlisted = [name for name in self.listed if name not in holding]
        if unlisted:
            self.listed = [name for name in self.listed if name in holding]
        if shadow is None:
            return unlisted
        gone = [name for name in unlisted if not shadow.knows(name)]
        self.cached.update(unlisted)
        gone += [name for name in shadow.lost if name in self.cached]
        shadow.lost.clear()
        self.cached.difference_update(gone)
        return gone
