"""Why the checks of `model.spyre.peak` keep the limit, and why the exact one refuses no more.

The argument, for a newcomer that joins a batch, with no other request joining. A request ends
after so many steps; it is active until then.

1. `same_batch`: at any step the active are those of the next end, so batch is constant in between.
2. Rounded. `no_longer` and `tkv_within_blocks`: no tkv until then is beyond the blocks of the
   longest active request at that end. So batch x these blocks bounds every step: sound.
3. Exact. Take a step k and the next end e. If no request fills a block in steps k to e - 1, no
   request takes another block (`no_new_block`), so the widths stay and the tkv only grows: it is
   largest at e. Otherwise let f be the last such step. Its tkv is that of all blocks of the
   widest, full (`full_block`), which is no less than at k (`no_longer`). So e and f together bound
   k: sound.
4. `last_fill`: f is as many steps before e as the active request with the fewest tokens beyond
   whole blocks at e has of them.
5. `alone`, `filled`, `largest` and `reached` are about the code that the model runs. `largest`: no
   tkv until an end is larger than it says of the two offsets that it goes by, beside any number of
   others. What the loops do is seen in `loops`, at small sizes: `walk` counts all requests that are
   active at each end, `around` finds the two offsets and `goes_by` takes them, `check_asks` says
   that the answer is taken.
6. After the newcomer has left, and by induction over admissions: as in `volumetric_proof`, 6.
7. Both volumes are reached: at e by the active, at f by them and perhaps more, whose tkv is no less
   (`fewer_is_less`); `reached` says it of the code. So a refused newcomer could exceed the limit:
   no safe request is refused.
"""

from functools import partial
from typing import Any

import z3

from ..smt.numbers import Numbers, negated
from ..smt.obligation import Obligation
from .admission_code import asks
from .any_number import door, later, leaves
from .formulas import Lengths, round_up
from .peak_code import alone, around, filled, goes_by, largest, reached, walk
from .symbols import blocks, length, lengths_of, make_numbers, own_tkv
from .volumetric_proof import fewer_is_less, tkv_within_blocks


def obligations(check: str, block: int | None = 64) -> list[Obligation]:
    """What has to be shown for `exact` or `rounded`; `block` None: for blocks of any size."""
    lengths = lengths_of(block)
    both = [
        Obligation(
            "same_batch",
            "A request is active at a step if it is at the next end.",
            partial(_same_batch, 0),
            partial(_same_batch, 1),
        ),
        Obligation(
            "no_longer",
            "A request that is no longer than another is, no later, within the other's blocks.",
            partial(_no_longer, lengths, 0),
            partial(_no_longer, lengths, 1),
        ),
        tkv_within_blocks(lengths),
        alone(check),
        door(),
        fewer_is_less(lengths),
        leaves(),
        later(),
    ]
    if check == "rounded":
        return [*both, filled()]
    return [
        *both,
        Obligation(
            "no_new_block",
            "A request that fills no block takes no other.",
            partial(_no_new_block, lengths, 0),
            partial(_no_new_block, lengths, 1),
        ),
        Obligation(
            "full_block",
            "A request that has filled its blocks is at the end of the widest one's.",
            partial(_full_block, lengths, 0),
            partial(_full_block, lengths, 1),
        ),
        Obligation(
            "last_fill",
            "A request filled its last block as many steps ago as it has tokens beyond it.",
            partial(_last_fill, lengths, 0),
            partial(_last_fill, lengths, 1),
        ),
    ]


def loops(check: str) -> list[Obligation]:
    """The code around the lemmas, run with few requests."""
    walked = [*(asks(size, by_check=True) for size in (1, 2, 3)), walk(1)]
    if check == "rounded":
        return walked
    return [*walked, *map(around, (1, 2, 3, 4)), *map(goes_by, (1, 2, 3))]


def code(check: str) -> list[Obligation]:
    """About the check's code, for any number of requests, for blocks of 64."""
    return [largest(), reached()] if check == "exact" else []


def _same_batch(late: int) -> list[Any]:
    """`following` is the next end: no request ends between."""
    numbers = Numbers()
    end = length(numbers, "end", 0)
    step, following = length(numbers, "step"), length(numbers, "following")
    numbers.facts += [following >= step, z3.Implies(end >= step, end >= following)]
    return negated(numbers, (end >= step) == (end >= following + late))


def _no_longer(lengths: Lengths, less: int) -> list[Any]:
    numbers = make_numbers(lengths)
    own, longest, step, later = (
        length(numbers, name) for name in ("own", "longest", "step", "later")
    )
    numbers.facts += [own <= longest, step <= later]
    reached = round_up(numbers, lengths, own + step)
    return negated(numbers, reached <= round_up(numbers, lengths, longest + later) - less)


def _no_new_block(lengths: Lengths, more: int) -> list[Any]:
    """`tokens` grow for `steps` steps, and before the last one no step fills a block."""
    numbers = make_numbers(lengths)
    tokens, steps = length(numbers, "tokens"), length(numbers, "steps", 0)
    held = blocks(numbers, lengths, tokens)
    numbers.facts.append(tokens + steps <= held * lengths.block + more)
    return negated(numbers, blocks(numbers, lengths, tokens + steps) == held)


def _full_block(lengths: Lengths, less: int) -> list[Any]:
    numbers = make_numbers(lengths)
    own, widest = length(numbers, "own"), length(numbers, "widest")
    held = blocks(numbers, lengths, own)
    numbers.facts += [own == held * lengths.block, widest >= held]
    reached = own_tkv(numbers, lengths, own, widest)
    return negated(numbers, reached == widest * lengths.block - less)


def _last_fill(lengths: Lengths, less: int) -> list[Any]:
    """`back` steps before it had `tokens`, a request had whole blocks; since then it has been
    between these and one more."""
    numbers = make_numbers(lengths)
    tokens, since = length(numbers, "tokens"), length(numbers, "since", 0)
    whole, back = numbers.split(tokens, lengths.block, None)
    numbers.facts.append(since < back + less)
    filled = whole * lengths.block
    beyond = z3.And(tokens - since > filled, tokens - since < filled + lengths.block)
    return negated(numbers, z3.And(tokens - back == filled, beyond))
