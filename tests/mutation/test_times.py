"""The table of times to find."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def times() -> ModuleType:
    spec = importlib.util.spec_from_file_location("times", Path(__file__).with_name("times.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_was_not_found_is_later_than_whatever_was(times: ModuleType) -> None:
    trials = [{"gate": times.Took(True, second, 10 * second)} for second in range(1, 20)]
    trials.append({"gate": times.Took(False, 0.5, 7)})
    [row] = times.rows("all", trials)
    assert row == "| all | gate | 20 | 19 (95.0%) | 10.000 s | 19.000 s | 105 |"
    [row] = times.rows("all", [*trials, *trials[-1:]])
    assert row.split(" | ")[4:6] == ["11.000 s", "> 0.500 s"]


def test_where_most_are_not_found_no_steps_are_told(times: ModuleType) -> None:
    [row] = times.rows("all", [{"plain": times.Took(False, 9.0, 3)}])
    assert row == "| all | plain | 1 | 0 (0.0%) | > 9.000 s | > 9.000 s | not found |"


def test_what_was_not_found_costs_as_much_as_it_took(times: ModuleType) -> None:
    trials = [{"chosen": times.Took(True, 900.0, 400)}, {"chosen": times.Took(False, 2700.0, 800)}]
    row = times.findings("all", "chosen", trials)
    assert row == "| all | chosen | 2 | 1 | 1,200 | 1.00 | 1 |"
