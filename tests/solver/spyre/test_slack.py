"""How much slack makes a formula sound: a run with a token less, and the lemmas with it."""

import pytest

from schedproof.solver.spyre.slack import enough, needed
from schedproof.solver.spyre.volumetric import Setting
from schedproof.tools.admission.exact import replayed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("formula", "tokens", "requests"), [("2.1.0", 64, 2), ("2.0.1", 126, 3), ("1.10.0", 126, 3)]
)
def test_what_the_lemmas_need_a_run_needs_too(formula, tokens, requests):
    assert enough(formula, 512) == tokens
    assert replayed(Setting(formula, requests, max_model_len=1024)) == tokens


def test_by_a_reading_of_the_document_no_slack_short_of_the_models_length_is_enough():
    assert enough("document_max_tkv", 512) is None
    assert replayed(Setting("document_max_tkv", 2)) == 32_765


@pytest.mark.slow
@pytest.mark.parametrize("formula", ["2.1.2", "common_base"])
def test_a_sound_formula_needs_none(formula):
    assert enough(formula, 512) == 0
    assert needed(Setting(formula, 2)) is None
