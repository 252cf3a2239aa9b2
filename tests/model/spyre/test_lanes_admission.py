"""Admission on rows is that of the reference model, at its limits and beside them."""

import random
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

from schedproof.model.spyre import volumetric
from schedproof.model.spyre.documented import max_tkv, request_tkvs
from schedproof.model.spyre.lanes import (
    END,
    MAX_TOKENS,
    PROMPT,
    Choices,
    Rules,
    satisfies_last_chunk,
)
from schedproof.model.spyre.volumetric import FORMULAS, Decoding, Newcomer, realigned

ROWS, CASES = 6, 12
FREE = Rules(4, 8, 99, 10**6, 10**9, True, Choices(volumetric.document_own_tkv))


class Case(NamedTuple):
    """A batch and who asks to join; `rows` are (prompt, max_tokens, end, computed), requests that
    do not decode among them."""

    rows: list[tuple[int, int, int, int]]
    members: list[Decoding]
    newcomer: Newcomer
    tkv: int


def case(draw, block):
    rows = []
    for _ in range(ROWS):
        prompt, max_tokens = draw.randint(1, 5 * block), draw.randint(2, 5 * block + 2)
        end = prompt + draw.randint(2, max_tokens) - 1
        decodes = draw.randint(prompt, end - 1)
        rows.append((prompt, max_tokens, end, draw.choice((decodes, decodes, prompt - 1, end))))
    batch = [row for row in rows if row[0] <= row[3] < row[2]]
    lengths = [computed for *_, computed in batch]
    members = [
        Decoding(computed, max_tokens - (computed - prompt + 1), own, prompt)
        for (prompt, max_tokens, _, computed), own in zip(
            batch, request_tkvs(lengths, block), strict=True
        )
    ]
    newcomer = Newcomer(draw.randint(1, 6 * block), draw.randint(1, 5 * block))
    return Case(rows, members, newcomer, max_tkv(lengths, block) if lengths else 0)


def on_rows(rules, cases):
    """What the lanes say, a lane a case."""
    table = np.array([draw.rows for draw in cases]).transpose(2, 1, 0)
    requested = np.zeros((4, ROWS, len(cases)), np.int64)
    requested[[PROMPT, MAX_TOKENS, END]] = table[:3]
    reported = satisfies_last_chunk(
        rules,
        requested,
        table[3].copy(),
        np.array([draw.tkv for draw in cases]),
        np.array([draw.newcomer.prompt for draw in cases]),
        np.array([draw.newcomer.max_tokens for draw in cases]),
    )
    verdicts: list[bool] = reported.tolist()
    return verdicts


def cases_of(name, block):
    draw = random.Random(f"{name} {block}")
    return [case(draw, block) for _ in range(CASES)]


@pytest.mark.slow
@pytest.mark.parametrize("block", [1, 4, 64])
@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("slack", [0, 3])
def test_the_volume_is_that_of_the_formula_at_every_limit(name, block, slack):
    cases, projections = cases_of(name, block), []
    for draw in cases:
        own, others, to_the_end = volumetric.FORMULAS[name](
            draw.tkv, draw.members, draw.newcomer, block
        )
        more = [other + slack for other in others]
        projections.append(volumetric.Projection(own + slack, more, to_the_end))
    products = {
        batch * tkv
        for projection in projections
        for tkv in (projection.newcomer, *projection.decoding)
        for batch in range(1, len(projection.decoding) + 2)
    }
    formula = replace(FORMULAS[name], slack=slack)
    rules: Any = FREE._replace(block_size=block, choices=Choices(formula))
    seen = set()
    for limit in sorted({near for product in products for near in (product - 1, product)}):
        expected = [volumetric.accepts(projection, limit) for projection in projections]
        assert on_rows(rules._replace(max_batch_tkv=limit), cases) == expected, limit
        seen.update(expected)
    assert seen == {True, False}


@pytest.mark.parametrize("block", [1, 4, 64])
def test_the_model_length_is_that_of_everyone_realigned(block):
    cases, ends = cases_of("length", block), []
    for draw in cases:
        width = max(draw.tkv, draw.newcomer.prompt) // block
        own = realigned(draw.newcomer.prompt, width, block) + draw.newcomer.remaining
        others = [realigned(each.computed, width, block) + each.remaining for each in draw.members]
        ends.append(max(own, *others) if others else own)
    rules = FREE._replace(block_size=block)
    for length in sorted({near for end in ends for near in (end - 1, end)}):
        expected = [end <= length for end in ends]
        assert on_rows(rules._replace(max_model_len=length), cases) == expected, length


def test_a_slot_is_free_below_max_num_seqs():
    cases = cases_of("slots", 4)
    sizes = [len(draw.members) for draw in cases]
    assert {2, 3, 4} <= set(sizes)
    for slots in range(1, ROWS + 1):
        expected = [size < slots for size in sizes]
        assert on_rows(FREE._replace(max_num_seqs=slots), cases) == expected
