"""Executors that run nothing: results follow from the item alone, in whatever order they come."""

import random
import time

from schedproof.gate.campaign.items import Failure, Item, Result, Shrinking, canonical, digest_of
from schedproof.gate.processes.executors import TaskResult
from schedproof.model.scenario import Request, Scenario


class Killed(BaseException):
    """The campaign's process is killed."""


def fake_result(item: Item) -> Result:
    """What follows from the item: some rules exercised, now and then a failure."""
    if isinstance(item, Shrinking):
        return Result(scenarios=1, failures=(item.failure,))
    from schedproof.gate.campaign.running import rules_of

    chance = random.Random(canonical(item))
    kind = item.kind
    rules = [rule.id for rule in rules_of(kind.system, kind.revision)]
    failures = []
    if chance.random() < 0.2:
        length = chance.randrange(1, 9)
        request = Request(id="r0", arrival=0, prompt=(("r0", length),), max_tokens=length)
        scenario = Scenario(system=kind.system, revision=kind.revision, requests=(request,))
        rule = chance.choice(rules)
        failures.append(
            Failure(rule=rule, shape=f"{rule}: #", message=f"{length}", scenario=scenario)
        )
    return Result(
        scenarios=60,
        steps=chance.randrange(9_000),
        exercised=dict.fromkeys(chance.sample(rules, 3), 1),
        failures=tuple(failures),
    )


def ran(result: Result, worker: str = "") -> TaskResult:
    return TaskResult((result, 1.0), worker, "")


def work(item: Item) -> tuple[Result, float]:
    """Stand in for a search in a worker process: a quarter of a second, and nothing broke.

    Hypothesis is not imported, which would take a worker seconds.
    """
    time.sleep(0.25)
    return Result(scenarios=1, steps=len(canonical(item))), 0.1


def main() -> None:
    """Be the command line of schedproof with `work` for all searches."""
    from schedproof.gate.campaign import running
    from schedproof.gate.cli import app

    from . import fake

    running.work = fake.work  # workers import it by this name
    app.main()


class Erratic:
    """Finishes items in an order of its own, loses some, and may kill the campaign.

    `kill_after`: items, after which it raises Killed.
    """

    def __init__(self, seed: int, losing: float = 0.0, kill_after: int | None = None) -> None:
        self._chance = random.Random(seed)
        self._losing = losing
        self._left = kill_after
        self._out: list[tuple[int, Item]] = []
        self.ran: list[str] = []
        self.width = 1 + self._chance.randrange(40)

    def submit(self, number: int, task: Item) -> None:
        self._out.append((number, task))

    def finished(self, seconds: float) -> list[tuple[int, TaskResult | None]]:
        ended: list[tuple[int, TaskResult | None]] = []
        for _ in range(self._chance.randrange(1, len(self._out) + 1)):
            if self._left == 0:
                raise Killed
            number, item = self._out.pop(self._chance.randrange(len(self._out)))
            lost = self._chance.random() < self._losing
            ended.append((number, None if lost else self.result(item)))
            if not lost:
                self.ran.append(digest_of(item))
            if self._left is not None:
                self._left -= 1
        return ended

    def result(self, item: Item) -> TaskResult:
        return ran(fake_result(item), f"worker {self.width}")
