"""The loop of a campaign: what is planned is handed out, what comes back is written down."""

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ...properties.shrinking.shrink import size
from .executors import Executor, Finished
from .items import Item, Shrinking, canonical, id_of
from .ledger import Done, Ledger
from .results import Failure, Result
from .rounds import Rounds
from .settings import Settings

DEATHS = 5  # of its worker, after which an item is given up
ALONE = 2  # and after which it runs with no other beside it, so that none shares the blame
PAUSE = 0.5  # seconds between two looks at the clock


@dataclass
class Campaign:
    """A campaign that runs.

    Attributes:
        most: items of the whole campaign, None for no bound.
        ends: the moment, by time.monotonic, after which nothing more is handed out.
        tell: receives a line per finding; `watch`: called after each item with the progress.
    """

    settings: Settings
    ledger: Ledger
    executor: Executor
    most: int | None
    ends: float
    tell: Callable[[str], None]
    watch: Callable[["Campaign"], None]
    rounds: Rounds = field(init=False)
    ran: int = 0
    shapes: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.rounds = Rounds(self.settings, self.most)

    def run(self) -> None:
        """Run items until the time is over, or there are no more; then shrink what was found.

        Raises:
            ClusterError: the cluster is gone; what was written stays.
        """
        self.ledger.begin(self.settings)
        self._hand_out(self._planned(), self._finish)
        self._shrink()

    def _planned(self) -> "deque[Item]":
        """The items of the next rounds that have no result yet."""
        waiting: deque[Item] = deque()
        while not waiting:
            fresh = self.rounds.fresh()
            if not fresh:
                break
            for name, item in fresh:
                result = self.ledger.result(name)
                if result is None:
                    waiting.append(item)
                else:
                    self._known(result)
                    self.rounds.done(name, result)
        return waiting

    def _finish(self, done: list[Done]) -> "deque[Item]":
        """Write results down, and see what may be run now."""
        self.ledger.put(done)
        for one in done:
            for failure in self._known(one.result):
                where = f"{failure.scenario.system} {failure.scenario.revision}"
                self.tell(f"found: {failure.rule} on {where}: {failure.message}")
            if one.result.failed:
                self.tell(f"item {id_of(one.item)} failed: {one.result.failed}")
            self.rounds.done(id_of(one.item), one.result)
        self.ran += len(done)
        self.watch(self)
        return self._planned()

    def _known(self, result: Result) -> list[Failure]:
        """The failures of a result that have a new shape."""
        new = []
        for failure in result.failures:
            about = f"{failure.scenario.system} {failure.scenario.revision} {failure.shape}"
            if about not in self.shapes:
                self.shapes.add(about)
                new.append(failure)
        return new

    def _hand_out(
        self, waiting: "deque[Item]", finish: Callable[[list[Done]], "deque[Item]"]
    ) -> None:
        """Run what waits, and what `finish` adds; an item whose worker is lost runs again."""
        out: set[str] = set()
        deaths: Counter[str] = Counter()
        while waiting or out:
            while waiting and time.monotonic() < self.ends and self._room(waiting[0], out, deaths):
                item = waiting.popleft()
                out.add(id_of(item))
                self.executor.submit(item)
            if not out:
                return
            done: list[Done] = []
            for one in self.executor.finished(PAUSE):
                name = id_of(one.item)
                out.discard(name)
                ended = self._ended(one, deaths)
                if ended is None:
                    waiting.appendleft(one.item)
                else:
                    done.append(ended)
            if done:
                waiting += finish(done)

    def _room(self, item: Item, out: set[str], deaths: "Counter[str]") -> bool:
        """The item may be handed out now."""
        if deaths[id_of(item)] >= ALONE or any(deaths[name] >= ALONE for name in out):
            return not out
        return len(out) < self.executor.width

    def _ended(self, one: Finished, deaths: "Counter[str]") -> Done | None:
        if one.ran is not None:
            return Done(one.item, one.ran.result, one.ran.seconds, one.ran.worker)
        deaths[id_of(one.item)] += 1
        if deaths[id_of(one.item)] < DEATHS:
            return None
        why = f"its worker died {DEATHS} times"
        return Done(one.item, Result(failed=why, complete=False), 0.0, "")

    def _shrink(self) -> None:
        """Replay and shrink the smallest failure of each shape, unless that was done before."""
        before = self.ledger.findings()
        asked = questions(self.ledger)
        findings = {question: before.get(question) for question in asked}
        # Items of other ledgers, merged into this one, do not decide what is run here.
        ours = ("model", self.settings.target)
        todo = {
            question: one
            for question, one in asked.items()
            if question not in before and one.target in ours
        }

        def keep() -> None:
            done_with = ((key, found) for key, found in findings.items() if key not in todo)
            self.ledger.keep_findings(done_with)

        def finish(done: list[Done]) -> "deque[Item]":
            for one in done:
                if not one.result.failed:
                    findings[canonical(one.item)] = next(iter(one.result.failures), None)
                    todo.pop(canonical(one.item))
            keep()
            return deque()

        self.ends = float("inf")  # it takes seconds, and what was found is worth them
        if todo:
            self.tell(f"shrinking {len(todo)} finding{'s' * (len(todo) != 1)}")
            self._hand_out(deque(todo.values()), finish)
        keep()


def questions(ledger: Ledger) -> dict[bytes, Shrinking]:
    """What is to be shrunk: of each target, revision and shape the smallest failure."""
    smallest: dict[tuple[str, ...], tuple[tuple[int, int], bytes, Shrinking]] = {}
    for item, failure in ledger.failures():
        assert not isinstance(item, Shrinking)
        target = getattr(item, "target", "model")
        own = Shrinking(failure=failure, target=target, rules=getattr(item, "rules", ()))
        kind = (target, item.system, item.revision, failure.shape)
        entry = (size(failure.scenario), canonical(own), own)
        if kind not in smallest or entry[:2] < smallest[kind][:2]:
            smallest[kind] = entry
    return {text: own for _, text, own in smallest.values()}
