"""The lanes' step compiled by Numba, where that is installed: the same functions, lane by lane."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ..pool import blocks_for
from ..spyre import volumetric
from ..spyre.documented import chunk_count, left_padding_blocks
from ..spyre.volumetric import realigned
from . import admission, projections, rows, turn
from .rules import IDLE, KIND, OVER

CALLED: tuple[Callable[..., Any], ...] = (
    *(blocks_for, chunk_count, left_padding_blocks, realigned, volumetric.round_up),
    *dict.fromkeys(formula.newcomer for formula in volumetric.FORMULAS.values()),
    *dict.fromkeys(formula.member for formula in volumetric.FORMULAS.values()),
    *(rows.within_block, rows.in_last_block, rows.rectangle),
    *(projections.of_newcomer, projections.of_member),
    *(admission.satisfies_last_chunk, admission.accepts),
    *(turn.turn, turn.batch_of, turn.candidate_of, turn.may_prefill, turn.until_event),
    *(turn.after_chunk, turn.tkv_after, turn.remember),
)


@cache
def compiled() -> Callable[..., None] | None:
    """`run_each`, compiled when it is first called; None where Numba is not installed."""
    try:
        from numba import njit
        from numba.extending import overload, register_jitable
    except ImportError:
        return None
    for function in CALLED:
        register_jitable(function)
    # A row is one number here.
    overload(rows.choose)(
        lambda condition, yes, no: lambda condition, yes, no: yes if condition else no
    )
    overload(rows.any_row)(lambda condition: lambda condition: condition)
    overload(rows.among)(lambda rows, condition: lambda rows, condition: rows)
    overload(rows.spread)(lambda condition, truths: lambda condition, truths: truths)
    run: Callable[..., None] = njit(run_each, error_model="numpy", nogil=True)
    return run


def run_each(rules: Any, asked: Any, lane: Any, max_steps: int, max_idle: int) -> None:
    """Each lane by itself to its end, (lane, field, request) and (lane, field) in memory."""
    requests = asked.shape[2]
    projected = np.zeros(requests, np.int64)
    for place in range(len(asked)):
        computed = np.zeros(requests, np.int64)
        own, reported = asked[place], lane[place]
        turn.turn(rules, own, computed, reported, projected, max_steps)
        while reported[KIND] != OVER and reported[IDLE] <= max_idle:
            turn.turn(rules, own, computed, reported, projected, max_steps)
