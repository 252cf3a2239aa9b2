"""The plan of a campaign: rounds of items, each chosen by what the rounds before have shown.

Two rounds are under way at once, so that no worker waits for the last item of one: a round is
chosen when the one before the last is complete, and its results are taken in the order of its
items. So the plan does not depend on which worker finishes when.
"""

from collections import Counter, deque
from dataclasses import dataclass, field

from .arms import Arm, arms
from .choosing import Seen, choose
from .items import Item, id_of
from .results import Result
from .settings import Settings

AT_ONCE = 2
SMALLEST, LARGEST = 32, 4096  # items of a round
PART = 2  # a round is one part in so many of what was done before


def round_size(total: int) -> int:
    """Items of the next round, after so many: small while there is much to learn, large enough for
    a thousand workers later on."""
    return min(max(SMALLEST, total // PART), LARGEST)


@dataclass
class _Round:
    """Items in their order, and the results that are there."""

    items: dict[str, Item]
    results: dict[str, Result] = field(default_factory=dict)


class Rounds:
    """The plan as far as it is known.

    Attributes:
        seen: what the complete rounds have shown.
        planned: items chosen up to now.
        finished: those of them that have a result.
    """

    def __init__(self, settings: Settings, most: int | None = None) -> None:
        """`most`: items of the whole campaign, None for no bound."""
        self._settings = settings
        self._most = most
        self._arms = list(arms(settings))
        self._taken: Counter[Arm] = Counter()
        self._open: deque[_Round] = deque()
        self._fresh: list[tuple[str, Item]] = []
        self.seen = Seen()
        self.planned = 0
        self.finished = 0
        for _ in range(AT_ONCE):
            self._choose()

    def fresh(self) -> list[tuple[str, Item]]:
        """The items, with their ids, that were chosen since this was asked last."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def done(self, item_id: str, result: Result) -> None:
        """Note the result of an item of the current round."""
        own = next(one for one in self._open if item_id in one.items)
        own.results[item_id] = result
        self.finished += 1
        while self._open and len(self._open[0].results) == len(self._open[0].items):
            complete = self._open.popleft()
            for name, item in complete.items.items():
                self.seen.add(item, complete.results[name])
            self._choose()  # now, though the round after it may be complete, too

    def _choose(self) -> None:
        """One more round, if there is anything left to do."""
        size = round_size(self.planned)
        if self._most is not None:
            size = min(size, self._most - self.planned)
        items = choose(self._settings, self._arms, self.seen, self._taken, size, self.planned)
        if items:
            self._open.append(_Round({id_of(item): item for item in items}))
            self.planned += len(items)
            self._fresh += self._open[-1].items.items()
