"""Plots: curves, shares of what was found, bars; nothing of it breaks the page."""

import pytest

from schedproof.benchmarks.figure import Figure, Row
from schedproof.benchmarks.machine import this_machine
from schedproof.benchmarks.plot import charts, page

pytest.importorskip("plotly")


def figure(*rows: Row, **changes) -> Figure:
    return Figure(name="it", title="A <title>", about="about", rows=rows, **changes)


def test_rows_with_a_place_are_curves() -> None:
    rows = [Row(what=f"{at}", value=at, unit="s", series="c", at=at) for at in (1.0, 10.0)]
    [chart] = charts(figure(*rows, axis="requests"))
    assert tuple(chart.data[0].x) == (1.0, 10.0)
    assert chart.layout.xaxis.title.text == "requests"


def test_what_was_found_is_counted_and_what_was_not_is_said() -> None:
    rows = [
        Row(what="a", value=3.0, unit="s", series="ours"),
        Row(what="b", value=1.0, unit="s", series="ours"),
        Row(what="c", value=20.0, unit="s", series="ours", at_least=True),
        Row(what="median", value=3.0, unit="s"),
    ]
    found, bars = charts(figure(*rows))
    assert tuple(found.data[0].x) == (1.0, 3.0)
    assert found.data[0].name == "ours (2 of 3)"
    assert tuple(bars.data[0].y) == ("median",)


def test_units_have_a_chart_each_and_rows_without_a_value_none() -> None:
    rows = [
        Row(what="a", value=1.0, unit="s"),
        Row(what="b", value=1.0, unit="MB"),
        Row(what="c", value=None, unit="kg"),
    ]
    assert [chart.layout.title.text for chart in charts(figure(*rows))] == ["MB", "s"]


def test_the_page_has_plotly_once_and_words_as_they_stand() -> None:
    one = figure(Row(what="a", value=1.0, unit="s"))
    reported = page(this_machine(), [one, one]).decode()
    assert reported.count("<h2>A &lt;title&gt;</h2>") == 2
    assert reported.count("plotly.js v") == 1
