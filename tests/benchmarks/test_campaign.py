"""A campaign's workers are given the same items, and a lost item is no rate."""

import pytest

from schedproof.benchmarks import campaign
from schedproof.benchmarks.figure import NotMeasured
from schedproof.gate.campaign.executors import Finished, Ran
from schedproof.gate.campaign.results import Result


class Pool:
    """Answers at once, with these."""

    def __init__(self, result: Result | None) -> None:
        self.result = result
        self.asked: list[object] = []

    def submit(self, item) -> None:
        self.asked.append(item)

    def finished(self, seconds: float) -> list[Finished]:
        ran = None if self.result is None else Ran(self.result, 0.1, "here", "code")
        return [Finished(item, ran) for item in self.asked]


def test_all_items_are_waited_for() -> None:
    pool, asked = Pool(Result()), campaign.items(3, 5)
    assert campaign.run(pool, asked) >= 0
    assert pool.asked == asked
    assert len({item.seed for item in asked}) == 3


@pytest.mark.parametrize(
    ("result", "why"),
    [(None, "its worker died"), (Result(failed="no memory", complete=False), "no memory")],
)
def test_an_item_without_a_result_is_said(result: Result | None, why: str) -> None:
    with pytest.raises(NotMeasured, match=why) as raised:
        campaign.run(Pool(result), campaign.items(1, 5))
    assert not raised.value.excused
