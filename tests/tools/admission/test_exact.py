"""The page on exact admission has the code and the tables that are made."""

import random
import re
from bisect import bisect_left, insort
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.model.spyre.peak import CHECKS, peak_volume
from schedproof.model.spyre.volumetric import FORMULAS, Decoding, Newcomer
from schedproof.solver.spyre.worst_case import least_slack
from schedproof.tools.admission.exact import (
    LOADS,
    OURS,
    PAGE,
    PUBLISHED,
    SOUND,
    TABLES,
    TOOL,
    Ratios,
    rows,
)
from schedproof.tools.admission.hindsight import SMALL, admitted, best, drawn
from schedproof.tools.pages import table_in


def cells(table):
    lines = table_in(PAGE, f"{TOOL}: {table}").splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


class Pair(NamedTuple):
    """A request as the page has it."""

    ends: int
    tokens: int


LENGTHS = st.integers(1, 400)


@given(st.lists(st.tuples(st.integers(0, 90), LENGTHS), max_size=6), LENGTHS, st.integers(1, 90))
def test_the_rule_of_the_page_is_the_one_of_the_model(decoding, prompt, tokens):
    [code] = re.findall(r"```python\n(def joins.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    names: dict[str, Any] = {"B": 64, "insort": insort, "bisect_left": bisect_left}
    exec(code, names)
    members = [Decoding(length, left, 0) for left, length in decoding]
    volume = peak_volume(members, Newcomer(prompt, tokens), 64)
    asked = [Pair(*member) for member in decoding], Pair(tokens - 1, prompt)
    for limit in (max(volume - 1, 0), volume):
        names["L"] = limit
        assert names["joins"](*asked) is (volume <= limit)


def test_every_check_is_in_the_tables_once():
    assert {*PUBLISHED, *OURS} == {*FORMULAS, *CHECKS}
    titles = [*PUBLISHED.values(), *OURS.values()]
    assert [row[0] for row in cells("slack")] == [*PUBLISHED.values(), OURS["common_base"]]
    assert [row[0] for row in cells("waste")][:-1] == titles
    assert [row[0] for row in cells("loads")] == ["`exact`, steps", *titles]
    assert [tuple(row[:2]) for row in cells("hindsight")] == [
        (str(count), name) for count in (3, 4, 5, 6) for name in SOUND
    ]
    assert [row[1] for row in cells("releases")] == [*LOADS] * 3


@pytest.mark.slow
@pytest.mark.parametrize("formula", ["2.1.0", "2.0.1", "document_own_tkv", "common_base"])
def test_the_slack_that_is_enough_is_the_one_on_the_page(formula):
    title = {**PUBLISHED, **OURS}[formula]
    [shown] = [row[2] for row in cells("slack") if row[0] == title]
    assert shown == str(least_slack(formula, 512) or ("none" if formula.startswith("doc") else 0))


def test_no_sound_check_is_beyond_the_limit_and_no_release_with_it():
    shown = {row[0]: row[1:] for row in cells("loads")}
    for name in SOUND:
        assert not any("!" in cell for cell in shown[{**PUBLISHED, **OURS}[name]])
    assert all(int(row[5].replace(",", "")) <= 131_072 for row in cells("releases"))


def test_ratios_are_a_mean_and_the_worst():
    assert str(Ratios.of([(2, 1), (3, 3)])) == "1.500 (2.00)"
    assert [*rows(("a", "b"), ("1", "2"))] == ["| a | b |", "|---|---|", "| 1 | 2 |"]
    assert [*TABLES] == ["slack", "waste", "loads", "hindsight", "releases"]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_no_check_does_better_than_the_best_and_a_free_order_is_no_worse(count):
    chance = random.Random(count)
    for _ in range(40):
        asked = drawn(count, chance)
        free, kept = (best(asked, "steps", in_order=order) for order in (False, True))
        waits = best(asked, "waits", in_order=False)
        assert free <= kept
        for check in ("exact", "2.1.2", "common_base"):
            cost = admitted(asked, check)
            assert kept <= cost.steps
            assert waits <= cost.waits


def test_what_fits_together_is_best_at_once():
    # Two prefill steps and a decode step between; then the longer one's last two decode steps.
    assert best([(1, 3), (1, 3)], "steps", in_order=True) == 5
    assert admitted([(1, 3), (1, 3)], "exact").steps == 5


def test_a_step_beyond_the_limit_is_no_schedule():
    # Three of 10 tokens would be 30 > 24: the third waits, and seven steps more are needed.
    assert SMALL.max_batch_tkv == 24
    alone = best([(2, 9)], "steps", in_order=True)
    assert best([(2, 9)] * 2, "steps", in_order=True) == alone + 2
    assert best([(2, 9)] * 3, "steps", in_order=True) > alone + 4
