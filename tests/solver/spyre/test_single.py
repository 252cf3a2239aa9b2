"""One admission into any batch: found exactly where the model's arithmetic has one."""

from itertools import combinations_with_replacement, product

import pytest

from schedproof.model.spyre import documented, volumetric
from schedproof.model.spyre.peak import peak_volume
from schedproof.solver.numbers import KINDS, Numbers
from schedproof.solver.obligation import decide
from schedproof.solver.spyre import formulas
from schedproof.solver.spyre.single import found_in, single_admission
from schedproof.solver.spyre.volumetric import Setting

BLOCK, LONGEST = 2, 6
SIZES = [(c, r) for c, r in product(range(1, LONGEST), repeat=2) if c + r <= LONGEST]


def setting(formula: str, requests: int, limit: int) -> Setting:
    return Setting(formula, requests, block=BLOCK, limit=limit, max_model_len=LONGEST)


def solved(asked: Setting, kind="integers"):
    problem = single_admission(asked, kind)
    answer, solution = decide(problem.facts)
    assert answer != "unknown"
    return None if solution is None else found_in(problem, solution)


def overruns(asked: Setting, members, newcomer) -> bool:
    """In some decode step of the newcomer the limit is exceeded, and without it it is not."""
    for step in range(1, newcomer[1] + 1):
        active = [computed + step for computed, remaining in members if remaining >= step]
        reached = documented.max_tkv([*active, newcomer[0] + step], BLOCK)
        kept = len(active) * documented.max_tkv(active, BLOCK) <= asked.limit
        if active and kept and (len(active) + 1) * reached > asked.limit:
            return True
    return False


def some_batch_overruns(asked: Setting) -> bool:
    for members in combinations_with_replacement(SIZES, asked.requests - 1):
        own = documented.request_tkvs([computed for computed, _ in members], BLOCK)
        prompts = product(*(range(1, computed + 1) for computed, _ in members))
        for newcomer, asked_for in product(SIZES, prompts):
            decoding = [
                volumetric.Decoding(*one, at, prompt)
                for one, at, prompt in zip(members, own, asked_for, strict=True)
            ]
            asks = volumetric.Newcomer(newcomer[0], newcomer[1] + 1)
            formula = volumetric.formula_named(asked.formula)
            projection = formula(max(own), decoding, asks, BLOCK)
            accepted = volumetric.accepts(projection, asked.limit)
            if accepted and overruns(asked, members, newcomer):
                return True
    return False


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("limit", [7, 8, 11])
@pytest.mark.parametrize("formula", volumetric.FORMULAS)
def test_there_is_a_batch_exactly_if_the_model_s_arithmetic_has_one(formula, limit, kind):
    asked = setting(formula, 2, limit)
    assert (solved(asked, kind) is not None) == some_batch_overruns(asked)


@pytest.mark.parametrize("formula", ["2.0.1", "2.1.0", "2.1.2", "common_base"])
def test_so_it_is_with_three(formula):
    asked = setting(formula, 3, 13)
    assert (solved(asked) is not None) == some_batch_overruns(asked)


@pytest.mark.slow
@pytest.mark.parametrize("requests", [2, 8])
def test_at_production_scale_2_1_0_accepts_what_overruns(requests):
    longest = {2: 32_768, 8: 24_576}[requests]
    limit = 131_072 if requests > 2 else 32_781
    asked = Setting("2.1.0", requests, limit=limit, max_model_len=longest)
    found = solved(asked)
    assert peak_volume(found.decoding, found.newcomer, 64) > limit
    projection = volumetric.release_2_1_0(found.tkv, found.decoding, found.newcomer, 64)
    assert volumetric.accepts(projection, limit)
    assert found.tkv == max(one.tkv for one in found.decoding)


@pytest.mark.parametrize("formula", ["2.1.2", "common_base"])
@pytest.mark.parametrize("requests", [2, 4, 5, 8])
def test_at_production_scale_a_sound_formula_accepts_nothing_that_does(formula, requests):
    limit = 131_072 if requests > 4 else requests * 16_384 + 13
    longest = 32_768 if requests < 8 else 16_384 + 6_000
    assert solved(Setting(formula, requests, limit=limit, max_model_len=longest)) is None


@pytest.mark.slow
def test_the_walk_in_order_is_the_walk():
    differ = set()
    for terms in combinations_with_replacement(range(1, 7), 3):
        for own, limit in product(range(1, 7), (4, 8, 12)):
            numbers = Numbers()
            projected = formulas.Projected(
                numbers.value(own), [numbers.value(term) for term in terms]
            )
            answer, _ = decide(formulas.accepts_in_order(projected, limit))
            expected = volumetric.accepts(volumetric.Projection(own, list(terms)), limit)
            assert (answer == "sat") == expected, (terms, own, limit)
            differ.add(expected)
    assert differ == {True, False}


def test_a_fault_planted_in_the_walk_disagrees_with_the_arithmetic(monkeypatch):
    def forgets_the_first(projected, limit):
        return formulas.accepts_in_order(projected._replace(decoding=projected.decoding[1:]), limit)

    asked = setting("common_base", 3, 13)
    assert solved(asked) is None
    monkeypatch.setattr("schedproof.solver.spyre.single.accepts_in_order", forgets_the_first)
    assert (solved(asked) is not None) != some_batch_overruns(asked)
