"""A gate of a correct scheduler that hides fields ends, and accuses it of nothing."""

import pytest

from schedproof.tools.hidden_fields import accusations


@pytest.mark.slow
def test_a_gate_whose_target_hides_what_it_emits_ends_without_an_accusation():
    # It seems to have emitted more than was asked for: the search drew from -4 + 4 steps.
    assert accusations(216) == []
