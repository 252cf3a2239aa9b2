"""Lanes and the reference model run the same loads to their end."""

import pytest

from schedproof.gate.bench import lanes
from schedproof.gate.bench.figure import NotMeasured


def test_without_numpy_the_figure_says_what_it_needs(monkeypatch) -> None:
    monkeypatch.setattr(lanes, "find_spec", lambda name: None)
    with pytest.raises(NotMeasured, match=r"needs schedproof\[fast\]") as why:
        next(lanes.rows(quick=True))
    assert why.value.excused


def test_a_lane_takes_as_many_steps_as_the_model() -> None:
    pytest.importorskip("numpy")
    from schedproof.model.lanes.lanes import asked_by, read_rules, run

    config, loads = lanes.config_of(3), lanes.loads_of(3, 2)
    rules = read_rules(lanes.REVISION, config)
    told = run(rules, asked_by(rules, loads), numba=False)
    assert told.steps.sum() == lanes.model_steps(config, loads)


def test_every_engine_has_a_row_beside_the_model() -> None:
    pytest.importorskip("numpy")
    found = list(lanes.rates(2, 2, [False], 1))
    assert [row.what for row in found] == [
        "reference model: 2 requests",
        "lanes, NumPy: 2 requests",
        "lanes, NumPy, strides: 2 requests",
    ]
    assert found[0].ratio == 1.0
    assert all(row.value for row in found)
