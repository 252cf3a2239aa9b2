"""Obligations: proven only with a guard that is refuted; a second solver for what is unknown."""

import pytest
import z3

from schedproof.solver.smt import obligation
from schedproof.solver.smt.obligation import Obligation, decide, decide_by_cvc5, discharge

X, Y = z3.Ints("x y")
NEVER = [X > 2, X < 3]
ONCE = [X > 2, X < 4]


def ended(claim, guard):
    [one] = discharge([Obligation("name", "Sentence.", lambda: claim, lambda: guard)])
    assert (one.name, one.sentence) == ("name", "Sentence.")
    assert one.seconds >= 0
    return one.status, one.by


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


@pytest.mark.parametrize(
    ("facts", "answer"), [(NEVER, "unsat"), (ONCE, "sat"), ([X * Y == 7, X > 1, Y > 1], "unsat")]
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
