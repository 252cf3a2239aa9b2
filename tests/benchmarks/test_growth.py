"""Runs of every size keep their size, and each point stands beside the first of its curve."""

import pytest

from schedproof.benchmarks import growth
from schedproof.benchmarks.growth import Point, Spent, points, rows, run


@pytest.mark.parametrize("requests", [2, 16])
def test_a_point_is_measured(requests: int) -> None:
    [spent] = run(Point(requests, 40, 64))
    assert spent.seconds > 0
    assert spent.memory > 1


@pytest.mark.parametrize("quick", [True, False])
def test_one_thing_grows_at_a_time(quick: bool) -> None:
    for what, curve in points(quick):
        others = {tuple(v for k, v in one._asdict().items() if k != what) for one in curve}
        sizes = [getattr(one, what) for one in curve]
        assert len(others) == 1
        assert sizes == sorted(set(sizes))


def test_ratios_are_to_the_first_point(monkeypatch) -> None:
    costs = iter([1.0, 3.0] * 3)
    monkeypatch.setattr(growth, "bounded", lambda *_: [Spent(next(costs), 50.0)])
    found = list(rows(quick=True))
    assert [row.ratio for row in found] == [1.0, 1.0, 3.0, 1.0] * 3
    assert {row.series for row in found if not row.is_detail} == {
        "time by requests",
        "time by steps",
        "time by blocks",
    }
