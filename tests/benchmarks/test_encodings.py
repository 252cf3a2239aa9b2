"""The table of encodings: they agree, and what takes too long is no number."""

import pytest

from schedproof.benchmarks import encodings
from schedproof.benchmarks.encodings import FORMS, FORMULAS, ask, measured, rows, setting_of, table
from schedproof.solver.spyre.admission_sequences import Setting, overrun


@pytest.mark.parametrize("kind", ["integers", "bits"])
@pytest.mark.parametrize("expected", FORMULAS)
def test_the_closed_form_gives_the_expected_answer(kind, expected):
    setting = setting_of("small", FORMULAS[expected], 2)
    [(answer, seconds)] = ask("closed form", kind, setting)
    assert answer == expected
    assert seconds > 0


def answers(form, formula):
    """For every limit: does some batch of three, of two blocks of 2 tokens, overrun it?"""
    found = []
    for limit in range(5, 13):
        setting = Setting(formula, 3, block=2, limit=limit, max_model_len=4)
        [(answer, _)] = ask(form, "integers", setting)
        found.append(answer)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("formula", ["1.10.0", "2.1.0", "2.1.2", "common_base"])
def test_unrolled_and_closed_form_agree_at_every_limit(formula):
    assert answers("unrolled", formula) == answers("closed form", formula)


def test_a_fault_planted_in_the_unrolled_form_disagrees(monkeypatch):
    expected = answers("closed form", "1.10.0")
    assert "sat" in expected

    def a_step_late(numbers, setting, met, step):
        return overrun(numbers, setting, met, step + 2)

    monkeypatch.setattr(encodings, "overrun", a_step_late)
    assert answers("unrolled", "1.10.0") != expected


@pytest.mark.parametrize("scale", ["small", "production"])
@pytest.mark.parametrize("requests", [2, 4, 8, 16, 32])
def test_the_limit_is_no_whole_number_of_blocks_for_each_and_can_be_exceeded(scale, requests):
    setting = setting_of(scale, "2.1.0", requests)
    assert setting.limit < requests * setting.max_model_len
    if scale == "small":
        assert (setting.limit // requests) % setting.block


def test_what_takes_longer_than_the_limit_is_no_number(monkeypatch):
    monkeypatch.setattr(encodings, "START_UP", 0.0)
    setting = setting_of("production", "2.1.2", 32)
    assert measured("closed form", "bits", setting, "unsat", 0.05) is None


def test_encodings_that_disagree_are_an_error():
    with pytest.raises(AssertionError, match="unsat"):
        measured("closed form", "integers", setting_of("small", "2.1.2", 2), "sat", 60.0)


def test_the_figure_has_a_row_for_each_encoding_answer_and_size(monkeypatch):
    monkeypatch.setattr(encodings, "measured", lambda *_: None)
    found = list(rows(quick=False))
    assert len(found) == 2 * 2 * 5 + 4 * 2 * 3
    asked = [row for row in found if not row.note]
    assert {row.at for row in asked} == {2}
    assert all(row.at_least and row.value == 30.0 and row.ratio is None for row in asked)
    rest = [row for row in found if row.note.startswith("not asked")]
    assert len(asked) + len(rest) == len(found)
    assert not any(row.at_least or row.value or row.ratio for row in rest)
    assert {row.what.split(":")[0] for row in found} == {
        f"{form}, {kind}" for form in FORMS for kind in ("integers", "bits")
    }


def test_what_took_too_long_is_not_asked_with_more_requests(monkeypatch):
    asked = []
    monkeypatch.setattr(encodings, "measured", lambda *of: asked.append(of[2].requests))
    assert len(list(table("small", [2, 4, 8], FORMS[:1], 7.0))) == 2
    assert asked == [2, 2, 2, 2]
