"""With interleaving off, a prefill that has begun is not asked again."""

import pytest

from ...build import broken, decode, decoding, exercised, history, prefill, prefilling, waiting

SAYS = "c has 8 of 20 tokens computed, and no chunk of it runs"


@pytest.mark.parametrize(
    ("interleave", "paused", "says"),
    [(False, frozenset(), SAYS), (True, frozenset(), None), (False, frozenset("b"), None)],
)
def test_a_prefill_goes_on_unless_steps_alternate_or_a_request_is_paused(interleave, paused, says):
    accounts = decoding("a", 8), decoding("b", 8), prefilling("c", 8, 20)
    book = history(*accounts, revision="2.5.2", interleave=interleave, paused=paused)
    assert broken("SPY-R34", book, decode("a", "b")) == says
    assert exercised("SPY-R34", book, decode("a", "b")) is (says is not None)
    assert broken("SPY-R34", book, prefill("c", 8)) is None


def test_a_request_that_has_not_begun_may_be_refused():
    book = history(decoding("a", 8), waiting("c", 20), revision="2.1.2", interleave=False)
    assert broken("SPY-R34", book, decode("a")) is None
    assert not exercised("SPY-R34", book, decode("a"))
