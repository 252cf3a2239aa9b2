"""Versions of Python's functions on sequences that return a term for symbols, without branching."""

import builtins
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from types import ModuleType
from typing import Any, cast

import msgspec
import z3

from .execution import Number, Prefix, SymbolicLength, UndecidedError, bare, count_as_more


@contextmanager
def on_symbols(*modules: ModuleType) -> Iterator[None]:
    """Within the block, replace the functions in `REPLACED` in these modules.

    Python's own functions compare the numbers pair by pair, and each comparison is a branch. So
    each order of the numbers would become a separate path. The replacements return a term: code
    that takes the largest of five numbers has one path instead of sixteen.
    """
    names = [vars(module) for module in modules]
    before = [{name: own[name] for name in REPLACED if name in own} for own in names]
    try:
        for own in names:
            own.update(REPLACED)
        yield
    finally:
        for own, had in zip(names, before, strict=True):
            for name in REPLACED:
                del own[name]
            own.update(had)


def length_of(collection: Any) -> Any:
    """Return a collection's length. An item that represents `more` others adds 1 + `more`."""
    if isinstance(collection, SymbolicLength | Prefix):
        return collection.length
    if not all(map(can_count, collection)):
        raise UndecidedError("counts items that do not say which request they belong to")
    return sum((more for item in collection for more in more_of(item)), len(collection))


def can_count(item: Any) -> bool:
    """Return whether an item may represent several items, and knows how many."""
    if isinstance(item, tuple):
        return any(map(can_count, item))
    named = isinstance(item, str) and type(item) is not str
    return named or isinstance(item, Number | msgspec.Struct)


def more_of(item: Any) -> list[Any]:
    """Return how many other items an item, or a part of a tuple, represents. Return an empty list
    if it represents no others."""
    if hasattr(item, "counts_more"):
        return [item.counts_more]
    return [more for part in item for more in more_of(part)][:1] if isinstance(item, tuple) else []


def numbered(collection: Any, start: Any = 0) -> Iterator[tuple[Any, Any]]:
    """Number the items of a collection. An item that represents several items takes that many
    numbers."""
    for item in collection:
        yield start, item
        start = sum(more_of(item), start + 1)


def paired(*lists: Any, strict: bool = False) -> Iterator[tuple[Any, ...]]:
    """Pair the items of lists, as `zip` does.

    An item that represents several others may only be paired with items that represent as many.
    Otherwise, a list could be cut off, or shifted against another one.

    Raise UndecidedError if such an item is paired with anything else, or not at all.
    """
    rows = [list(each) for each in lists]
    if not all(map(counts_alike, zip_longest(*rows))):
        raise UndecidedError("pairs lists that may have different lengths")
    return builtins.zip(*rows, strict=strict)


def counts_alike(parts: tuple[Any, ...]) -> bool:
    first, *others = [[bare(more) for more in more_of(part)] for part in parts]
    return all(len(other) == len(first) and all(map(z3.eq, first, other)) for other in others)


def applied(function: Any, *lists: Any) -> Iterator[Any]:
    """Apply the function to each item, or to the items of several lists, which must pair up."""
    return (function(*row) for row in paired(*lists))


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
    terms = [z3.IntVal(item) if isinstance(item, int) else bare(item) for item in items]
    extreme = Number(symbol.run, numbers.extreme(terms, least=own is builtins.min))
    mores = [more for item in items for more in more_of(item)] if len(of) > 1 else []
    return count_as_more(extreme, mores[0]) if mores else extreme


def in_order(collection: Any, *, key: Any = None, reverse: bool = False) -> list[Any]:
    """Sort symbols, or tuples of them, with a sorting network. Sort anything else as Python
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
    # Each row also carries the number of further items for which it counts.
    rows = [(*row, sum(more_of(row), 0)) for row in rows]
    for end in range(len(rows) - 1, 0, -1):
        for at in range(end):
            first, second = rows[at], rows[at + 1]
            pair = (first[:-1], second[:-1]) if reverse else (second[:-1], first[:-1])
            swap = goes_first(*pair)
            rows[at] = chosen(symbol, swap, second, first)
            rows[at + 1] = chosen(symbol, swap, first, second)
    if any(map(more_of, items)):
        rows = [tuple(count_as_more(number, row[-1]) for number in row) for row in rows]
    rows = [row[:-1] for row in rows]
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


REPLACED = {
    "len": length_of,
    "max": largest,
    "min": smallest,
    "sorted": in_order,
    "enumerate": numbered,
    "zip": paired,
    "map": applied,
}
