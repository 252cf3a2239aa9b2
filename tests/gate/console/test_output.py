"""What is printed of a configuration."""

from schedproof.gate.console.output import config_line
from schedproof.model.systems import full_config


def test_a_targets_own_keys_are_listed_one_by_one():
    config = full_config("generic", "documented", {"own": {"reserve": 2, "policy": "lifo"}})
    assert config_line("generic", "documented", config).endswith(", reserve 2, policy lifo")


def test_a_value_that_is_not_at_its_default_is_named_in_words():
    config = full_config("spyre", "sound", {"interleave": False})
    assert config_line("spyre", "sound", config).endswith(", interleave off")
