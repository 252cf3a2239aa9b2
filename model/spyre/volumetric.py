"""The forward-looking volumetric check, and each published formula for it.

Source: Spyre scheduling page, "Volumetric constraint"; releases as named. Each formula projects the
largest tkv that the newcomer and every decoding request can still reach; `accepts` then compares
the projections with the limit. Most formulas do not guarantee the limit.

A formula consists of two terms, one for the newcomer (SPY-R43) and one for a decoding request
(SPY-R44). A term only adds, subtracts, multiplies and divides. It therefore works with integers,
with symbols (`solver.smt.execution`), and with NumPy arrays that hold a number for each lane
(`model.spyre.lanes`). The argument `larger` is a function that returns the maximum of two such
values.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from ..pool import blocks_for
from . import own_formula

# an int, an array of ints, or a symbol; in a term, the fields of a `Decoding` are of this type
Tokens = Any


class Decoding(NamedTuple):
    """A member of the decode batch: its computed tokens, the largest number of decode steps that it
    may still take, its own tkv, and its prompt in tokens (which only the oldest formula uses)."""

    computed: int
    remaining: int
    tkv: int
    prompt: int = 0


class Newcomer(NamedTuple):
    """The request that asks to join: its prompt in tokens, and the tokens that it may generate."""

    prompt: int
    max_tokens: int

    @property
    def remaining(self) -> int:
        """Return how many decode steps the newcomer may take. Its first token comes from the last
        chunk, not from a decode step."""
        return self.max_tokens - 1


class Projection(NamedTuple):
    """The largest tkv that each request can still reach, in tokens.

    With `to_the_end`, `accepts` also checks the requests that outlive the newcomer.
    """

    newcomer: int
    decoding: list[int]
    to_the_end: bool = False


@dataclass(frozen=True, slots=True)
class Formula:
    """One published formula.

    Attributes:
        title: the formula's source, and what distinguishes it.
        newcomer: (tkv of the batch, the larger of that tkv and the newcomer's prompt, the prompt,
            decode steps left, block size) -> largest tkv of the newcomer.
        member: (a maximum function, tkv of the batch, the larger of that tkv and the newcomer's
            prompt, the prompt, the member, block size) -> largest tkv of a decoding request.
        to_the_end: see `Projection`.
        slack: tokens that are added to every projection.
    """

    title: str
    newcomer: Callable[[Tokens, Tokens, Tokens, Tokens, Tokens], Tokens]
    member: Callable[[Callable[..., Tokens], Tokens, Tokens, Tokens, Any, Tokens], Tokens]
    to_the_end: bool = False
    slack: int = 0

    def __call__(
        self, tkv: int, decoding: Sequence[Decoding], newcomer: Newcomer, block_size: int
    ) -> Projection:
        """Project the largest tkv that the newcomer and each decoding request can still reach.
        `tkv` is the tkv of the batch."""
        prompt, max_tokens = newcomer
        base = tkv if tkv >= prompt else prompt
        own = self.newcomer(tkv, base, prompt, max_tokens - 1, block_size)
        term = self.member
        ends = [term(max, tkv, base, prompt, member, block_size) for member in decoding]
        if self.slack:
            own, ends = own + self.slack, [end + self.slack for end in ends]
        return Projection(own, ends, self.to_the_end)


# (members, the newcomer, block size, limit, tkv of the batch) -> may it join?
Check = Callable[[Sequence[Decoding], Newcomer, int, int, int], bool]


@dataclass(frozen=True, slots=True)
class ByFormula:
    """The check of a formula: no projected batch x tkv may exceed the limit (SPY-R47)."""

    formula: Callable[[int, Sequence[Decoding], Newcomer, int], Projection]

    def __call__(
        self, members: Sequence[Decoding], newcomer: Newcomer, block_size: int, limit: int, tkv: int
    ) -> bool:
        return accepts(self.formula(tkv, members, newcomer, block_size), limit)


def accepts(projection: Projection, limit: int) -> bool:
    """Return whether no projected batch x tkv exceeds the limit. The batch shrinks by one at each
    projected end (SPY-R45).

    Unless the projection goes `to_the_end`, members that outlive the newcomer are not checked,
    because they were checked when they joined.
    """
    if projection.to_the_end:
        all_requests = sorted([*projection.decoding, projection.newcomer], reverse=True)
        return all(batch * tkv <= limit for batch, tkv in enumerate(all_requests, 1))
    to_come = len(projection.decoding) + 1
    for tkv in sorted(projection.decoding):
        answer = answer_at(tkv, to_come, projection.newcomer, limit)
        if answer is not None:
            return answer
        to_come -= 1
    return True


def answer_at(tkv: int, to_come: int, newcomer: int, limit: int) -> bool | None:
    """Return whether the newcomer may join, judging by a member that is projected to reach `tkv`.
    Return None if a later member decides. `to_come` counts this member, those that end later, and
    the newcomer."""
    if newcomer <= tkv:
        return to_come * newcomer <= limit
    return None if to_come * tkv <= limit else False


def realigned(tokens: Tokens, width: Tokens, block_size: Tokens) -> Tokens:
    """Return the position at which a request with `tokens` tokens ends if its last block moves to
    block `width` (from 0).

    A request that ends exactly at a block boundary is placed in the next block, as in releases up
    to 2.6 (SPY-R46). The scheduling page leaves this open.
    """
    return width * block_size + tokens % block_size


def round_up(tokens: Tokens, block_size: Tokens) -> Tokens:
    return blocks_for(tokens, block_size) * block_size


# The newcomer's terms.


def newcomer_unpadded(
    tkv: Tokens, base: Tokens, prompt: Tokens, remaining: Tokens, block: Tokens
) -> Tokens:
    return prompt + remaining


def newcomer_in_blocks(
    tkv: Tokens, base: Tokens, prompt: Tokens, remaining: Tokens, block: Tokens
) -> Tokens:
    """Project the newcomer's tkv: its own length in whole blocks, including its last token."""
    return round_up(prompt + remaining + 1, block)


def newcomer_realigned(
    tkv: Tokens, base: Tokens, prompt: Tokens, remaining: Tokens, block: Tokens
) -> Tokens:
    """Project the newcomer's tkv from its place in the batch that it joins."""
    return realigned(prompt, base // block, block) + remaining


def newcomer_0_8_0(
    tkv: Tokens, base: Tokens, prompt: Tokens, remaining: Tokens, block: Tokens
) -> Tokens:
    """Project the newcomer's tkv from the batch's tkv, moved by whole blocks until the prompt
    fits."""
    return tkv + round_up(base - tkv, block) + remaining


def newcomer_2_1_0(
    tkv: Tokens, base: Tokens, prompt: Tokens, remaining: Tokens, block: Tokens
) -> Tokens:
    """Project the newcomer's tkv from its place in the batch, rounded up."""
    return round_up(newcomer_realigned(tkv, base, prompt, remaining, block), block)


def newcomer_2_1_2(
    tkv: Tokens, base: Tokens, prompt: Tokens, remaining: Tokens, block: Tokens
) -> Tokens:
    """Project the newcomer's tkv from its place in the batch, rounded up to whole blocks, and add a
    block."""
    return newcomer_2_1_0(tkv, base, prompt, remaining, block) + block


def newcomer_common_base(
    tkv: Tokens, base: Tokens, prompt: Tokens, remaining: Tokens, block: Tokens
) -> Tokens:
    """Project the newcomer's tkv from the larger of the batch's tkv and the prompt, rounded up to
    whole blocks."""
    return round_up(base + remaining, block)


# The terms of a decoding request.


def member_own_tkv(
    larger: Any, tkv: Tokens, base: Tokens, prompt: Tokens, member: Any, block: Tokens
) -> Tokens:
    return member.tkv + member.remaining + block


def member_realigned(
    larger: Any, tkv: Tokens, base: Tokens, prompt: Tokens, member: Any, block: Tokens
) -> Tokens:
    """Project the member's tkv from its place once the newcomer has joined, and add a block."""
    return member_1_10_0(larger, tkv, base, prompt, member, block) + block


def member_max_tkv(
    larger: Any, tkv: Tokens, base: Tokens, prompt: Tokens, member: Any, block: Tokens
) -> Tokens:
    return tkv + member.remaining + block


def member_figure(
    larger: Any, tkv: Tokens, base: Tokens, prompt: Tokens, member: Any, block: Tokens
) -> Tokens:
    """Return the larger of two projections of the member's final length, which includes its last
    token: the length in whole blocks, plus a block; and the length plus the padding that the
    newcomer's prompt causes."""
    end = member.computed + member.remaining + 1
    padding = larger(blocks_for(prompt, block) - blocks_for(member.computed + 1, block), 0)
    return larger(round_up(end, block) + block, padding * block + end)


def member_0_8_0(
    larger: Any, tkv: Tokens, base: Tokens, prompt: Tokens, member: Any, block: Tokens
) -> Tokens:
    """Project the member's tkv from the batch's tkv in whole blocks. The result is too low by the
    member's prompt."""
    return tkv + round_up(base - tkv, block) + member.remaining - member.prompt


def member_1_10_0(
    larger: Any, tkv: Tokens, base: Tokens, prompt: Tokens, member: Any, block: Tokens
) -> Tokens:
    """Project the member's tkv from its place once the newcomer has joined."""
    return realigned(member.computed, base // block, block) + member.remaining


def member_2_0_1(
    larger: Any, tkv: Tokens, base: Tokens, prompt: Tokens, member: Any, block: Tokens
) -> Tokens:
    return base + member.remaining + block


def member_common_base(
    larger: Any, tkv: Tokens, base: Tokens, prompt: Tokens, member: Any, block: Tokens
) -> Tokens:
    """Project the member's tkv from the larger of the batch's tkv and the prompt, rounded up to
    whole blocks."""
    return round_up(base + member.remaining, block)


def member_2_1_2(
    larger: Any, tkv: Tokens, base: Tokens, prompt: Tokens, member: Any, block: Tokens
) -> Tokens:
    """Project the member's tkv from the larger of the batch's tkv and the prompt, rounded up to
    whole blocks, and add a block."""
    return member_common_base(larger, tkv, base, prompt, member, block) + block


document_own_tkv = Formula(
    'The document, "current tkv" read as each request\'s own tkv before the newcomer joins.',
    newcomer_unpadded,
    member_own_tkv,
)
document_realigned = Formula(
    'The document, "current tkv" read as each request\'s tkv once the newcomer has joined. '
    "The only reading that explains the document's own example (426 x 4 = 1704).",
    newcomer_realigned,
    member_realigned,
)
document_max_tkv = Formula(
    'The document, "current tkv" read as the batch\'s max-tkv, which the newcomer does not have.',
    newcomer_unpadded,
    member_max_tkv,
)
document_figure = Formula(
    "Drawn in the page's own admission figure, unlike the page's text or any release.",
    newcomer_in_blocks,
    member_figure,
    to_the_end=True,
)
release_0_8_0 = Formula(
    "vllm-spyre 0.7.0 to 0.8.0: the remaining tokens of decoding requests are too few by a prompt.",
    newcomer_0_8_0,
    member_0_8_0,
)
release_1_10_0 = Formula(
    "vllm-spyre 1.3.0 to 1.10.0: no request gets a block for a realignment.",
    newcomer_realigned,
    member_1_10_0,
)
release_2_0_1 = Formula(
    "sendnn-inference 2.0.0 and 2.0.1: decoding requests share a base, the newcomer does not.",
    newcomer_realigned,
    member_2_0_1,
)
release_2_1_0 = Formula(
    "sendnn-inference 2.1.0: rounded up to whole blocks, without the extra block.",
    newcomer_2_1_0,
    member_common_base,
)
release_2_1_2 = Formula(
    "sendnn-inference 2.1.1 and later: rounded up, with one more block for every request. Sound "
    "for a tkv that is the batch's own.",
    newcomer_2_1_2,
    member_2_1_2,
)
common_base = Formula(
    "Unreleased: projects every request from max(tkv, prompt), rounded up. Sound, no extra block.",
    newcomer_common_base,
    member_common_base,
)

FORMULAS: dict[str, Formula] = {
    "document_own_tkv": document_own_tkv,
    "document_realigned": document_realigned,
    "document_max_tkv": document_max_tkv,
    "document_figure": document_figure,
    "0.8.0": release_0_8_0,
    "1.10.0": release_1_10_0,
    "2.0.1": release_2_0_1,
    "2.1.0": release_2_1_0,
    "2.1.2": release_2_1_2,
    "common_base": common_base,
}


def formula_named(name: str) -> Formula | None:
    """Return the formula that `FORMULA` or `FORMULA+TOKENS` names, or None. FORMULA may be the
    user's own, `FILE.py:FUNCTION`.

    Raise InputError if the user's own formula cannot be read.
    """
    word, plus, tokens = name.partition("+")
    own = own_formula.NAME.fullmatch(name)
    if own is not None:
        word, plus = f"{own['file']}:{own['function']}", own["slack"] or ""
        tokens = plus[1:]
    if plus and not (tokens.isascii() and tokens.isdigit()):
        return None
    formula = FORMULAS.get(word) if own is None else by_own_term(word)
    if formula is None:
        return None
    slack = int(tokens or 0)
    return replace(formula, slack=slack) if slack else formula


@cache
def by_own_term(name: str) -> Formula:
    """Return the formula of a user's function. Raise InputError if the function cannot be read."""
    term = own_formula.read_term(name)

    def newcomer(
        tkv: Tokens, base: Tokens, prompt: Tokens, remaining: Tokens, block: Tokens
    ) -> Tokens:
        own = own_formula.OwnRequest(prompt, prompt, remaining, prompt, joins=True)
        return term(own, tkv, prompt, block)

    def member(
        larger: Any, tkv: Tokens, base: Tokens, prompt: Tokens, member: Any, block: Tokens
    ) -> Tokens:
        computed, remaining, own_tkv, own_prompt = member
        other = own_formula.OwnRequest(own_prompt, computed, remaining, own_tkv, joins=False)
        return term(other, tkv, prompt, block)

    return Formula(name, newcomer, member)
