"""The configuration: keys and defaults of the scenario format, and one clear error."""

import msgspec
import pytest

from schedproof.model.errors import InputError
from schedproof.model.llmservingsim.config import read_config
from schedproof.model.systems import resolve_revision, revisions_of


def test_the_page_is_the_first_revision():
    assert revisions_of("llmservingsim") == ("documented", "head")
    assert resolve_revision("llmservingsim", None) == "documented"


def test_head_has_no_priority_for_prefills_and_says_so():
    assert read_config({"prioritize_prefill": True}, "documented").prioritize_prefill
    assert not read_config({"prioritize_prefill": False}, "head").prioritize_prefill
    with pytest.raises(InputError) as caught:
        read_config({"prioritize_prefill": True}, "head")
    assert str(caught.value) == (
        "$.config.prioritize_prefill: True is an option of revision documented alone; valid: False"
    )


def test_zero_slots_are_any_number_and_a_threshold_of_zero_is_none():
    config = read_config({"max_num_seqs": 0}, "documented")
    assert config.has_slot(0)
    assert config.has_slot(10**6)
    assert config.capped(10**6) == 10**6
    capped = msgspec.structs.replace(config, max_num_seqs=2, long_prefill_token_threshold=5)
    assert [capped.has_slot(taken) for taken in (0, 1, 2, 3)] == [True, True, False, False]
    assert [capped.capped(tokens) for tokens in (1, 5, 6)] == [1, 5, 5]
