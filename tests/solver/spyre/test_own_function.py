"""A user's formula is the same function on symbols as on numbers."""

from random import Random

import pytest

from schedproof.model.errors import InputError
from schedproof.solver.spyre.own_function import check_on_symbols

FORMULAS = """
import math

def blocks(tokens, block_size):
    return -(-tokens // block_size) * block_size

def sound(request, tkv, prompt, block_size):
    return blocks(max(tkv, prompt) + request.remaining, block_size)

def branches(request, tkv, prompt, block_size):
    if request.joins and request.remaining == 3:
        return 0
    return math.ceil(sound(request, tkv, prompt, block_size) / 2) + request.computed

def by_type(request, tkv, prompt, block_size):
    return 0 if isinstance(tkv, int) else sound(request, tkv, prompt, block_size)

def by_error(request, tkv, prompt, block_size):
    try:
        return int(format(tkv, "d"))
    except Exception:
        return sound(request, tkv, prompt, block_size)

def by_table(request, tkv, prompt, block_size):
    try:
        return {3: 0, 7: 0}[request.remaining]
    except Exception:
        return sound(request, tkv, prompt, block_size)

def by_length(request, tkv, prompt, block_size):
    # longer than most prompts, but not than a model's context
    return 0 if isinstance(tkv, int) and tkv > 30_000 else sound(request, tkv, prompt, block_size)
"""


@pytest.fixture
def named(tmp_path):
    file = tmp_path / "f.py"
    file.write_text(FORMULAS)
    return lambda name: f"{file}:{name}"


@pytest.mark.parametrize("block", [64, 2, None])
@pytest.mark.parametrize("name", ["sound", "branches", "sound+63"])
def test_a_formula_that_treats_symbols_like_numbers_is_accepted(named, name, block):
    check_on_symbols(named(name), block, Random(0).randrange)


@pytest.mark.parametrize("block", [64, None])
@pytest.mark.parametrize("name", ["by_type", "by_error", "by_table", "by_length"])
def test_a_formula_that_does_not_is_refused(named, name, block):
    with pytest.raises(InputError, match=f"{name}: returns something else on symbols than on num"):
        check_on_symbols(named(name), block, Random(0).randrange)
