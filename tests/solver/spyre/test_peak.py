"""The checks that project nothing say on symbols what the model's say on numbers."""

import random

import pytest
import z3

from schedproof.model.spyre import peak, volumetric
from schedproof.solver.smt.numbers import KINDS, Numbers
from schedproof.solver.spyre.formulas import Joining, Lengths, Member
from schedproof.solver.spyre.peak import CHECKS

VOLUMES = {"exact": peak.peak_volume, "rounded": peak.rounded_volume}


def batch(seed, block):
    chance = random.Random(seed)
    members = [
        volumetric.Decoding(chance.randint(1, 5 * block), chance.randint(1, 3 * block), 0)
        for _ in range(chance.randint(0, 4))
    ]
    return members, volumetric.Newcomer(chance.randint(1, 5 * block), chance.randint(1, 3 * block))


def accepted(name, kind, block, members, newcomer, limit, gone=0):
    """Does the symbolic check accept? `gone` strangers are not there any more."""
    numbers = Numbers(kind)
    decoding = [
        Member(
            z3.BoolVal(True), numbers.value(one.computed), numbers.value(one.remaining), None, None
        )
        for one in members
    ]
    stranger = Member(z3.BoolVal(False), numbers.value(999), numbers.value(50), None, None)
    joining = Joining(numbers.value(newcomer.prompt), numbers.value(newcomer.remaining))
    lengths = Lengths(block, 2000)
    facts = CHECKS[name](numbers, lengths, [stranger] * gone + decoding, joining, limit)
    solver = z3.Solver()
    solver.add(numbers.facts)
    assert solver.check() == z3.sat
    solver.add(facts)
    return solver.check() == z3.sat


def test_the_names_are_those_of_the_model():
    assert CHECKS.keys() == peak.CHECKS.keys() == VOLUMES.keys()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CHECKS)
def test_the_model_s_volume_is_the_smallest_limit_that_is_accepted(name, kind):
    asked = 0
    for seed in range(60):
        block = (1, 2, 4, 64)[seed % 4]
        members, newcomer = batch(seed, block)
        volume = VOLUMES[name](members, newcomer, block)
        assert accepted(name, kind, block, members, newcomer, max(volume, 1)), seed
        if volume > 1:
            assert not accepted(name, kind, block, members, newcomer, volume - 1), seed
            asked += 1
    assert asked > 40


@pytest.mark.parametrize("name", CHECKS)
def test_who_has_left_counts_for_nothing(name):
    members, newcomer = batch(7, 4)
    volume = VOLUMES[name](members, newcomer, 4)
    assert volume > 1
    assert accepted(name, "integers", 4, members, newcomer, volume, gone=2)
    assert not accepted(name, "integers", 4, members, newcomer, volume - 1, gone=2)


def test_a_fault_planted_in_the_exact_check_disagrees_with_the_model(monkeypatch):
    monkeypatch.setattr(
        "schedproof.solver.spyre.peak._fills_block_of_the_widest", lambda *_: z3.BoolVal(False)
    )
    accepted_too_much = 0
    for seed in range(40):
        members, newcomer = batch(seed, 4)
        volume = peak.peak_volume(members, newcomer, 4)
        if volume > 1:
            accepted_too_much += accepted("exact", "integers", 4, members, newcomer, volume - 1)
    assert accepted_too_much > 0
