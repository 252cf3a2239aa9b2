"""The explorer beside Spin: answers that disagree are an error, and what is cut short is said."""

import pytest

from schedproof.tools.benchmarks import explorers, spin
from schedproof.tools.benchmarks.explorers import QUESTIONS, QUICK, Answer, Question, answers, rows


def reported(monkeypatch, ours: Answer, theirs: Answer) -> None:
    monkeypatch.setattr(spin, "MISSING", [])
    monkeypatch.setattr(explorers, "by_explorer", lambda asked, seconds, reduced: ours)
    monkeypatch.setattr(explorers, "by_spin", lambda asked, seconds, late: theirs)


def test_answers_that_disagree_are_an_error(monkeypatch):
    reported(monkeypatch, Answer(True, 1, 1, 1.0, 1.0), Answer(False, 1, 1, 1.0, 1.0))
    with pytest.raises(AssertionError, match="the tools disagree"):
        answers(QUICK[0], 1.0)


def test_what_is_cut_short_took_at_least_so_long(monkeypatch):
    reported(monkeypatch, Answer(True, 5, 100, 2.0, 30.0), Answer(None, 9, 800, 4.0, 99.0))
    found = {row.what.partition(":")[0]: row for row in rows(quick=True)}
    assert found["Spin, pace"].value == 200
    assert found["Spin, pace"].ratio == 4.0
    answer = found["Spin, answer"]
    assert (answer.value, answer.at_least, answer.ratio, answer.ratio_at_least) == (
        4,
        True,
        2,
        True,
    )


def test_without_spin_the_figure_says_so(monkeypatch):
    reported(monkeypatch, Answer(True, 5, 100, 2.0, 30.0), Answer(True, 5, 100, 2.0, 30.0))
    monkeypatch.setattr(spin, "MISSING", ["spin", "gcc"])
    *_, last = rows(quick=True)
    assert (last.what, last.value) == ("Spin", None)
    assert last.note == "not measured: spin and gcc not installed"


def test_the_explorer_answers_the_quick_question():
    [answer] = explorers._explore(QUICK[0], 20.0, True)
    assert answer.holds is True
    assert answer.transitions >= answer.states > 0


def test_questions_are_named_by_their_scope():
    assert str(QUESTIONS[1]) == "3 requests, limit 26"
    assert str(Question("SPY-R07", "2.1.2", 2, range(6, 41))) == "2 requests, limit 6-40"
