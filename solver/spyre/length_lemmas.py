"""The constraint on max_model_len (SPY-R41): what it is for, which bound it guarantees, and which
requests it admits.

Let mml be max_model_len, and RU round up to whole blocks. The check of a request on arrival, called
the front door in the names of lemmas, requires prompt + max_tokens - 1 <= mml. So no request is
ever longer than mml.

If mml is a whole number of blocks, the constraint is not needed. The check on arrival is enough to
keep every tkv within mml:

1. `whole_blocks_keep_model_length`: a max-tkv combines the width of the widest member with the
   offset of the same or another member. When a prompt joins, releases report a tkv that is computed
   in the same way, from the prompt and the previous tkv.

If mml is not a whole number of blocks, no tkv exceeds RU(mml), and the constraint does not lower
that bound:

2. `no_tkv_exceeds_rounded_model_length`: as 1, for any mml.
3. `constraint_admits_rounded_model_length`: for every mml that is no multiple of the block size,
   two requests that pass both checks reach RU(mml). Blocks must have 3 tokens or more.
4. `front_door_admits_rounded_model_length`: the same holds for the releases' check on arrival,
   RU(prompt) + max_tokens <= mml, if mml exceeds a multiple of the block size by at least 2 tokens.
   `front_door_excludes_one_odd_token`: if mml exceeds the multiple by only 1 token, no request is
   longer than the multiple, and 1 holds.

Nor can the constraint keep a request out forever. A lone request may be checked against the tkv of
a batch that has left (`release_2_1_2.current_tkv`). If it is refused, the step is idle, and the
scheduler forgets that tkv. Then:

5. `lone_request_passes_length`: every lone request passes the constraint if no tkv is remembered.
6. `lone_request_passes_volume`: it also passes the volumetric check, whatever the limit and the
   formula, as `symbolic_admission` encodes them. Two checks that no release uses, `document_figure`
   and `rounded`, may refuse it.

The functions after the lemmas construct counterexamples at any scale, from closed formulas that Z3
solves. Each has two requests: the first arrives at step 0, and the second early enough for its
first chunk. Replay a counterexample before you report it.
"""

from typing import Any, NamedTuple

import z3

from ...model.scenario import Request, Scenario
from ...model.spyre import volumetric
from ...model.spyre.documented import chunk_count
from ..smt.numbers import Numbers, negated, tell_multiples, value_in
from ..smt.obligation import Obligation, lemma
from .symbolic_admission import (
    Joining,
    Lengths,
    Member,
    accepted_by,
    base_of,
    lengths_of,
    make_numbers,
    round_up,
    width,
    within_length,
)

LIMIT = 131_072  # tokens, in the counterexamples
# All checks except two that no release uses, and that may refuse a lone request.
NEVER_REFUSE_ALONE = tuple(
    name for name in (*volumetric.FORMULAS, "exact") if name != "document_figure"
)


def obligations(block: int | None = None) -> list[Obligation]:
    lengths = lengths_of(block)
    lemmas = [make(lengths) for make in LEMMAS]
    return lemmas + [lone_request_passes_volume(name, lengths) for name in NEVER_REFUSE_ALONE]


def passes(
    numbers: Numbers,
    lengths: Lengths,
    current: Any,
    batch: list[tuple[Any, Any]],
    newcomer: Joining,
    longest: Any,
) -> Any:
    """Return whether `documented.fits_model_length` accepts.

    `batch` lists, for each member, its computed tokens and its remaining decode steps.
    """
    members = [(z3.BoolVal(True), *member) for member in batch]
    return z3.And(within_length(numbers, lengths, current, members, newcomer, longest))


def joint_tkv(numbers: Numbers, lengths: Lengths, number: Any, other: Any) -> Any:
    """Return the max-tkv of two members with these lengths."""
    [before, offset], [before_other, offset_other] = (
        width(numbers, lengths, tokens - 1) for tokens in (number, other)
    )
    widest = numbers.largest([before, before_other])
    return widest * lengths.block + numbers.largest([offset, offset_other]) + 1


def _two(numbers: Numbers, longest: Any) -> tuple[Any, Any]:
    """Return the lengths of two requests that the check on arrival accepted."""
    first, other = numbers.fresh("one", 1), numbers.fresh("other", 1)
    numbers.facts += [first <= longest, other <= longest]
    return first, other


def _tell_order(numbers: Numbers, lengths: Lengths, known: list[Any], *tokens: Any) -> None:
    """Give Z3 the fact that of two counts in whole blocks, the larger one is larger by at least one
    block, as `more_blocks_are_one_block_more` proves. The counts are those in `known`, and those of
    `tokens`."""
    if isinstance(lengths.block, int):
        return
    wholes = known + [width(numbers, lengths, number)[0] for number in tokens]
    tell_multiples(numbers, lengths.block, *wholes)


@lemma("Of two numbers of blocks, the larger holds at least one block of tokens more.")
def more_blocks_are_one_block_more(lengths: Lengths, more: int) -> list[Any]:
    numbers = make_numbers(lengths)
    first, other = numbers.fresh("one", 0), numbers.fresh("other", 0)
    numbers.facts.append(first > other)
    return negated(numbers, first * lengths.block >= (other + 1) * lengths.block + more)


@lemma(
    "If max_model_len is whole blocks, the check on arrival is enough to keep every tkv within it."
)
def whole_blocks_keep_model_length(lengths: Lengths, more: int) -> list[Any]:
    numbers = make_numbers(lengths)
    blocks = numbers.fresh("blocks", 1)
    longest = blocks * lengths.block + more
    first, other = _two(numbers, longest)
    tkv = joint_tkv(numbers, lengths, first, other)
    _tell_order(numbers, lengths, [blocks], first - 1, other - 1)
    return negated(numbers, tkv <= longest)


@lemma("No tkv exceeds max_model_len, rounded up to whole blocks.")
def no_tkv_exceeds_rounded_model_length(lengths: Lengths, less: int) -> list[Any]:
    numbers = make_numbers(lengths)
    longest = numbers.fresh("longest", 1)
    first, other = _two(numbers, longest)
    tkv = joint_tkv(numbers, lengths, first, other)
    _tell_order(numbers, lengths, [], longest - 1, first - 1, other - 1)
    return negated(numbers, tkv <= round_up(numbers, lengths, longest) - less)


@lemma(
    "If max_model_len is not whole blocks, the constraint lets two requests reach it, rounded up."
)
def constraint_admits_rounded_model_length(lengths: Lengths, less: int) -> list[Any]:
    return _two_reach_rounded_model_length(lengths, less, at_the_door=False)


@lemma(
    "If max_model_len is two tokens or more beyond whole blocks, the constraint and the "
    "releases' check on arrival let two requests reach it, rounded up."
)
def front_door_admits_rounded_model_length(lengths: Lengths, less: int) -> list[Any]:
    return _two_reach_rounded_model_length(lengths, less, at_the_door=True)


def _two_reach_rounded_model_length(lengths: Lengths, less: int, *, at_the_door: bool) -> list[Any]:
    """Claim that the check on arrival and the constraint accept two requests that reach the rounded
    model length.

    They are the requests of `beyond_length`. The first is two tokens beyond a block boundary, and
    the second has a prompt of one token. Both still decode one token fewer than a block holds.
    """
    numbers = make_numbers(lengths)
    block = lengths.block
    numbers.facts.append(block >= 3)
    blocks = numbers.fresh("blocks", 1)
    before = blocks * block  # all whole blocks of max_model_len except one
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
    _tell_order(
        numbers,
        lengths,
        [z3.IntVal(0), blocks, blocks + 1],
        *(computed, computed + left - 1, short, short + left - 1, longest - 1),
    )
    reached = tkv == round_up(numbers, lengths, longest)
    return negated(numbers, z3.And(joins, door, reached))


@lemma(
    "If max_model_len is one token beyond whole blocks, the releases let no request use that token."
)
def front_door_excludes_one_odd_token(lengths: Lengths, more: int) -> list[Any]:
    numbers = make_numbers(lengths)
    whole = numbers.fresh("blocks", 1) * lengths.block
    prompt, max_tokens = numbers.fresh("prompt", 1), numbers.fresh("max_tokens", 1)
    numbers.facts.append(round_up(numbers, lengths, prompt) + max_tokens <= whole + 1 + more)
    return negated(numbers, prompt + max_tokens - 1 <= whole)


def _alone(numbers: Numbers, longest: Any) -> Joining:
    """Return an arbitrary request that the check on arrival accepted and that has a token left to
    decode."""
    prompt, remaining = numbers.fresh("prompt", 1), numbers.fresh("remaining", 1)
    numbers.facts.append(prompt + remaining <= longest)
    return Joining(prompt, remaining)


@lemma("Alone and with no tkv remembered, every request passes the constraint.")
def lone_request_passes_length(lengths: Lengths, stale: int) -> list[Any]:
    """Claim that a lone request passes the constraint. If `stale` is 1, make the guard's claim
    instead, which must fail: the tkv may come from any earlier batch."""
    numbers = make_numbers(lengths)
    longest = numbers.fresh("longest", 1)
    newcomer = _alone(numbers, longest)
    remembered = numbers.fresh("remembered", 0, longest if stale else 0)
    joins = passes(numbers, lengths, remembered, [], newcomer, longest)
    _tell_order(numbers, lengths, [], newcomer.prompt, base_of(remembered, newcomer))
    return negated(numbers, joins)


@lemma(
    "No request that is alone is refused for volume by {check}.",
    name="lone_request_passes_volume_{check}",
)
def lone_request_passes_volume(check: str, lengths: Lengths, others: int) -> list[Any]:
    return alone_within_volume(check, lengths, others)


def alone_within_volume(check: str, lengths: Lengths, others: int) -> list[Any]:
    """Return facts that hold if the check refuses a request at some limit while `others` requests
    decode. If `others` is 0, the request is alone."""
    numbers = make_numbers(lengths)
    limit = numbers.fresh("limit", 1)
    newcomer = _alone(numbers, limit)
    batch = []
    for _ in range(others):
        computed, remaining = _alone(numbers, limit)
        batch.append(Member(z3.BoolVal(True), computed, remaining, computed, computed))
    tkv = numbers.largest([member.tkv for member in batch] or [z3.IntVal(0)])
    fits = accepted_by(check, numbers, lengths, tkv, batch, newcomer, limit)
    return negated(numbers, z3.And(fits))


LEMMAS = (
    more_blocks_are_one_block_more,
    whole_blocks_keep_model_length,
    no_tkv_exceeds_rounded_model_length,
    constraint_admits_rounded_model_length,
    front_door_admits_rounded_model_length,
    front_door_excludes_one_odd_token,
    lone_request_passes_length,
)


PATIENCE = 60.0  # seconds of Z3 for one search


class Scale(NamedTuple):
    """Lengths in tokens. The default is Spyre's production scale."""

    block: int = 64
    chunk: int = 512
    max_model_len: int = 32_768


class Ask(NamedTuple):
    """A request in symbols: the tokens of its prompt, and the tokens that it may generate."""

    prompt: Any
    max_tokens: Any


def beyond_length(scale: Scale, revision: str = "sound") -> Scenario:
    """Return a scenario with two requests that the check on arrival and SPY-R41 accept, although
    their tkv exceeds max_model_len.

    The tkv is max_model_len rounded up to whole blocks. Blocks must have at least 3 tokens, and
    max_model_len must be at least 2 blocks and 1 token. If max_model_len exceeds whole blocks by 2
    tokens or more, the releases' check on arrival accepts the requests as well.
    """
    block, longest = scale.block, scale.max_model_len
    border = (longest // block - 1) * block
    # When the second joins, the first is two tokens beyond the boundary, and still generates one
    # token fewer than a block has.
    decodes = 2 if longest % block > 1 else 1
    first, second = Ask(border + 2 - decodes, block + decodes), Ask(1, block)
    note = "a tkv beyond max_model_len"
    return _scenario(scale, revision, [first, second], note, decodes)


def needless_wait(scale: Scale, revision: str = "sound") -> Scenario | None:
    """Return a scenario in which SPY-R41 makes the second of two requests wait for no reason, and
    as long as possible.

    Even without the rule, no tkv would exceed max_model_len. The second request has a prompt of one
    chunk. It is first considered after a decode step, and refused until the first request has
    ended. Return None if no request waits at this scale. max_model_len must be a whole number of
    blocks.
    """
    numbers = Numbers()
    lengths = Lengths(scale.block, None)
    first, second = _requests(numbers, lengths, scale)
    numbers.facts.append(second.prompt <= scale.chunk)
    waits = first.max_tokens - 2
    numbers.facts.append(waits >= 1)
    computed = first.prompt + 1
    joining = Joining(second.prompt, second.max_tokens - 1)
    longest = scale.max_model_len
    numbers.facts.append(z3.Not(passes(numbers, lengths, computed, [], joining, longest)))
    numbers.facts.append(second.max_tokens >= 2)
    best = z3.Optimize()
    best.add(numbers.facts)
    best.maximize(waits)
    best.minimize(first.prompt + second.prompt + second.max_tokens)
    return _solve(best, scale, revision, (first, second), "needlessly refused")


def idle_step(scale: Scale) -> Scenario | None:
    """Return a scenario with two requests, in which the release refuses the last chunk of the
    second because of an outdated tkv.

    The tkv is that of the first request, which has just left. Return None if there is no such
    scenario at this scale.
    """
    numbers = Numbers()
    lengths = Lengths(scale.block, None)
    first, second = _requests(numbers, lengths, scale)
    # One decode step before each of the two chunks.
    numbers.facts += [first.max_tokens == 3, second.max_tokens >= 2]
    numbers.facts += [second.prompt > scale.chunk, second.prompt <= 2 * scale.chunk]
    joining = Joining(second.prompt, second.max_tokens - 1)
    stale = first.prompt + 2
    fits = passes(numbers, lengths, stale, [], joining, scale.max_model_len)
    best = z3.Optimize()
    best.add([*numbers.facts, z3.Not(fits)])
    best.minimize(first.prompt + second.prompt + second.max_tokens)
    return _solve(best, scale, "2.1.2", (first, second), "an idle step")


def _requests(numbers: Numbers, lengths: Lengths, scale: Scale) -> tuple[Ask, Ask]:
    """Return two requests that pass the releases' own input checks, which round prompts up."""
    requests = []
    for name in ("first", "second"):
        prompt = numbers.fresh(f"{name}_prompt", 1, scale.max_model_len)
        max_tokens = numbers.fresh(f"{name}_max_tokens", 1, scale.max_model_len)
        rounded = round_up(numbers, lengths, prompt)
        numbers.facts.append(rounded + max_tokens <= scale.max_model_len)
        requests.append(Ask(prompt, max_tokens))
    return requests[0], requests[1]


def _solve(
    best: z3.Optimize, scale: Scale, revision: str, requests: tuple[Ask, Ask], note: str
) -> Scenario | None:
    """Return the best solution, or None if there is none. Raise TimeoutError if Z3 gives up."""
    best.set("timeout", int(1000 * PATIENCE))
    answer = best.check()
    if answer == z3.unknown:
        raise TimeoutError(f"no answer within {PATIENCE} s")
    if answer == z3.unsat:
        return None
    model = best.model()
    solution = [
        Ask(value_in(model, request.prompt), value_in(model, request.max_tokens))
        for request in requests
    ]
    return _scenario(scale, revision, solution, note)


def _scenario(
    scale: Scale,
    revision: str,
    requests: list[Ask],
    note: str,
    decodes: int = 1,
) -> Scenario:
    """Return the scenario in which the second request arrives `decodes` decode steps after the
    first."""
    steps = [0, chunk_count(requests[0].prompt, scale.chunk) + decodes]
    return Scenario(
        system="spyre",
        revision=revision,
        config={
            "block_size": scale.block,
            "chunk_size": scale.chunk,
            "max_model_len": scale.max_model_len,
            "max_batch_tkv": LIMIT,
        },
        requests=tuple(
            Request(
                id=f"r{number}",
                arrival=step,
                prompt=((f"r{number}", request.prompt),),
                max_tokens=request.max_tokens,
            )
            for number, (step, request) in enumerate(zip(steps, requests, strict=True))
        ),
        origin={"engine": "z3", "note": note, "seed": None},
    )
