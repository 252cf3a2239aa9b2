"""Configurations of vLLM that are valid, and how the others are refused."""

import msgspec
import pytest

from schedproof.model.errors import InputError
from schedproof.model.vllm.config import read_config

from .build import config

REVISION = "documented"


def refusal(**values):
    with pytest.raises(InputError) as caught:
        read_config(values, REVISION)
    return str(caught.value)


def test_a_watermark_is_a_share_of_less_than_the_whole():
    assert read_config({"watermark": 0}, REVISION).watermark == 0
    assert read_config({"watermark": 0.99}, REVISION).watermark == 0.99
    assert refusal(watermark=-0.1).startswith("$.config.watermark: -0.1: Expected `float` >= 0")
    assert refusal(watermark=1.0).startswith("$.config.watermark: 1.0: Expected `float` < 1")


def test_a_threshold_is_0_or_up_to_the_longest_request():
    for threshold in (0, 1, 100):
        values = {"max_model_len": 100, "long_prefill_token_threshold": threshold}
        assert read_config(values, REVISION).long_prefill_token_threshold == threshold
    assert refusal(max_model_len=100, long_prefill_token_threshold=101) == (
        "$.config.long_prefill_token_threshold: 101 exceeds max_model_len (100); valid: 0 to 100"
    )
    negative = refusal(long_prefill_token_threshold=-1)
    assert negative.startswith("$.config.long_prefill_token_threshold: -1: Expected `int` >= 0")


def test_the_budget_has_a_token_for_everybody_who_may_run():
    assert read_config({"max_num_seqs": 5, "max_num_batched_tokens": 5}, REVISION)
    assert refusal(max_num_seqs=5, max_num_batched_tokens=4) == (
        "$.config.max_num_batched_tokens: 4 is less than max_num_seqs (5): "
        "not every request could decode; valid: at least 5"
    )


def test_a_policy_is_one_of_two():
    assert refusal(policy="lifo") == "$.config.policy: 'lifo': Invalid enum value 'lifo'"


@pytest.mark.parametrize(
    ("watermark", "num_blocks", "kept"),
    [(0.0, 10, 0), (0.1, 10, 1), (0.18, 10, 1), (0.1819, 10, 2), (0.99, 10, 10), (0.5, None, 0)],
)
def test_the_watermark_counts_the_null_block_as_the_release_does(watermark, num_blocks, kept):
    assert config(watermark=watermark, num_blocks=num_blocks).watermark_blocks == kept


def test_without_speculation_its_keys_are_absent():
    read = read_config({"num_speculative_tokens": 0, "num_lookahead_tokens": 0}, REVISION)
    assert not {"num_speculative_tokens", "num_lookahead_tokens"} & msgspec.to_builtins(read).keys()
    assert (read.drafts, read.lookahead) == (0, 0)


def test_a_lookahead_that_fits_no_drafter_is_an_error():
    assert refusal(num_lookahead_tokens=2) == (
        "$.config.num_lookahead_tokens: 2 fits no drafter; valid: 0, or num_speculative_tokens (0)"
    )


def test_lookahead_must_leave_room_in_the_budget():
    values = {"num_lookahead_tokens": 4, "num_speculative_tokens": 4, "max_num_seqs": 4}
    message = refusal(**values, enable_prefix_caching=False, max_num_batched_tokens=4)
    assert message.endswith("valid: a smaller number")
