"""Which requests may end in a step, and what a step does for each configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..model.observation import Step
from .book import Book
from .models import Stepped
from .undecided import Candidates, Looked

# A request that emits a token, its candidates then, and whether this token is its last.
Ending = tuple[str, Candidates, bool]


def ways(
    name: str, candidates: Candidates, tokens: int, members: int, alone: bool
) -> Iterator[Ending]:
    """How a request may go on after so many tokens: with `alone` it ends only if it must.

    A request that ends early might have had any number of tokens more. That makes no difference
    afterwards, so it had the fewest. A request that has all its tokens ends; it need not be told
    apart from one that ends early, but where the front door lets in no request that asks for more.
    """
    more = candidates.asking_more_than(tokens)
    if more is not None and more.accepted & members:
        yield name, more, False
        if not alone:
            yield name, more.asking(more.fewest) or more, True
    exactly = candidates.asking(tokens)
    if exactly is not None and (more is None or members & ~more.accepted):
        yield name, exactly, True


def alike(part: tuple[int, ...], at: Callable[[int], Stepped]) -> Iterator[tuple[int, ...]]:
    """Runs of these configurations, in order, each of which decides as its first one does (`at`).

    No closure: one that calls itself would keep its steps until the garbage collector comes.
    """
    first = at(part[0])
    if len(part) == 1 or not first.limited or first == at(part[-1]):
        yield part
    else:
        yield from alike(part[: len(part) // 2], at)
        yield from alike(part[len(part) // 2 :], at)


def gets_on(step: Step) -> bool:
    """Something was achieved that cannot get lost: where requests are preempted, computed tokens
    can, and emitted ones cannot."""
    tokens = step.scheduled if step.preempted is None else step.emitted or {}
    return any(tokens.values())


def may_be(is_exercised: Any, book: Book, step: Step, member: int) -> bool:
    """The witness occurs, for some choice of what it looks at that nothing else has looked at."""
    try:
        return bool(is_exercised(book, step))
    except Looked as look:
        account: Any = book.live[look.request]
        for candidates in account.candidates.split(look.field):
            if candidates.accepted & member:
                chosen = book.fork()
                chosen.narrow(look.request, candidates)
                if may_be(is_exercised, chosen, step, member):
                    return True
        return False


def smallest_and_largest(members: int) -> tuple[int, int]:
    """The first and the last configuration of a set of bits."""
    return (members & -members).bit_length() - 1, members.bit_length() - 1


def bits(members: Sequence[int]) -> int:
    """The set of these configurations, as bits."""
    return sum(1 << number for number in members)
