"""Code on symbols: every path is taken once, and what comes out is what the code gives."""

import pytest
import z3
from hypothesis import given, settings
from hypothesis import strategies as st

from schedproof.model.pool import blocks_for
from schedproof.model.spyre import documented
from schedproof.solver.smt.execution import bare, paths
from schedproof.solver.smt.numbers import Numbers

SMALL = st.integers(-9, 9)


def on(numbers, values, code):
    """The results on the paths that these values take."""
    facts = [symbol == value for symbol, value in values.items()]
    results = []
    for path in list(paths(numbers, code)):
        solver = z3.Solver()
        solver.add([*numbers.facts, *facts, *path.conditions])
        if solver.check() == z3.sat:
            found = path.result
            is_symbol = isinstance(found, z3.ExprRef)
            results.append(solver.model().eval(found).as_long() if is_symbol else found)
    return results


def arithmetic(one, other):
    """Uses every operator that a number has."""
    total = 3 + one - other * 2 + (7 - one) // 3 - (-other) % 4 + 2 * one
    if one == other:
        return total
    if one < 2 <= other or one >= 5 > other:
        total = max(total, other) + 1
    return sorted([one, other, total])[1]


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(SMALL, SMALL)
def test_a_path_gives_what_the_code_gives(one, other):
    numbers = Numbers()
    a, b = numbers.fresh("a", None, None), numbers.fresh("b", None, None)
    found = on(numbers, {a: one, b: other}, lambda run: arithmetic(run.number(a), run.number(b)))
    assert found == [arithmetic(one, other)]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=3))
def test_the_tkv_of_a_batch_on_symbols_is_its_tkv(lengths):
    numbers = Numbers()
    symbols = [numbers.fresh("length", 1, None) for _ in lengths]

    def code(run):
        return documented.max_tkv([run.number(symbol) for symbol in symbols], 4)

    values = dict(zip(symbols, lengths, strict=True))
    assert on(numbers, values, code) == [documented.max_tkv(lengths, 4)]


def test_paths_are_all_that_are_possible_and_no_other():
    numbers = Numbers()
    tokens = numbers.fresh("tokens", 1, 9)

    def code(run):
        one = run.number(tokens)
        if one > 9:
            return "impossible"
        return "long" if one > 4 else "short"

    assert sorted(path.result for path in paths(numbers, code)) == ["long", "short"]


def test_a_comparison_that_comes_out_is_decided():
    numbers = Numbers()
    tokens = numbers.fresh("tokens", 1, None)
    found = list(paths(numbers, lambda run: run.number(tokens) <= 4))
    assert sorted(path.result for path in found) == [False, True]


def test_what_is_split_is_right_on_every_path():
    """The first path knows that the number is positive, the second that it is not."""
    numbers = Numbers()
    tokens = numbers.fresh("tokens", None, None)

    def code(run):
        one = run.number(tokens)
        return one // 4 if one > 0 else -(one // 4)

    assert on(numbers, {tokens: 7}, code) == [1]
    assert on(numbers, {tokens: -7}, code) == [2]
    assert bare(blocks_for(7, 4)) == 2
