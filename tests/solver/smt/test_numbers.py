"""Numbers for Z3: what a fresh number, a division, a maximum and a count mean."""

import pytest
import z3

from schedproof.solver.smt.numbers import KINDS, Numbers, read


def solved(numbers, *facts):
    solver = z3.Solver()
    solver.add(*numbers.facts, *facts)
    return solver.model() if solver.check() == z3.sat else None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [0, 1, 63, 64, 65, 131_071])
def test_a_number_splits_into_quotient_and_remainder(kind, number):
    numbers = Numbers(kind)
    whole = numbers.fresh("number", 0, 200_000)
    quotient, remainder = numbers.split(whole, 64, 4000)
    model = solved(numbers, whole == number)
    assert (read(model, quotient), read(model, remainder)) == divmod(number, 64)
    elsewhere = z3.Or(quotient != number // 64, remainder != number % 64)
    assert solved(numbers, whole == number, elsewhere) is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_fresh_number_keeps_its_bounds(kind):
    numbers = Numbers(kind)
    number = numbers.fresh("number", 3, 5)
    assert solved(numbers, number < 3) is None
    assert solved(numbers, number > 5) is None
    assert read(solved(numbers, number > 4), number) == 5


def test_a_number_without_a_bound_may_be_any():
    numbers = Numbers()
    number = numbers.fresh("number", 0, None)
    assert read(solved(numbers, number >= 10**30), number) >= 10**30


@pytest.mark.parametrize("kind", KINDS)
def test_equal_numbers_split_once(kind):
    numbers = Numbers(kind)
    number = numbers.fresh("number", 0, 100)
    assert numbers.split(number + 1, 8, 20) == numbers.split(number + 1, 8, 20)
    assert numbers.split(number + 1, 8, 20) != numbers.split(number + 2, 8, 20)


@pytest.mark.parametrize("kind", KINDS)
def test_the_largest_and_the_count_are_those_of_python(kind):
    numbers = Numbers(kind)
    values = [numbers.value(value) for value in (4, 9, 9, 1)]
    largest = numbers.largest(values)
    count = numbers.count([value >= 4 for value in values])
    model = solved(numbers)
    assert (read(model, largest), read(model, count)) == (9, 3)
    assert read(model, numbers.count([])) == 0


def test_what_is_told_of_quotients_is_so_of_any_numbers():
    numbers = Numbers()
    for name in ("one", "other", "third"):
        numbers.split(numbers.fresh(name, None, None), 64, None, signed=True)
    numbers.split(numbers.fresh("by another", 0, None), 8, None)
    known = list(numbers.facts)
    numbers.tell_quotients(64)
    told = numbers.facts[len(known) :]
    assert len(told) == 2 * 3 * 2
    for fact in told:
        solver = z3.Solver()
        solver.add(*known, z3.Not(fact))
        assert solver.check() == z3.unsat
