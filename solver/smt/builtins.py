"""Replacements for Python's `len`, `max`, `min` and `sorted`, for code that runs on symbols.
Python's own functions compare the numbers pair by pair, and each comparison is a branch, so
different orders of the numbers become different paths. The functions here return a term instead:
code that takes the largest of five numbers then has one path instead of sixteen.
"""

import builtins
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any, cast

import z3

from .execution import BeyondPrefixError, Number, Truth, bare, stubbed


@contextmanager
def on_symbols(*modules: ModuleType) -> Iterator[None]:
    """Inside the context, replace Python's functions in these modules with those of this module."""
    with ExitStack() as stack:
        for module in modules:
            shims = {"len": length_of, "max": largest, "min": smallest, "sorted": in_order}
            stack.enter_context(stubbed(module, **shims))
        yield


class SymbolicLength:
    """A sequence of which only the length is known, as a symbol."""

    def __init__(self, length: Number) -> None:
        self.length = length

    def __bool__(self) -> bool:
        return bool(self.length >= 1)

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class Prefix:
    """A sequence of any length, of which only the first items are known.

    Its length is a symbol. Code that looks at it decides how many items there are.

    Raises:
        BeyondPrefixError: the code looks at an unknown item.
    """

    def __init__(self, known: list[Any], length: Number) -> None:
        self.known, self.length = known, length

    def __bool__(self) -> bool:
        return bool(self.length >= 1)

    def __iter__(self) -> Iterator[Any]:
        for at, item in enumerate(self.known):
            if not self.length > at:
                return
            yield item
        if self.length > len(self.known):
            raise BeyondPrefixError


class Queue(Prefix):
    """A sequence of any length, whose last known item stands for all later items. That item must
    count for them, too (`counts_more`), so that a copy of the sequence has the same length.
    """

    def __iter__(self) -> Iterator[Any]:
        for at, item in enumerate(self.known):
            if not self.length > at:
                return
            yield item

    def __getitem__(self, at: Any) -> Any:
        if at == 0 and self:
            return self.known[0]
        return tuple(self)[at]

    def __add__(self, other: Any) -> Any:
        return (*self, *other)

    def __radd__(self, other: Any) -> Any:
        return (*other, *self)


def length_of(collection: Any) -> Any:
    """Return the length of a collection; each item counts once, plus `counts_more` times if it has
    that attribute."""
    if isinstance(collection, SymbolicLength | Prefix):
        return collection.length
    more = [item.counts_more for item in collection if hasattr(item, "counts_more")]
    return sum(more, len(collection))


def largest(*of: Any, **options: Any) -> Any:
    return _extreme(builtins.max, of, options)


def smallest(*of: Any, **options: Any) -> Any:
    return _extreme(builtins.min, of, options)


def _extreme(own: Any, of: Any, options: Any) -> Any:
    items = list(of[0]) if len(of) == 1 else list(of)
    symbol = next((item for item in items if isinstance(item, Number)), None)
    if symbol is None or "key" in options:
        return own(items, **options)
    numbers = symbol.run.numbers
    terms = [numbers.value(item) if isinstance(item, int) else bare(item) for item in items]
    return Number(symbol.run, numbers.extreme(terms, least=own is builtins.min))


def in_order(collection: Any, *, key: Any = None, reverse: bool = False) -> list[Any]:
    """Sort numbers, or tuples of numbers, with a sorting network; sort anything else as Python
    does."""
    if isinstance(collection, Prefix):  # the unknown part comes last
        known, length = collection.known, collection.length
        end_of_known = next((at for at in range(len(known)) if not length > at), None)
        ordered = in_order(known[:end_of_known], key=key, reverse=reverse)
        return ordered if end_of_known is not None else cast(list[Any], Prefix(ordered, length))
    items = list(collection)
    rows = [item if isinstance(item, tuple) else (item,) for item in items]
    symbol = next((number for row in rows for number in row if isinstance(number, Number)), None)
    if symbol is None or key is not None:
        return sorted(items, key=key, reverse=reverse)
    for end in range(len(rows) - 1, 0, -1):
        for at in range(end):
            first, second = rows[at], rows[at + 1]
            swap = goes_first(first, second) if reverse else goes_first(second, first)
            rows[at] = chosen(symbol, swap, second, first)
            rows[at + 1] = chosen(symbol, swap, first, second)
    return [
        row if isinstance(item, tuple) else row[0] for item, row in zip(items, rows, strict=True)
    ]


def goes_first(number: tuple[Any, ...], other: tuple[Any, ...]) -> Any:
    """Return whether one tuple is less than another; the first difference decides."""
    less: Any = z3.BoolVal(False)
    for left, right in reversed([*zip(map(bare, number), map(bare, other), strict=True)]):
        less = z3.Or(left < right, z3.And(left == right, less))
    return less


def chosen(symbol: Number, first: Any, number: tuple[Any, ...], other: tuple[Any, ...]) -> Any:
    pairs = zip(map(bare, number), map(bare, other), strict=True)
    return tuple(Number(symbol.run, z3.If(first, left, right)) for left, right in pairs)


def condition(value: "Truth | bool") -> Any:
    """Return a comparison as a term, whether it is decided or not."""
    return value.of if isinstance(value, Truth) else z3.BoolVal(bool(value))
