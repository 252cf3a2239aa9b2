"""Numbers for Z3: what a fresh number, a division, a maximum and a count mean."""

import math
import random
from collections.abc import Callable

import pytest
import z3
from hypothesis import given, settings
from hypothesis import strategies as st

from schedproof.model.pool import blocks_for
from schedproof.model.spyre import documented
from schedproof.solver.smt import obligation
from schedproof.solver.smt.execution import (
    AT_ONCE,
    Once,
    Path,
    TooManyPathsError,
    UndecidedError,
    bare,
    holds_on,
    merged,
    paths,
)
from schedproof.solver.smt.numbers import Numbers, value_in
from schedproof.solver.smt.obligation import Obligation, decide, decide_by_cvc5, discharge


def solved(numbers, *facts):
    solver = z3.Solver()
    solver.add(*numbers.facts, *facts)
    return solver.model() if solver.check() == z3.sat else None


@pytest.mark.parametrize("number", [0, 1, 63, 64, 65, 131_071])
def test_a_number_splits_into_quotient_and_remainder(number):
    numbers = Numbers()
    whole = numbers.fresh("number", 0, 200_000)
    quotient, remainder = numbers.split(whole, 64, 4000)
    model = solved(numbers, whole == number)
    assert (value_in(model, quotient), value_in(model, remainder)) == divmod(number, 64)
    elsewhere = z3.Or(quotient != number // 64, remainder != number % 64)
    assert solved(numbers, whole == number, elsewhere) is None


def test_a_fresh_number_keeps_its_bounds():
    numbers = Numbers()
    number = numbers.fresh("number", 3, 5)
    assert solved(numbers, number < 3) is None
    assert solved(numbers, number > 5) is None
    assert value_in(solved(numbers, number > 4), number) == 5


def test_a_number_without_a_bound_may_be_any():
    numbers = Numbers()
    number = numbers.fresh("number", 0)
    assert value_in(solved(numbers, number >= 10**30), number) >= 10**30


def test_equal_numbers_split_once():
    numbers = Numbers()
    number = numbers.fresh("number", 0, 100)
    assert numbers.split(number + 1, 8, 20) == numbers.split(number + 1, 8, 20)
    assert numbers.split(number + 1, 8, 20) != numbers.split(number + 2, 8, 20)


def test_the_largest_and_the_count_are_those_of_python():
    numbers = Numbers()
    values = [z3.IntVal(value) for value in (4, 9, 9, 1)]
    largest = numbers.largest(values)
    count = numbers.count([value >= 4 for value in values])
    model = solved(numbers)
    assert (value_in(model, largest), value_in(model, count)) == (9, 3)
    assert value_in(model, numbers.count([])) == 0


def test_what_is_told_of_quotients_is_so_of_any_numbers():
    numbers = Numbers()
    for name in ("one", "other", "third"):
        numbers.split(numbers.fresh(name), 64, None, signed=True)
    numbers.split(numbers.fresh("by another", 0), 8, None)
    known = list(numbers.facts)
    numbers.tell_quotients(64)
    told = numbers.facts[len(known) :]
    assert len(told) == 2 * 3 * 2
    for fact in told:
        solver = z3.Solver()
        solver.add(*known, z3.Not(fact))
        assert solver.check() == z3.unsat


X, Y = z3.Ints("x y")
NEVER = [X > 2, X < 3]
ONCE = [X > 2, X < 4]


def ended(claim, guard):
    [lemma] = discharge([Obligation("name", "Sentence.", lambda: claim, lambda: guard)])
    assert (lemma.name, lemma.sentence) == ("name", "Sentence.")
    assert lemma.seconds >= 0
    return lemma.status, lemma.by


@pytest.mark.parametrize(
    ("claim", "guard", "status"),
    [(NEVER, ONCE, "proven"), (ONCE, ONCE, "refuted"), (NEVER, NEVER, "unguarded")],
)
def test_a_lemma_is_proven_only_beside_a_guard_that_is_not(claim, guard, status):
    assert ended(claim, guard) == (status, "Z3")


def test_a_solution_is_given_with_a_sat():
    answer, model = decide(ONCE)
    assert answer == "sat"
    assert model is not None
    assert model[X].as_long() == 3
    assert decide(NEVER) == ("unsat", None)


def test_a_time_limit_that_is_reached_is_unknown():
    # Three cubes that add up to 42: no request finds them in a millisecond.
    a, b, c = z3.Ints("a b c")
    assert decide([a * a * a + b * b * b + c * c * c == 42], 0.001) == ("unknown", None)


def test_a_lemma_that_needs_more_than_its_units_is_unknown_twice_alike(monkeypatch):
    monkeypatch.setattr(obligation, "decide_by_cvc5", lambda *_: "unknown")
    prime = [X > 1, X < 50, Y > 1, Y < 50, X * Y == 97]
    assert ended(prime, ONCE) == ("proven", "Z3")
    monkeypatch.setattr(obligation, "UNITS", 1_000)
    assert [ended(prime, ONCE) for _ in range(2)] == [("unknown", "cvc5")] * 2


@pytest.mark.parametrize(
    ("facts", "answer"),
    [
        (NEVER, "unsat"),
        (ONCE, "sat"),
        ([X * Y == 7, X > 1, Y > 1], "unsat"),
        ([X > 2, z3.And([])], "sat"),
        ([z3.Or(X > 2, z3.Or([])), X < 2], "unsat"),
    ],
)
def test_the_second_solver_answers_the_same_question(facts, answer):
    pytest.importorskip("cvc5", reason="the extra `solvers` is not installed")
    assert decide_by_cvc5(facts, 20.0) == answer


def test_what_z3_leaves_unknown_is_asked_of_the_second_solver(monkeypatch):
    pytest.importorskip("cvc5", reason="the extra `solvers` is not installed")
    monkeypatch.setattr(obligation, "decide", lambda *_: ("unknown", None))
    assert ended(NEVER, ONCE) == ("proven", "cvc5")
    assert ended(ONCE, ONCE) == ("refuted", "cvc5")


def test_what_nobody_can_tell_is_unknown_and_no_proof(monkeypatch):
    monkeypatch.setattr(obligation, "decide", lambda *_: ("unknown", None))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert ended(NEVER, ONCE) == ("unknown", "cvc5")


def test_a_guard_that_nobody_can_tell_is_no_proof(monkeypatch):
    answers = iter([("unsat", None), ("unknown", None)])
    monkeypatch.setattr(obligation, "decide", lambda *_: next(answers))
    monkeypatch.setattr(obligation, "decide_by_cvc5", lambda *_: "unknown")
    assert ended(NEVER, ONCE) == ("unknown", "Z3")


SMALL = st.integers(-9, 9)


def on(numbers, values, code):
    """The results on the paths that these values take."""
    facts = [symbol == value for symbol, value in values.items()]
    results = []
    for path in list(paths(numbers, code)):
        solver = z3.Solver()
        solver.add([*numbers.facts, *facts, path.condition])
        if solver.check() == z3.sat:
            found = path.result
            is_symbol = isinstance(found, z3.ExprRef)
            results.append(solver.model().eval(found).as_long() if is_symbol else found)
    return results


def arithmetic(number, other):
    """Uses every operator that a number has."""
    total = 3 + number - other * 2 + (7 - number) // 3 - (-other) % 4 + 2 * number
    if number == other:
        return total
    if number < 2 <= other or number >= 5 > other:
        total = max(total, other) + 1
    return sorted([number, other, total])[1]


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(SMALL, SMALL)
def test_a_path_gives_what_the_code_gives(number, other):
    numbers = Numbers()
    a, b = numbers.fresh("a"), numbers.fresh("b")
    found = on(numbers, {a: number, b: other}, lambda run: arithmetic(run.number(a), run.number(b)))
    assert found == [arithmetic(number, other)]


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=3))
def test_the_tkv_of_a_batch_on_symbols_is_its_tkv(lengths):
    numbers = Numbers()
    symbols = [numbers.fresh("length", 1) for _ in lengths]

    def code(run):
        return documented.max_tkv([run.number(symbol) for symbol in symbols], 4)

    values = dict(zip(symbols, lengths, strict=True))
    assert on(numbers, values, code) == [documented.max_tkv(lengths, 4)]


def test_paths_are_all_that_are_possible_and_no_other():
    numbers = Numbers()
    tokens = numbers.fresh("tokens", 1, 9)

    def code(run):
        number = run.number(tokens)
        if number > 9:
            return "impossible"
        return "long" if number > 4 else "short"

    assert sorted(path.result for path in paths(numbers, code)) == ["long", "short"]


def test_a_comparison_that_comes_out_is_decided():
    numbers = Numbers()
    tokens = numbers.fresh("tokens", 1)
    found = list(paths(numbers, lambda run: run.number(tokens) <= 4))
    assert sorted(path.result for path in found) == [False, True]


def test_what_is_split_is_right_on_every_path():
    """The first path knows that the number is positive, the second that it is not."""
    numbers = Numbers()
    tokens = numbers.fresh("tokens")

    def code(run):
        number = run.number(tokens)
        return number // 4 if number > 0 else -(number // 4)

    assert on(numbers, {tokens: 7}, code) == [1]
    assert on(numbers, {tokens: -7}, code) == [2]
    assert bare(blocks_for(7, 4)) == 2


SIGNED: list[Callable[..., object]] = [
    lambda number, other: number // 4,
    lambda number, other: number % 4,
    lambda number, other: number // -4,
    lambda number, other: number % -4,
    lambda number, other: -(-number // 4),
    lambda number, other: number // other,
    lambda number, other: number % other,
    lambda number, other: 7 // other - 7 % other,
    lambda number, other: divmod(number, 4)[0] - divmod(number, other)[1],
    lambda number, other: divmod(-9, other)[0],
    lambda number, other: math.ceil(number / 4) + math.floor(other / 3) - math.ceil(7 / other),
    lambda number, other: math.ceil(number) + math.floor(other) + round(number) + +other,
    lambda number, other: max(number, other, 3) - min(number, other),
    lambda number, other: abs(number) * other if number != other else sum([number, other, 2]),
    lambda number, other: ~number + (~other) * 2,
    lambda number, other: 1 - number if number else other and 5,
    lambda number, other: (
        (number - other + 4 - 1) // 4 * 4 if number - other < -2 else (number - other) // 4
    ),
]
"""Every operator that a formula may use, on numbers of either sign."""


@pytest.mark.parametrize("code", SIGNED)
def test_a_symbol_computes_what_python_computes_also_below_zero(code):
    numbers, chance = Numbers(), random.Random(1)
    first, other = numbers.fresh("one", -40, 40), numbers.fresh("other", -40, 40)
    numbers.facts.append(other != 0)
    result = merged(numbers, lambda run: code(run.number(first), run.number(other)))
    solver = z3.Solver()
    solver.add(numbers.facts)
    for _ in range(12):
        values = chance.randint(-40, 40), chance.choice((-7, -4, -1, 1, 3, 4, 40))
        solver.push()
        solver.add(first == values[0], other == values[1])
        assert solver.check() == z3.sat, values
        assert value_in(solver.model(), result) == code(*values), values
        solver.pop()


def test_a_negative_number_is_divided_downwards():
    numbers = Numbers()
    number = numbers.fresh("number", -90, 90)
    result = merged(numbers, lambda run: run.number(number) // 64 * 100 + run.number(number) % 64)
    for value in (-90, -65, -64, -63, -1, 0, 1, 64, 90):
        assert value_in(solved(numbers, number == value), result) == value // 64 * 100 + value % 64


def test_a_division_by_zero_is_raised_where_it_is_possible_and_only_there():
    numbers = Numbers()
    number = numbers.fresh("number", 0, 9)
    with pytest.raises(ZeroDivisionError):
        merged(numbers, lambda run: 9 // run.number(number))
    with pytest.raises(ZeroDivisionError):
        merged(numbers, lambda run: run.number(number) // 0)
    guarded = merged(numbers, lambda run: 9 // run.number(number) if run.number(number) else -1)
    assert value_in(solved(numbers, number == 0), guarded) == -1
    assert value_in(solved(numbers, number == 2), guarded) == 4


def test_a_loop_whose_end_a_symbol_decides_is_given_up(monkeypatch):
    monkeypatch.setattr("schedproof.solver.smt.execution.MAX_ANSWERS", 20)
    numbers = Numbers()
    number = numbers.fresh("number", 0)

    def code(run):
        left, rounds = run.number(number), 0
        while left > 4:
            left, rounds = left - 4, rounds + 1
        return rounds

    with pytest.raises(TooManyPathsError):
        merged(numbers, code)


def test_code_with_more_paths_than_can_be_followed_leaves_its_lemma_undecided(monkeypatch):
    monkeypatch.setattr("schedproof.solver.smt.execution.MOST_PATHS", 20)

    def facts():
        numbers = Numbers()

        def code(run):
            return sum(bool(run.number(numbers.fresh(f"n{at}", 0)) > 1) for at in range(8))

        return holds_on(numbers, list(paths(numbers, code)), lambda total: total <= 8)

    [lemma] = discharge([Obligation("few_are_counted", "Eight are counted.", facts, facts)])
    assert (lemma.status, lemma.by) == ("unknown", "none")
    assert "more than 20 paths" in lemma.sentence


def test_paths_are_read_only_until_the_claim_fails():
    numbers, read = Numbers(), []

    def found():
        for at in range(100 * AT_ONCE):
            read.append(at)
            yield Path([], at)

    facts = holds_on(numbers, found(), lambda at: z3.Int("x") > at)
    assert decide(facts)[0] == "sat"
    assert len(read) == AT_ONCE


def test_a_claim_that_fails_on_the_last_path_alone_fails():
    found = [Path([], at) for at in range(AT_ONCE + 1)]
    x = z3.Int("x")
    facts = holds_on(Numbers(), found, lambda at: z3.Or(x < 0, x > at - at - 1))
    assert decide(facts)[0] == "unsat"
    facts = holds_on(Numbers(), found, lambda at: z3.Or(x < 0, x >= at - AT_ONCE + 1))
    assert decide(facts)[0] == "sat"


def test_paths_that_end_in_an_error_do_so_each_time_they_are_read():
    def found():
        yield Path([], 0)
        raise UndecidedError("is not followed")

    twice = Once(found())
    for _ in range(2):
        with pytest.raises(UndecidedError):
            list(twice)
