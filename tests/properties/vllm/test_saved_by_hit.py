"""How many blocks a hit saves in several groups of the KV cache, by example."""

import pytest

from schedproof.model.systems import full_config
from schedproof.properties.vllm.history.groups import saved_by_hit

WINDOW = {"kind": "sliding_window", "window": 32}


@pytest.mark.parametrize(
    ("held", "found", "saved"),
    [
        (160, 160, 10 + 8),  # a hit of 160 tokens reads the last two blocks of the window
        (0, 160, 8),
        (160, 32, 2),
        (160, 0, 0),
    ],
)
def test_a_hit_saves_held_blocks_and_those_that_the_window_does_not_read(held, found, saved):
    config = full_config("vllm", "documented", {"kv_groups": [{"kind": "full"}, WINDOW]})
    assert saved_by_hit({**config, "block_size": 16}, held, found) == saved
