"""Executors that run nothing: results follow from the item alone, in whatever order they come."""

import random
from typing import Any

from schedproof.gate.campaign.executors import Finished, Ran
from schedproof.gate.campaign.items import Item, Sample, Shrinking, canonical, id_of
from schedproof.gate.campaign.results import Failure, NearMiss, Result
from schedproof.gate.campaign.running import rules_of
from schedproof.model.scenario import Request, Scenario


class Killed(BaseException):
    """The campaign's process is killed."""


def fake_result(item: Item) -> Result:
    """What follows from the item: some rules exercised, a near miss, now and then a failure."""
    if isinstance(item, Shrinking):
        return Result(scenarios=1, failures=(item.failure,))
    chance = random.Random(canonical(item))
    rules = [rule.id for rule in rules_of(item.system, item.revision)]
    near: dict[str, Any] = {}
    if isinstance(item, Sample):
        limit = chance.randrange(10, 90)
        near["max_num_seqs"] = NearMiss(left=chance.randrange(0, 9), config={"max_num_seqs": limit})
    failures = []
    if chance.random() < 0.2:
        length = chance.randrange(1, 9)
        request = Request(id="r0", arrival=0, prompt=(("r0", length),), max_tokens=length)
        scenario = Scenario(system=item.system, revision=item.revision, requests=(request,))
        rule = chance.choice(rules)
        failures.append(
            Failure(rule=rule, shape=f"{rule}: #", message=f"{length}", scenario=scenario)
        )
    return Result(
        scenarios=60,
        steps=chance.randrange(9_000),
        exercised=dict.fromkeys(chance.sample(rules, 3), 1),
        near=near,
        failures=tuple(failures),
    )


class Erratic:
    """Finishes items in an order of its own, loses some, and may kill the campaign.

    `kill_after`: items, after which it raises Killed.
    """

    def __init__(self, seed: int, losing: float = 0.0, kill_after: int | None = None) -> None:
        self._chance = random.Random(seed)
        self._losing = losing
        self._left = kill_after
        self._out: list[Item] = []
        self.ran: list[str] = []
        self.width = 1 + self._chance.randrange(40)

    def submit(self, item: Item) -> None:
        self._out.append(item)

    def finished(self, seconds: float) -> list[Finished]:
        found = []
        for _ in range(self._chance.randrange(1, len(self._out) + 1)):
            if self._left == 0:
                raise Killed
            item = self._out.pop(self._chance.randrange(len(self._out)))
            lost = self._chance.random() < self._losing
            ran = None if lost else Ran(fake_result(item), 1.0, f"worker {self.width}", "")
            found.append(Finished(item, ran))
            if not lost:
                self.ran.append(id_of(item))
            if self._left is not None:
                self._left -= 1
        return found
