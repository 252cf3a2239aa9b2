"""Every symbolic formula is the one of the model, on numbers that are given.

The checks that project nothing say on symbols what the model's say on numbers.
"""

import random

import pytest
import z3

from schedproof.model.spyre import peak, volumetric
from schedproof.solver.smt.numbers import Numbers, value_in
from schedproof.solver.spyre.symbolic_admission import (
    CHECKS,
    Joining,
    Lengths,
    Member,
    Projected,
    accepts,
    formula_named,
)


def batch(seed, block):
    chance = random.Random(seed)
    members = [
        volumetric.Decoding(*(chance.randint(1, most * block) for most in (6, 3, 7, 1)))
        for _ in range(chance.randint(1, 4))
    ]
    tkv = max(member.tkv for member in members)
    return (
        tkv,
        members,
        volumetric.Newcomer(chance.randint(1, 8 * block), chance.randint(1, 3 * block)),
    )


def symbols(numbers, tkv, members, newcomer):
    here = z3.BoolVal(True)
    return (
        z3.IntVal(tkv),
        [Member(here, *(z3.IntVal(number) for number in member)) for member in members],
        Joining(z3.IntVal(newcomer.prompt), z3.IntVal(newcomer.remaining)),
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", volumetric.FORMULAS)
def test_a_formula_projects_what_the_model_projects(name):
    for seed in range(40):
        block = (2, 64)[seed % 2]
        numbers, state = Numbers(), batch(seed, block)
        expected = volumetric.FORMULAS[name](*state, block)
        own, others, to_the_end = formula_named(name)(
            numbers, Lengths(block, 40 * block), *symbols(numbers, *state)
        )
        solver = z3.Solver()
        solver.add(numbers.facts)
        assert solver.check() == z3.sat
        model = solver.model()
        assert value_in(model, own) == expected.newcomer
        assert [value_in(model, other) for other in others] == expected.decoding
        assert to_the_end == expected.to_the_end


def asked(projection, limit, gone=()):
    """Does the walk of the solver accept?"""
    numbers = Numbers()
    members = [
        Member(z3.BoolVal(place not in gone), None, None, None, None)
        for place in range(len(projection.decoding))
    ]
    terms = [z3.IntVal(tkv) for tkv in projection.decoding]
    solver = z3.Solver()
    own = z3.IntVal(projection.newcomer)
    solver.add(
        accepts(
            numbers, Lengths(2, None), Projected(own, terms, projection.to_the_end), members, limit
        )
    )
    return solver.check() == z3.sat


@pytest.mark.slow
@pytest.mark.parametrize("to_the_end", [False, True])
def test_the_walk_accepts_what_the_model_accepts(to_the_end):
    answers = set()
    for seed in range(150):
        chance = random.Random(seed)
        terms = [chance.randint(1, 9) for _ in range(chance.randint(0, 4))]
        projection = volumetric.Projection(chance.randint(1, 9), terms, to_the_end)
        limit = chance.randint(4, 24)
        expected = volumetric.accepts(projection, limit)
        assert asked(projection, limit) == expected, (projection, limit)
        answers.add(expected)
    assert answers == {True, False}


@pytest.mark.parametrize("to_the_end", [False, True])
def test_who_has_left_is_not_walked(to_the_end):
    projection = volumetric.Projection(5, [3, 9, 4], to_the_end)
    without = volumetric.Projection(5, [9, 4], to_the_end)
    for limit in range(4, 24):
        expected = volumetric.accepts(without, limit)
        assert asked(projection, limit, gone=(0,)) == expected


def test_slack_is_added_for_everyone_as_in_the_model():
    numbers, state = Numbers(), batch(3, 64)
    expected = volumetric.formula_named("2.1.0+38")(*state, 64)
    own, others, _ = formula_named("2.1.0+38")(
        numbers, Lengths(64, None), *symbols(numbers, *state)
    )
    solver = z3.Solver()
    solver.add(numbers.facts)
    assert solver.check() == z3.sat
    assert value_in(solver.model(), own) == expected.newcomer
    assert [value_in(solver.model(), other) for other in others] == expected.decoding


@pytest.mark.parametrize("name", ["2.1.0+", "2.1.0+x", "2.1.3", "+1", "2.1.0+-1", ""])
def test_a_name_that_means_nothing_is_no_formula(name):
    assert volumetric.formula_named(name) is None
    with pytest.raises(KeyError, match=r".*"):
        formula_named(name)


VOLUMES = {"exact": peak.peak_volume, "rounded": peak.rounded_volume}


def any_batch(seed, block):
    chance = random.Random(seed)
    members = [
        volumetric.Decoding(chance.randint(1, 5 * block), chance.randint(1, 3 * block), 0)
        for _ in range(chance.randint(0, 4))
    ]
    return members, volumetric.Newcomer(chance.randint(1, 5 * block), chance.randint(1, 3 * block))


def accepted(name, block, members, newcomer, limit, gone=0):
    """Does the symbolic check accept? `gone` strangers are not there any more."""
    numbers = Numbers()
    decoding = [
        Member(
            z3.BoolVal(True),
            z3.IntVal(member.computed),
            z3.IntVal(member.remaining),
            None,
            None,
        )
        for member in members
    ]
    stranger = Member(z3.BoolVal(False), z3.IntVal(999), z3.IntVal(50), None, None)
    joining = Joining(z3.IntVal(newcomer.prompt), z3.IntVal(newcomer.remaining))
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
@pytest.mark.parametrize("name", CHECKS)
def test_the_model_s_volume_is_the_smallest_limit_that_is_accepted(name):
    asked = 0
    for seed in range(60):
        block = (1, 2, 4, 64)[seed % 4]
        members, newcomer = any_batch(seed, block)
        volume = VOLUMES[name](members, newcomer, block)
        assert accepted(name, block, members, newcomer, max(volume, 1)), seed
        if volume > 1:
            assert not accepted(name, block, members, newcomer, volume - 1), seed
            asked += 1
    assert asked > 40


@pytest.mark.parametrize("name", CHECKS)
def test_who_has_left_counts_for_nothing(name):
    members, newcomer = any_batch(7, 4)
    volume = VOLUMES[name](members, newcomer, 4)
    assert volume > 1
    assert accepted(name, 4, members, newcomer, volume, gone=2)
    assert not accepted(name, 4, members, newcomer, volume - 1, gone=2)


@pytest.mark.slow
def test_a_fault_planted_in_the_exact_check_disagrees_with_the_model(monkeypatch):
    monkeypatch.setattr(
        "schedproof.solver.spyre.symbolic_admission._fills_block_of_the_widest",
        lambda *_: z3.BoolVal(False),
    )
    accepted_too_much = 0
    for seed in range(40):
        members, newcomer = any_batch(seed, 4)
        volume = peak.peak_volume(members, newcomer, 4)
        if volume > 1:
            accepted_too_much += accepted("exact", 4, members, newcomer, volume - 1)
    assert accepted_too_much > 0
