"""Lanes and the reference model run the same loads to their end."""

import pytest

from schedproof.tools.benchmarks import vectorized
from schedproof.tools.benchmarks.figure import NotMeasured


def test_without_numpy_the_figure_says_what_it_needs(monkeypatch) -> None:
    monkeypatch.setattr(vectorized, "find_spec", lambda name: None)
    with pytest.raises(NotMeasured, match=r"needs schedproof\[fast\]") as why:
        next(vectorized.rows(quick=True))
    assert why.value.excused


def test_a_lane_takes_as_many_steps_as_the_model() -> None:
    pytest.importorskip("numpy")
    from schedproof.model.spyre.lanes import asked_by, read_rules, run

    config, loads = vectorized.config_of(3), vectorized.loads_of(3, 2)
    rules = read_rules(vectorized.REVISION, config)
    reported = run(rules, asked_by(rules, loads))
    assert reported.steps.sum() == vectorized.model_steps(config, loads)


def test_lanes_have_a_row_beside_the_model() -> None:
    pytest.importorskip("numpy")
    found = list(vectorized.rates(2, 2, 1))
    assert [row.what for row in found] == ["reference model: 2 requests", "lanes: 2 requests"]
    assert found[0].ratio == 1.0
    assert all(row.value for row in found)
