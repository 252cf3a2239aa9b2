"""Every figure of the table can be measured, and names its rows once."""

from schedproof.tools.benchmarks import figures
from schedproof.tools.benchmarks.figure import in_turns


def test_figures_have_different_names():
    names = [plan.name for plan in figures.PLANS]
    assert len(set(names)) == len(names) == 7


def test_chosen_figures_are_in_the_order_of_the_table():
    assert [plan.name for plan in figures.chosen(["jobs", "models"])] == ["models", "jobs"]
    assert figures.chosen([]) == list(figures.PLANS)


def test_works_take_turns_and_each_has_its_median_rate():
    times = iter([0.0, 1.0, 0.0, 4.0, 0.0, 2.0, 0.0, 4.0, 0.0, 3.0, 0.0, 4.0])
    order: list[str] = []

    def work(name: str, done: float) -> float:
        order.append(name)
        return done

    works = [lambda: work("first", 6.0), lambda: work("second", 8.0)]
    assert in_turns(works, 3, lambda: next(times)) == [3.0, 2.0]
    assert order == ["first", "second"] * 3
