"""Compare a user's formula on symbols with the same formula on numbers.

The lemmas run the formula on symbols. A formula may return something else there than in a run of
the model, for example if it looks at the types of its arguments, or catches the error when symbols
do not support an operation. A proof would then be about another formula.
"""

from collections.abc import Callable, Iterator

import z3

from ...model.errors import InputError
from ...model.spyre import volumetric
from ...model.spyre.own_formula import ON_SYMBOLS
from ..smt.execution import bare, holds_on
from .formula_lemmas import batch_of, projected
from .symbolic_admission import lengths_of, make_numbers

SAMPLES = 100  # for each of these largest lengths, in tokens
LARGEST = (8, 130, 4000, 40_000)  # the last exceeds the context of Spyre's models


def check_on_symbols(formula: str, block: int | None, choose: Callable[[int], int]) -> None:
    """Raise InputError if the formula returns a different result on symbols than on numbers, for
    one of a few hundred random batches. `block` is as for `lengths_of`, and `choose` returns a
    random number below its argument."""
    lengths = lengths_of(block)
    numbers = make_numbers(lengths)
    batch = batch_of(numbers, 1)
    taken = projected(formula, numbers, lengths, batch)
    newcomer, member = z3.Ints("newcomer member")
    solver = z3.Solver()
    solver.add(
        holds_on(
            numbers,
            taken,
            lambda ends: z3.And(bare(ends.newcomer) == newcomer, bare(ends.decoding[0]) == member),
        )
    )
    project = volumetric.formula_named(formula)
    assert project is not None
    symbols = [batch.tkv, *batch.members[0], batch.prompt, batch.remaining]
    for values, some_block in _samples(choose):
        tkv, *of_member, prompt, remaining = values
        size = block or some_block
        joining = volumetric.Newcomer(prompt, remaining + 1)
        found = project(tkv, [volumetric.Decoding(*of_member)], joining, size)
        given = [symbol == value for symbol, value in zip(symbols, values, strict=True)]
        given += [newcomer == found.newcomer, member == found.decoding[0]]
        if block is None:
            given.append(lengths.block == size)
        if solver.check(*given) == z3.sat:
            batch_words = f"tkv={tkv}, prompt={prompt}, remaining={remaining}, block_size={size}"
            problem = f"{formula}: returns something else on symbols than on numbers, such as "
            raise InputError("formula", f"{problem}{batch_words}; {ON_SYMBOLS}")


def _samples(choose: Callable[[int], int]) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield the tkv, the numbers of a decoding request, the newcomer's prompt and remaining tokens,
    and a block size. No request is longer than the tkv."""
    for most in LARGEST:
        for _ in range(SAMPLES):
            prompt = 1 + choose(most)
            computed = prompt + choose(most)
            tkv, own = (computed + choose(most) for _ in range(2))
            member = computed, 1 + choose(most), own, prompt
            newcomer = 1 + choose(most), choose(most)
            yield (tkv, *member, *newcomer), (2, 16, 64)[choose(3)]
