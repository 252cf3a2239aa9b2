"""Values become a configuration, or one error that says where they are wrong."""

from typing import Literal

import msgspec
import pytest

from schedproof.model.config import MOST, convert
from schedproof.model.errors import InputError
from schedproof.model.systems import full_config, resolve_revision
from schedproof.spec.systems import SYSTEMS


class Sizes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    block: int = 4
    share: float = 0.5
    policy: Literal["fcfs", "priority"] = "fcfs"


def refusal(values):
    with pytest.raises(InputError) as caught:
        convert(values, Sizes)
    return caught.value


def test_what_is_given_is_read_and_what_is_left_out_is_at_its_default():
    assert convert({}, Sizes) == Sizes()
    given = {"block": 2, "share": 0.1, "policy": "priority"}
    assert convert(given, Sizes) == Sizes(**given)


def test_the_values_given_are_not_changed():
    given = {"block": 2}
    convert(given, Sizes)
    assert given == {"block": 2}


def test_an_unknown_key_is_named_with_the_known_ones():
    wrong = refusal({"size": 4})
    assert wrong.path == "$.config.size"
    assert wrong.problem == "unknown key; valid: block, share, policy"


def test_the_first_unknown_key_is_named_before_any_wrong_value():
    assert refusal({"block": "x", "b": 1, "a": 2}).path == "$.config.b"


def test_an_unknown_key_stays_on_one_line():
    assert refusal({"a\nb": 1}).path == "$.config.a\\nb"


def test_a_wrong_type_is_named_with_its_key_and_its_value():
    wrong = refusal({"share": 0.1, "block": "x"})
    assert (wrong.path, wrong.problem) == ("$.config.block", "'x': Expected `int`, got `str`")


def test_a_value_that_is_none_of_the_valid_ones_is_named():
    wrong = refusal({"policy": "lifo"})
    assert (wrong.path, wrong.problem) == ("$.config.policy", "'lifo': Invalid enum value 'lifo'")


def test_of_a_long_value_60_characters_are_shown():
    assert refusal({"block": "x" * 100}).problem == f"'{'x' * 59}: Expected `int`, got `str`"


def test_the_error_stands_for_itself():
    assert refusal({"size": 4}).__suppress_context__


@pytest.mark.parametrize("system", SYSTEMS)
def test_no_system_has_a_number_that_no_run_reaches(system):
    # The step after it would tell of so many free blocks that the target would be blamed.
    revision = resolve_revision(system, None)
    sizes = {key for key, value in full_config(system, revision, {}).items() if type(value) is int}
    sizes -= {"instances"}  # at most 2
    assert "block_size" in sizes
    for key in (*sizes, "num_blocks"):
        with pytest.raises(InputError, match=f"{key}: {MOST + 1}: Expected `int`.* <= {MOST}"):
            full_config(system, revision, {key: MOST + 1})
