"""The constraint on max_model_len (SPY-R41): its purpose, what it keeps, and what it admits.

Let `mml` be max_model_len, and RU round up to whole blocks. The front door keeps
prompt + max_tokens - 1 <= mml, so no request is ever longer than mml.

Is it needed, where mml is whole blocks? No, the front door alone keeps every tkv within mml:

1. `decode_within_whole_blocks`: a max-tkv has the width of one member, the widest, and the offset
   of another (or the same). The tkv that releases report when a prompt joins is the same sum, of
   the prompt and the tkv before.

Where it is not? Then no tkv is beyond RU(mml), and the constraint does not lower that bound:

2. `never_beyond_rounded`: as 1, without the assumption.
3. `lets_the_widest_in`: two requests that front door and constraint accept reach RU(mml), for
   every mml between two multiples of the block (blocks of 3 tokens or more).
4. `lets_the_widest_in_at_the_door`: so they do with the releases' front door, RU(prompt) +
   max_tokens <= mml, if mml is 2 tokens or more beyond whole blocks.
   `door_of_one_token`: with one token no request is longer than those blocks, and 1 holds.

Can it keep out for ever? A request whose turn it is alone is judged by the tkv of a batch that has
left (`release_2_1_2.current_tkv`); refused, the step is idle and forgets that tkv. Then:

5. `alone_within_length`: alone and with no tkv remembered every request passes the constraint.
6. `alone_within_volume`: and the volumetric check, by whatever formula.

Each guard takes a token away from the same claim, or adds one to what must not be there.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import z3

from ...model.spyre import volumetric
from ..numbers import Numbers, negated, ordered
from ..obligation import Obligation
from .formulas import Joining, Lengths, Member, base_of, round_up, width, within_length
from .peak import accepted_by
from .symbols import lengths_of, make_numbers

LIMIT = 131_072  # tokens; what is shown of a request that is alone depends on none
# Without the checks of no release, which may refuse a lone request (`length_search.refused_alone`).
NEVER_REFUSE_ALONE = tuple(
    name for name in (*volumetric.FORMULAS, "exact") if name != "document_figure"
)


def obligations(block: int | None = None) -> list[Obligation]:
    """Everything that has to be shown, in the argument's order. None: blocks of any size."""
    lengths = lengths_of(block)
    found = [
        Obligation(name, sentence, partial(lemma, lengths, 0), partial(lemma, lengths, 1))
        for name, (sentence, lemma) in LEMMAS.items()
    ]
    return found + [
        Obligation(
            f"alone_within_volume_{name}",
            f"No request that is alone is refused for volume by {name}.",
            partial(alone_within_volume, name, lengths, 0),
            partial(alone_within_volume, name, lengths, 1),
        )
        for name in NEVER_REFUSE_ALONE
    ]


def passes(
    numbers: Numbers,
    lengths: Lengths,
    current: Any,
    batch: list[tuple[Any, Any]],
    newcomer: Joining,
    longest: Any,
) -> Any:
    """`documented.fits_model_length`; `batch`: tokens computed and decode steps left."""
    there = [(z3.BoolVal(True), *one) for one in batch]
    return z3.And(within_length(numbers, lengths, current, there, newcomer, longest))


def joint_tkv(numbers: Numbers, lengths: Lengths, one: Any, other: Any) -> Any:
    """The max-tkv of two members with `one` and `other` tokens."""
    [before, offset], [before_other, offset_other] = (
        width(numbers, lengths, tokens - 1) for tokens in (one, other)
    )
    widest = numbers.largest([before, before_other])
    return widest * lengths.block + numbers.largest([offset, offset_other]) + 1


def _two(numbers: Numbers, longest: Any) -> tuple[Any, Any]:
    """Lengths of two requests that the front door let in."""
    one, other = numbers.fresh("one", 1, None), numbers.fresh("other", 1, None)
    numbers.facts += [one <= longest, other <= longest]
    return one, other


def _ordered(numbers: Numbers, lengths: Lengths, known: list[Any], *tokens: Any) -> None:
    """Tell Z3 what `more_blocks` proves, of blocks that are known and those in `tokens`."""
    if isinstance(lengths.block, int):
        return
    wholes = known + [width(numbers, lengths, one)[0] for one in tokens]
    ordered(numbers, lengths.block, *wholes)


def _more_blocks(lengths: Lengths, more: int) -> list[Any]:
    numbers = make_numbers(lengths)
    one, other = numbers.fresh("one", 0, None), numbers.fresh("other", 0, None)
    numbers.facts.append(one > other)
    return negated(numbers, one * lengths.block >= (other + 1) * lengths.block + more)


def _decode_within_whole_blocks(lengths: Lengths, more: int) -> list[Any]:
    numbers = make_numbers(lengths)
    blocks = numbers.fresh("blocks", 1, None)
    longest = blocks * lengths.block + more
    one, other = _two(numbers, longest)
    tkv = joint_tkv(numbers, lengths, one, other)
    _ordered(numbers, lengths, [blocks], one - 1, other - 1)
    return negated(numbers, tkv <= longest)


def _never_beyond_rounded(lengths: Lengths, less: int) -> list[Any]:
    numbers = make_numbers(lengths)
    longest = numbers.fresh("longest", 1, None)
    one, other = _two(numbers, longest)
    tkv = joint_tkv(numbers, lengths, one, other)
    _ordered(numbers, lengths, [], longest - 1, one - 1, other - 1)
    return negated(numbers, tkv <= round_up(numbers, lengths, longest) - less)


def _lets_the_widest_in(at_the_door: bool, lengths: Lengths, less: int) -> list[Any]:
    """As `length_search.beyond_length` has them: a request two tokens beyond a block border, and
    a prompt of one token, both with a block less one token to decode."""
    numbers = make_numbers(lengths)
    block = lengths.block
    numbers.facts.append(block >= 3)
    blocks = numbers.fresh("blocks", 1, None)
    before = blocks * block  # all whole blocks of max_model_len but one
    longest = before + block + numbers.fresh("beyond", 2 if at_the_door else 1, block - 1)
    short = z3.IntVal(1)
    computed, left = before + 2, block - 1 - less
    joins = passes(numbers, lengths, computed, [(computed, left)], Joining(short, left), longest)
    if at_the_door:
        # The first had a prompt of `before` tokens, and has emitted three.
        door = z3.And(before + (left + 3) <= longest, block + (left + 1) <= longest)
    else:
        door = computed + left <= longest
    tkv = joint_tkv(numbers, lengths, computed + left, short + left)
    _ordered(
        numbers,
        lengths,
        [z3.IntVal(0), blocks, blocks + 1],
        *(computed, computed + left - 1, short, short + left - 1, longest - 1),
    )
    reached = tkv == round_up(numbers, lengths, longest)
    return negated(numbers, z3.And(joins, door, reached))


def _door_of_one_token(lengths: Lengths, more: int) -> list[Any]:
    numbers = make_numbers(lengths)
    whole = numbers.fresh("blocks", 1, None) * lengths.block
    prompt, max_tokens = numbers.fresh("prompt", 1, None), numbers.fresh("max_tokens", 1, None)
    numbers.facts.append(round_up(numbers, lengths, prompt) + max_tokens <= whole + 1 + more)
    return negated(numbers, prompt + max_tokens - 1 <= whole)


def _alone(numbers: Numbers, longest: Any) -> Joining:
    """Any request that the front door let in, with a token to decode."""
    prompt, remaining = numbers.fresh("prompt", 1, None), numbers.fresh("remaining", 1, None)
    numbers.facts.append(prompt + remaining <= longest)
    return Joining(prompt, remaining)


def _alone_within_length(lengths: Lengths, stale: int) -> list[Any]:
    """`stale`: with any tkv that a batch before it can have had."""
    numbers = make_numbers(lengths)
    longest = numbers.fresh("longest", 1, None)
    newcomer = _alone(numbers, longest)
    remembered = numbers.fresh("remembered", 0, longest if stale else 0)
    joins = passes(numbers, lengths, remembered, [], newcomer, longest)
    _ordered(numbers, lengths, [], newcomer.prompt, base_of(remembered, newcomer))
    return negated(numbers, joins)


def alone_within_volume(check: str, lengths: Lengths, others: int) -> list[Any]:
    """A request that the check refuses although it is alone; `others`: with so many decoding."""
    numbers = make_numbers(lengths)
    newcomer = _alone(numbers, LIMIT)
    batch = []
    for _ in range(others):
        computed, remaining = _alone(numbers, LIMIT)
        batch.append(Member(z3.BoolVal(True), computed, remaining, computed, computed))
    tkv = numbers.largest([member.tkv for member in batch] or [z3.IntVal(0)])
    fits = accepted_by(check, numbers, lengths, tkv, batch, newcomer, LIMIT)
    return negated(numbers, z3.And(fits))


Lemma = Callable[[Lengths, int], list[Any]]
LEMMAS: dict[str, tuple[str, Lemma]] = {
    "more_blocks": ("More blocks are at least one block's tokens more.", _more_blocks),
    "decode_within_whole_blocks": (
        "If max_model_len is whole blocks, the front door alone keeps every tkv within it.",
        _decode_within_whole_blocks,
    ),
    "never_beyond_rounded": (
        "No tkv is beyond max_model_len, rounded up to whole blocks.",
        _never_beyond_rounded,
    ),
    "lets_the_widest_in": (
        "If max_model_len is not whole blocks, the constraint lets two reach it, rounded up.",
        partial(_lets_the_widest_in, False),
    ),
    "lets_the_widest_in_at_the_door": (
        "So do constraint and the releases' front door, from two tokens beyond whole blocks on.",
        partial(_lets_the_widest_in, True),
    ),
    "door_of_one_token": (
        "One token beyond whole blocks, the releases' front door lets no request use that token.",
        _door_of_one_token,
    ),
    "alone_within_length": (
        "Alone and with no tkv remembered, every request passes the constraint.",
        _alone_within_length,
    ),
}
