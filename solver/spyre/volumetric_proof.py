"""Why a formula keeps the limit, for any number of requests: lemmas about one of them, or a pair.

The argument. Let T be the tkv that admission goes by when a newcomer with a prompt of P tokens
joins, and base = max(T, P). RU rounds up to whole blocks.

1. No member is longer than T, so no request is longer than base: `length_within_tkv` where T is the
   batch's own, `remembered_proof` where T is what the last forward reported.
2. `growth`: k decode steps later no request is longer than base + k, nor is RU beyond RU(base + k).
3. `tkv_within_blocks`: so no tkv is beyond RU(base + k): a tkv ends in the widest member's blocks.
4. `covers_decoding`, `covers_newcomer`: the formula's term of a request that runs R more steps is
   at least RU(base + R). So by 3 the term of each request that is active in step k covers tkv(k).
5. `walk`: take a step k in which the newcomer is active, and with it m requests in all. The walk
   goes by ascending terms. It stops with yes before it passes the first active request, or it
   passes that one: all m are still to come then, and m x tkv(k) is within the limit. Or it passes
   no active request: the newcomer is alone, and within the limit by `door`.
6. After the newcomer has left, the batch is part of the one before it joined, at the same lengths
   (`later`). A request that leaves, early or not, makes no tkv larger (`fewer_is_less`), so what
   was within the limit still is (`leaves`). By induction over admissions the limit is kept.

4 and 5 are about the code that the model runs, on symbols. That its loops do in turn what `walk`
says of one request is seen in `loops`, which runs them with up to four. Each lemma has a guard: the
same lemma, about a formula that gives less, which must be refuted.
"""

from typing import Any, NamedTuple, cast

from ...model.spyre import volumetric
from ..smt.execution import Path, SymbolicRun, bare, paths
from ..smt.numbers import Numbers, negated
from ..smt.obligation import Obligation, decide
from .admission_code import asks, counting, holds_on
from .any_number import door, later, leaves, walk
from .formulas import Joining, Lengths, base_of, round_up
from .symbols import blocks, length, lengths_of, make_numbers, own_tkv


def obligations(formula: str, block: int | None = 64) -> list[Obligation]:
    """What has to be shown for `formula`, from 2 on, in the argument's order.

    `block`: tokens of a block; None: of any size, by symbols.
    """
    lengths = lengths_of(block)
    return [
        Obligation(
            "growth",
            "After k steps, a request no longer than the base fits in the base's blocks.",
            lambda: _growth(lengths, 0),
            lambda: _growth(lengths, 1),
        ),
        tkv_within_blocks(lengths),
        Obligation(
            "covers_decoding",
            "The term of a decoding request covers the base's blocks for as long as it runs.",
            lambda: _covers_decoding(formula, lengths, 0),
            # 2.1.2 gives requests that decode a block that the argument does not need.
            lambda: _covers_decoding(formula, lengths, lengths.block + 1),
        ),
        Obligation(
            "covers_newcomer",
            "The term of the newcomer covers the base's blocks for as long as it runs.",
            lambda: _covers_newcomer(formula, lengths, 0),
            lambda: _covers_newcomer(formula, lengths, 1),
        ),
        walk(),
        door(),
        fewer_is_less(lengths),
        leaves(),
        later(),
    ]


def loops() -> list[Obligation]:
    """The code around the lemmas, run with few requests."""
    return [*map(asks, (1, 2, 3)), *map(counting, (1, 2, 3, 4))]


def length_within_tkv(lengths: Lengths) -> Obligation:
    """For every formula that is asked by the batch's own tkv."""
    return Obligation(
        "length_within_tkv",
        "No member of the batch is longer than the batch's tkv.",
        lambda: _length_within_tkv(lengths, 0),
        lambda: _length_within_tkv(lengths, 1),
    )


def tkv_within_blocks(lengths: Lengths) -> Obligation:
    """For every check."""
    return Obligation(
        "tkv_within_blocks",
        "A tkv ends within the blocks of the widest member.",
        lambda: _tkv_within_blocks(lengths, 0),
        lambda: _tkv_within_blocks(lengths, 1),
    )


def fewer_is_less(lengths: Lengths) -> Obligation:
    """For every check."""
    return Obligation(
        "fewer_is_less",
        "A request that leaves raises no request's tkv.",
        lambda: _fewer_is_less(lengths, 0),
        lambda: _fewer_is_less(lengths, 1),
    )


def _length_within_tkv(lengths: Lengths, less: int) -> list[Any]:
    numbers = make_numbers(lengths)
    own, widest = length(numbers, "own"), length(numbers, "widest")
    numbers.facts.append(widest >= blocks(numbers, lengths, own))
    return negated(numbers, own <= own_tkv(numbers, lengths, own, widest) - less)


def _growth(lengths: Lengths, less: int) -> list[Any]:
    numbers = make_numbers(lengths)
    own, base, steps = (length(numbers, name) for name in ("own", "base", "steps"))
    numbers.facts.append(own <= base)
    grown = round_up(numbers, lengths, own + steps)
    return negated(numbers, grown <= round_up(numbers, lengths, base + steps) - less)


def _tkv_within_blocks(lengths: Lengths, less: int) -> list[Any]:
    numbers = make_numbers(lengths)
    own, widest = length(numbers, "own"), length(numbers, "widest")
    numbers.facts.append(widest >= blocks(numbers, lengths, own))
    reached = own_tkv(numbers, lengths, own, widest)
    return negated(numbers, reached <= widest * lengths.block - less)


class Batch(NamedTuple):
    """A batch in symbols, members no longer than the tkv that admission goes by, and a newcomer."""

    tkv: Any
    members: list[volumetric.Decoding]
    prompt: Any
    remaining: Any

    @property
    def base(self) -> Any:
        """The wider of batch and prompt."""
        return base_of(self.tkv, Joining(self.prompt, self.remaining))


def _batch(numbers: Numbers, decoding: int) -> Batch:
    tkv = length(numbers, "tkv")
    members = []
    for _ in range(decoding):
        computed, own = length(numbers, "computed"), length(numbers, "own_tkv")
        remaining = length(numbers, "remaining")
        prompt = length(numbers, "prompt")
        numbers.facts += [prompt <= computed, computed <= own, computed <= tkv]
        members.append(volumetric.Decoding(computed, remaining, own, prompt))
    return Batch(tkv, members, length(numbers, "prompt"), length(numbers, "remaining", 0))


def _projected(formula: str, numbers: Numbers, lengths: Lengths, batch: Batch) -> list[Path]:
    """What the model's formula projects, on every path through it."""
    asked = volumetric.formula_named(formula)
    if asked is None:
        raise KeyError(formula)

    def code(run: SymbolicRun) -> volumetric.Projection:
        members = [
            volumetric.Decoding(*(cast(int, run.number(each)) for each in member))
            for member in batch.members
        ]
        prompt, tokens = run.number(batch.prompt), run.number(batch.remaining + 1)
        newcomer = volumetric.Newcomer(cast(int, prompt), cast(int, tokens))
        block = lengths.block if isinstance(lengths.block, int) else run.number(lengths.block)
        return asked(cast(int, run.number(batch.tkv)), members, newcomer, cast(int, block))

    return list(paths(numbers, code))


def covers(formula: str) -> bool:
    """Whether the terms of both cover the base's blocks, for blocks of 64."""
    lengths = lengths_of(64)
    claims = _covers_newcomer(formula, lengths, 0), _covers_decoding(formula, lengths, 0)
    return all(decide(claim)[0] == "unsat" for claim in claims)


def _covers_decoding(formula: str, lengths: Lengths, less: int) -> list[Any]:
    numbers = make_numbers(lengths)
    batch = _batch(numbers, 1)
    taken = _projected(formula, numbers, lengths, batch)
    due = round_up(numbers, lengths, batch.base + batch.members[0].remaining)
    return holds_on(numbers, taken, lambda ends: bare(ends.decoding[0]) - less >= due)


def _covers_newcomer(formula: str, lengths: Lengths, less: int) -> list[Any]:
    numbers = make_numbers(lengths)
    batch = _batch(numbers, 1)
    taken = _projected(formula, numbers, lengths, batch)
    due = round_up(numbers, lengths, batch.base + batch.remaining)
    return holds_on(numbers, taken, lambda ends: bare(ends.newcomer) - less >= due)


def _fewer_is_less(lengths: Lengths, less: int) -> list[Any]:
    numbers = make_numbers(lengths)
    own, before, after = (length(numbers, name) for name in ("own", "before", "after"))
    numbers.facts += [before >= after, after >= blocks(numbers, lengths, own)]
    now = own_tkv(numbers, lengths, own, after)
    return negated(numbers, now <= own_tkv(numbers, lengths, own, before) - less)
