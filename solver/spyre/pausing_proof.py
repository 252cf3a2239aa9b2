"""How long decode pausing can hold a request back (SPY-R51, SPY-P01).

A request that may decode is asked in order of fairness: paused longest first, then by tokens
generated, then by place in the queue. N requests share the limit, paused ones included.

1. `first_is_kept`: a request that is asked first decodes, since alone it is within the limit.
2. `stays_ahead`: while a request is paused, no request that was asked after it comes before it.
3. `falls_behind`: a request that was asked before it and decodes is asked after it from then on.
   `joins_behind`: so is a request that starts.
4. Counting. By 1 and 3 each step that settles the pauses takes at least one from those before a
   paused request, and by 2 no request is added: at most N - 1 such steps in a row hold it back.
5. `slots_kept`: N is at most max_num_seqs, although a paused request holds no slot.

So among themselves paused requests never starve, whichever outputs have priority. What 4 does not
count are steps in which no request is asked: prefills. While a request decodes none starts; when
the last one leaves, release 2.5.2 lets the next in although a request is paused (its `is_empty`).
If that one stays, the next step asks again; a prompt of one chunk that wants one token leaves at
once, and the next follows, without end if they keep coming (`starving`). With finitely many
requests a paused one waits at most 2 (N - 1) steps, and one for each of those.

Each guard takes a step's count, or the one that is kept, away.
"""

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import z3

from ...model.scenario import Request, Scenario
from ...model.spyre.documented import chunk_count
from ..numbers import Numbers, negated
from ..obligation import Obligation


class Scale(NamedTuple):
    """Lengths and `limit` (of batch x tkv) in tokens. The default is Spyre's production scale."""

    block: int = 64
    chunk: int = 512
    max_model_len: int = 32_768
    limit: int = 131_072
    max_num_seqs: int = 32


class FairnessRank(NamedTuple):
    """A request in the order of fairness; `place` among requests that are equal in the rest."""

    paused_steps: Any
    generated: Any
    place: Any


def obligations(block: int | None = None) -> list[Obligation]:
    """Everything that has to be shown, in the argument's order, whatever the size of a block."""
    return [
        Obligation(name, sentence, partial(lemma, 0), partial(lemma, 1))
        for name, (sentence, lemma) in LEMMAS.items()
    ]


def before(one: FairnessRank, other: FairnessRank, long_outputs: Any) -> Any:
    """`one` is asked before `other` by `model.spyre.release_2_5_2.fairness_order`."""
    shorter = z3.If(long_outputs, one.generated > other.generated, one.generated < other.generated)
    as_long = one.generated == other.generated
    tie = z3.Or(shorter, z3.And(as_long, one.place < other.place))
    equal = one.paused_steps == other.paused_steps
    return z3.Or(one.paused_steps > other.paused_steps, z3.And(equal, tie))


def starving(scale: Scale, members: int, passing: int) -> Scenario:
    """The first is paused, the others leave, and `passing` one-token requests go before it.

    So many members exceed the limit together; one less must not, at any length that they reach.
    """
    prompt = next(
        tokens
        for tokens in count(1)
        if members * (tokens + chunk_count(tokens, scale.chunk) * (members - 1) + 1) > scale.limit
    )
    # Each joins a decode step per chunk after the one before. All but the first end in the step
    # after the last has joined, in which the first, with the most tokens generated, is paused.
    chunks = chunk_count(prompt, scale.chunk)
    tokens = [2 + chunks * (members - 1 - number) for number in range(members)]
    tokens[0] += 1
    asked = [(prompt, own) for own in tokens] + [(1, 1)] * passing
    return Scenario(
        system="spyre",
        revision="2.5.2",
        config={
            "block_size": scale.block,
            "chunk_size": scale.chunk,
            "max_num_seqs": scale.max_num_seqs,
            "max_model_len": scale.max_model_len,
            "max_batch_tkv": scale.limit,
        },
        requests=tuple(
            Request(id=f"r{number}", arrival=0, prompt=((f"r{number}", one),), max_tokens=own)
            for number, (one, own) in enumerate(asked)
        ),
        origin={"engine": "hand", "note": "prefills go before a paused request", "seed": None},
    )


def _asked(numbers: Numbers) -> FairnessRank:
    return FairnessRank(
        numbers.fresh("paused_steps", 0, None),
        numbers.fresh("generated", 1, None),
        numbers.fresh("place", 0, None),
    )


def _paused(one: FairnessRank, place: Any, uncounted: int = 0) -> FairnessRank:
    """After a step in which it was paused."""
    return FairnessRank(one.paused_steps + 1 - uncounted, one.generated, place)


def _kept(numbers: Numbers, one: FairnessRank) -> FairnessRank:
    """After a step in which it decoded, wherever it stands then."""
    return FairnessRank(z3.IntVal(0), one.generated + 1, numbers.fresh("place", 0, None))


def _first_is_kept(more: int) -> list[Any]:
    numbers = Numbers()
    prompt, max_tokens = numbers.fresh("prompt", 1, None), numbers.fresh("max_tokens", 1, None)
    generated, limit = numbers.fresh("generated", 1, None), numbers.fresh("limit", 1, None)
    numbers.facts += [generated < max_tokens, prompt + max_tokens - 1 <= limit + more]
    computed = prompt + generated - 1
    return negated(numbers, computed + 1 <= limit)  # alone, a request's tkv is its length


def _stays_ahead(uncounted: int) -> list[Any]:
    numbers = Numbers()
    one, other, long_outputs = _asked(numbers), _asked(numbers), z3.Bool("long_outputs")
    numbers.facts.append(before(one, other, long_outputs))
    # The paused are listed in the order in which they were asked.
    first, second = numbers.fresh("first", 0, None), numbers.fresh("second", 0, None)
    numbers.facts.append(first < second)
    still = _paused(one, first, uncounted)
    return negated(
        numbers,
        z3.And(
            before(still, _paused(other, second), long_outputs),
            before(still, _kept(numbers, other), long_outputs),
        ),
    )


def _falls_behind(uncounted: int) -> list[Any]:
    numbers = Numbers()
    one, other, long_outputs = _asked(numbers), _asked(numbers), z3.Bool("long_outputs")
    numbers.facts.append(before(other, one, long_outputs))
    still = _paused(one, one.place, uncounted)
    return negated(numbers, before(still, _kept(numbers, other), long_outputs))


def _joins_behind(uncounted: int) -> list[Any]:
    numbers = Numbers()
    one, newcomer, long_outputs = _asked(numbers), _asked(numbers), z3.Bool("long_outputs")
    numbers.facts.append(newcomer.paused_steps == 0)
    still = _paused(one, one.place, uncounted)
    return negated(numbers, before(still, newcomer, long_outputs))


def _slots_kept(none_there: int) -> list[Any]:
    """From a step that settles the pauses to the next prefill; `none_there` may be kept in it."""
    numbers = Numbers()
    slots, together = numbers.fresh("slots", 1, None), numbers.fresh("together", 0, None)
    kept, running = numbers.fresh("kept", 1 - none_there, None), numbers.fresh("running", 0, None)
    paused = together - kept
    numbers.facts += [together <= slots, paused >= 0, running <= kept]
    # What starts: no request runs, or no request is paused and there is a slot (SPY-R36, SPY-R52).
    starts = z3.Or(running == 0, z3.And(paused == 0, running < slots))
    return negated(numbers, z3.Implies(starts, paused + running + 1 <= slots))


Lemma = Callable[[int], list[Any]]
LEMMAS: dict[str, tuple[str, Lemma]] = {
    "first_is_kept": ("A request that is asked first decodes in this step.", _first_is_kept),
    "stays_ahead": (
        "A request that is asked after a request that is paused in this step is so after it.",
        _stays_ahead,
    ),
    "falls_behind": (
        "A request that decodes in this step is asked after requests that are paused in it.",
        _falls_behind,
    ),
    "joins_behind": (
        "A request that starts is asked after requests that are paused.",
        _joins_behind,
    ),
    "slots_kept": (
        "No more requests than there are slots decode or are paused.",
        _slots_kept,
    ),
}
