"""What to run next, by what has been seen: a pure function of the items that are finished.

Each kind of work gets its share of the items, by a weight: what may show a witness that no request
has seen weighs more, and what came near to a limit weighs the more the nearer it came.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from .arms import AT_LIMIT, Arm, item_of
from .items import Item, Sample, Shrinking
from .results import NearMiss, Result
from .running import rules_of
from .settings import Pair, Settings


@dataclass
class Seen:
    """What the finished items have shown.

    Attributes:
        stakes: rules whose witness was seen, by system and revision.
        near: the nearest miss of each limit, by system, revision and configuration key.
        shapes: failures that are known, by system and revision.
    """

    stakes: dict[Pair, set[str]] = field(default_factory=dict)
    near: dict[tuple[str, str, str], NearMiss] = field(default_factory=dict)
    shapes: dict[Pair, set[str]] = field(default_factory=dict)

    def add(self, item: Item, result: Result) -> None:
        """One more item is finished. The order matters: of two that came as near, the first
        counts."""
        assert not isinstance(item, Shrinking)
        pair = (item.system, item.revision)
        self.stakes.setdefault(pair, set()).update(result.exercised)
        self.shapes.setdefault(pair, set()).update(one.shape for one in result.failures)
        pinned = isinstance(item, Sample) and item.config is not None
        for key, miss in result.near.items():
            kept = self.near.get((*pair, key))
            # A limit that was moved to what a run uses is near by itself.
            if kept is None or (miss.left < kept.left and not pinned):
                self.near[(*pair, key)] = miss

    def near_to(self, arm: Arm) -> NearMiss | None:
        """The nearest miss of the limit that the arm is about."""
        key = (arm.system, arm.revision, arm.part.removeprefix(AT_LIMIT))
        return self.near.get(key) if arm.part.startswith(AT_LIMIT) else None

    def unseen(self, arm: Arm, settings: Settings) -> int:
        """Rules of the arm's revision whose witness was not seen yet."""
        rules = rules_of(arm.system, arm.revision, settings.rules, settings.target)
        return len({rule.id for rule in rules} - self.stakes.get((arm.system, arm.revision), set()))


def weight(arm: Arm, seen: Seen, settings: Settings) -> float:
    """How much of the work is the arm's, beside the others."""
    if arm.engine == "z3":
        return 1.0
    if (miss := seen.near_to(arm)) is not None:
        return 1.0 + 2.0 / (1 + miss.left)
    return 2.0 + seen.unseen(arm, settings)


def choose(
    settings: Settings, kinds: Sequence[Arm], seen: Seen, taken: Counter[Arm], size: int, total: int
) -> list[Item]:
    """The next `size` items, fewer where there are no more; counts them in `taken`.

    An arm that was taken n times comes after one of the same weight that was taken less often.
    `total`: items before these; each gets a seed of its own.
    """
    weights = {arm: weight(arm, seen, settings) for arm in kinds}
    queue = [((taken[arm] + 1) / weights[arm], number) for number, arm in enumerate(kinds)]
    heapify(queue)
    chosen: list[Item] = []
    while queue and len(chosen) < size:
        _, number = heappop(queue)
        arm = kinds[number]
        known = tuple(sorted(seen.shapes.get((arm.system, arm.revision), ())))
        seed = settings.seed * 2**32 + total + len(chosen)
        item = item_of(settings, arm, taken[arm], seed, known, seen.near_to(arm))
        if item is not None:
            chosen.append(item)
            taken[arm] += 1
            heappush(queue, ((taken[arm] + 1) / weights[arm], number))
    return chosen
