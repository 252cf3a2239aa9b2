"""The state in which every run of a model begins."""

from collections.abc import Callable
from typing import Any

import z3

from ...model.pool import Pool, free_blocks
from .execution import SymbolicRun, bare, holds_on, paths
from .numbers import Numbers
from .obligation import lemma


@lemma(
    "A run begins without requests, with nothing remembered, and with every block free.",
    "systems.ReferenceModel.initial",
)
def run_begins_empty(make: Callable[[SymbolicRun, Numbers], Any], more: int) -> list[Any]:
    """Claim that every run of the model that `make` returns begins in this state. If `more` is 1,
    make the guard's claim instead, which must fail: the pool has one block more than its
    configuration says."""
    numbers = Numbers()

    def code(run: SymbolicRun) -> Any:
        model = make(run, numbers)
        state = model.initial()
        plain = state._replace(pool=Pool()) == type(state)()
        blocks, free = model.config.num_blocks, free_blocks(state.pool)
        if blocks is None or free is None:
            return z3.BoolVal(plain and blocks is free)
        same = state.pool._replace(size=None) == Pool()
        return z3.And(plain and same, bare(free) == bare(blocks) + more)

    return holds_on(numbers, paths(numbers, code), lambda claim: claim)
