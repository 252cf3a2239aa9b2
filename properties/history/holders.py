"""Count how often the block tables of requests list each block."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

Tables = Mapping[str, Sequence[int]]


class Holders:
    """Counts how often each block is listed, and updates the counts only for tables that changed.

    Together, the tables may list many thousands of blocks, but few of these change in a step. The
    results depend only on the tables, so copies of a history may share one object.
    """

    def __init__(self) -> None:
        self._tables: dict[str, Sequence[int]] = {}
        self._times: dict[int, int] = {}
        self._shared: set[int] = set()

    def count(self, tables: Tables) -> int:
        self._follow(tables)
        return len(self._times)

    def shared(self, tables: Tables) -> AbstractSet[int]:
        """Return the blocks that are listed more than once. The result is valid until the next
        call."""
        self._follow(tables)
        return self._shared

    def _follow(self, tables: Tables) -> None:
        known = self._tables
        for name in known.keys() - tables.keys():
            self._leave(known.pop(name))
        for name, table in tables.items():
            before = known.get(name, ())
            if table is before:
                continue
            kept = len(before)
            if table[:kept] != before:
                self._leave(before)
                kept = 0
            self._enter(table[kept:])
            known[name] = table

    def _enter(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            times = self._times[number] = self._times.get(number, 0) + 1
            if times == 2:
                self._shared.add(number)

    def _leave(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._times[number] -= 1
            if self._times[number] == 1:
                self._shared.discard(number)
            elif not self._times[number]:
                del self._times[number]
