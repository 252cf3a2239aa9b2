"""Projections on rows are those of the published formulas."""

import random

import numpy as np
import pytest

from schedproof.model.spyre import volumetric
from schedproof.model.spyre.volumetric import Decoding, Newcomer
from schedproof.model.vectorized.projections import FORMULAS, of_member, of_newcomer


def test_every_published_formula_is_there() -> None:
    assert set(FORMULAS) == set(volumetric.FORMULAS)


@pytest.mark.parametrize("name", FORMULAS)
def test_a_row_of_projections_is_that_of_the_formula(name: str) -> None:
    draw, number = random.Random(name), FORMULAS.index(name)
    for _ in range(60):
        block, tkv = draw.choice((1, 4, 64)), draw.randint(0, 300)
        newcomer = Newcomer(draw.randint(1, 300), draw.randint(1, 99))
        members = [
            Decoding(draw.randint(1, 300), draw.randint(1, 99), draw.randint(1, 400), prompt)
            for prompt in (1, 4, 65)
        ]
        own, others, _ = volumetric.FORMULAS[name](tkv, members, newcomer, block)
        rows = Decoding(*(np.array(row) for row in zip(*members, strict=True)))
        ends = of_member(number, tkv, newcomer.prompt, rows, block)
        assert ends.tolist() == others
        assert of_newcomer(number, tkv, newcomer.prompt, newcomer.remaining, block) == own
