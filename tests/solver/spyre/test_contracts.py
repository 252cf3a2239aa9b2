"""Each contract with plain numbers: it holds of the model wherever its precondition does."""

import re
from inspect import isfunction, signature
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from schedproof.model import pool
from schedproof.model.spyre import documented, peak, release_2_1_2, volumetric
from schedproof.solver.spyre.contracts import CONTRACTS, MAX_MEMBERS
from schedproof.spec.catalogue import load

MODULES = {
    module.__name__.rpartition(".")[2]: module
    for module in (pool, documented, peak, release_2_1_2, volumetric)
}
MAX_BLOCK, MAX_CHUNK_BLOCKS = 128, 16  # where sizes have no bound
LENGTHS = st.integers(0, 40) | st.integers(0, 40_000)


@st.composite
def arguments_of(draw, request):
    """Arguments within the sizes; lengths are often next to a border of a block or a chunk."""
    block = draw(st.integers(request.sizes.block[0], request.sizes.block[1] or MAX_BLOCK))
    blocks = st.integers(
        request.sizes.chunk_blocks[0], request.sizes.chunk_blocks[1] or MAX_CHUNK_BLOCKS
    )
    chunk_blocks = draw(blocks)
    border = st.integers(0, 40).map(lambda n: n * block)
    near = st.builds(lambda at, off: max(at + off, 0), border, st.integers(-1, 1)) | LENGTHS
    drawn: dict[str, Any] = {}
    for name, kind in request.arguments().items():
        if name in ("block", "chunk_blocks"):
            drawn[name] = block if name == "block" else chunk_blocks
        elif kind is int:
            drawn[name] = draw(near)
        else:
            members = near.map(lambda n: max(n, 1))
            drawn[name] = draw(st.lists(members, min_size=1, max_size=MAX_MEMBERS))
    # What would seldom apply is brought near: a precondition decides, not this.
    if "pads" in drawn:
        drawn["pads"] %= chunk_blocks
    if "computed" in drawn:
        drawn["computed"] = min(drawn["computed"], drawn["prompt"] - 1)
    if {"prompt", "hit"} <= set(drawn):
        drawn["hit"] = min(drawn["hit"], (drawn["prompt"] - 1) // block)
    if "filled" in drawn:
        drawn["filled"] = drawn["filled"] % block + 1
    if "longest" in drawn:
        drawn["longest"] = max(drawn["longest"], drawn["tokens"])
    return drawn


@pytest.mark.parametrize("name", CONTRACTS)
@settings(max_examples=10)  # CrossHair proves each
@given(st.data())
def test_a_contract_holds_of_the_model_wherever_it_applies(name, data):
    contract = CONTRACTS[name]
    arguments = data.draw(arguments_of(contract))
    assume(contract.applies(**arguments))
    assert contract.holds(**arguments)


@pytest.mark.parametrize("name", CONTRACTS)
def test_a_contract_says_in_one_sentence_what_it_is_about(name):
    contract = CONTRACTS[name]
    module, _, function = contract.about.partition(".")
    assert callable(getattr(MODULES[module], function))
    assert contract.name == name == f"{contract.holds.__name__}/{contract.sizes.name}"
    assert contract.statement.endswith(".")
    assert "block" in contract.arguments() or "chunk_blocks" in contract.arguments()


def test_the_rules_that_contracts_name_are_in_the_catalogue():
    known = {rule.id for rule in load("spyre")}
    named = set(
        re.findall(r"SPY-R\d+", " ".join(contract.holds.__doc__ for contract in CONTRACTS.values()))
    )
    assert named
    assert named <= known


def test_every_function_of_the_page_on_plain_numbers_has_a_contract():
    about = {contract.about for contract in CONTRACTS.values()}
    of_numbers = {
        f"documented.{name}"
        for name, function in vars(documented).items()
        if isfunction(function)
        and function.__module__ == documented.__name__
        and not {"config", "state", "request"} & {*signature(function).parameters}
    }
    assert len(of_numbers) == 9
    assert about >= of_numbers | {"volumetric.realigned", "release_2_1_2.tkv_after_last_chunk"}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("left_padding/production", {"prompt": 1, "block": 32, "chunk_blocks": 8}),
        ("left_padding/production", {"prompt": 1, "block": 64, "chunk_blocks": 9}),
        ("left_padding/production", {"prompt": 0, "block": 64, "chunk_blocks": 8}),
        ("left_padding/small", {"prompt": 1, "block": 5, "chunk_blocks": 1}),
        ("left_padding/small", {"prompt": 1, "block": 1, "chunk_blocks": 0}),
        ("fewest_blocks/any", {"tokens": 1, "block": 0}),
        ("chunk_in_turn/small", {"prompt": 3, "computed": 3, "block": 1, "chunk_blocks": 1}),
        ("chunk_after_hit/small", {"prompt": 4, "hit": 2, "block": 2, "chunk_blocks": 1}),
        ("usable_hit/any", {"pads": 2, "hit": 0, "chunks": 1, "chunk_blocks": 2}),
        ("rectangle/small", {"lengths": [], "block": 1}),
        ("rectangle/small", {"lengths": [1, 1, 1, 1], "block": 1}),
        ("rectangle/small", {"lengths": [1, 0], "block": 1}),
        ("realigned_tkv/production", {"tokens": 64, "longest": 64, "block": 64}),
        ("tkv_after_prompt/small", {"prompt": 1, "lengths": [1, 1, 1], "block": 1}),
    ],
)
def test_a_contract_does_not_apply_outside_its_sizes_or_to_what_cannot_be(name, arguments):
    assert not CONTRACTS[name].applies(**arguments)
