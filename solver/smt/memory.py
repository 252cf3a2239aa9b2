"""Detects state that the model's code keeps between calls, in mutable objects that its modules
reach.

A proof about one call is a proof about every call only if the code remembers nothing.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import _lru_cache_wrapper, partial
from types import FunctionType, MappingProxyType, ModuleType, SimpleNamespace
from typing import Any

from ... import model
from .execution import UndecidedError

PACKAGE = model.__name__


class Memory:
    """A snapshot of all mutable objects that the model's modules reach."""

    def __init__(self) -> None:
        # For each id: the object (which keeps it alive), where it was found, and its contents.
        self._kept: dict[int, tuple[Any, str, Mapping[Any, Any]]] = {}
        waiting: list[tuple[str, Any]] = [*_modules(model)]
        seen = set[int]()
        while waiting:
            name, item = waiting.pop()
            if id(item) in seen:
                continue
            seen.add(id(item))
            contents = contents_of(item)
            if contents is not None:
                self._kept[id(item)] = item, name, contents
            waiting += (
                (f"{name}.{key}" if type(key) is str else name, part)
                for key, part in _parts(item, contents)
            )

    def check(self) -> None:
        """Check that no object has changed since the snapshot.

        Raises:
            UndecidedError: an object has changed, so the code remembers something beyond its
                arguments and its result.
        """
        for item, name, before in self._kept.values():
            now = contents_of(item) or {}
            if now.keys() != before.keys() or any(now[key] is not before[key] for key in now):
                where = name.removeprefix(f"{PACKAGE}.")
                raise UndecidedError(f"remembers something for later calls in {where}")


def _modules(package: ModuleType) -> Iterator[tuple[str, ModuleType]]:
    for name, module in vars(package).items():
        full = f"{package.__name__}.{name}"
        if isinstance(module, ModuleType) and module.__name__ == full:
            yield full, module
            yield from _modules(module)


def contents_of(item: Any) -> Mapping[Any, Any] | None:
    """Return the contents of a mutable object, or None for any other object."""
    if isinstance(item, _lru_cache_wrapper):
        return {item.cache_info().misses: None}
    if isinstance(item, dict | MappingProxyType):
        return {key: item[key] for key in item}
    if isinstance(item, list | deque):
        return dict(enumerate(item))
    if isinstance(item, set):
        return dict.fromkeys(item)
    if isinstance(item, bytearray):
        return {bytes(item): None}
    if isinstance(item, ModuleType | SimpleNamespace | FunctionType) or _is_own(item):
        attributes = {**getattr(item, "__dict__", {})}
        return {
            key: value
            for key, value in attributes.items()
            if not _is_special(key) and not isinstance(value, ModuleType)  # may be imported late
        }
    if hasattr(item, "__next__"):  # an iterator
        return {repr(item): None}
    return None


def _is_own(item: Any) -> bool:
    kind = item if isinstance(item, type) else type(item)
    return kind.__module__.startswith(f"{PACKAGE}.")


def _is_special(key: str) -> bool:
    return key.startswith("__") or key == "_abc_impl"


def _parts(item: Any, contents: Mapping[Any, Any] | None) -> Iterable[tuple[Any, Any]]:
    if isinstance(item, ModuleType) and not item.__name__.startswith(f"{PACKAGE}."):
        return
    if isinstance(item, tuple | frozenset):
        yield from enumerate(item)
    if isinstance(item, partial):
        yield from enumerate((item.func, *item.args, *item.keywords.values()))
    if (owner := getattr(item, "__self__", None)) is not None:
        yield "self", owner
    yield from (contents or {}).items()
    if isinstance(item, FunctionType) and item.__module__.startswith(f"{PACKAGE}."):
        yield from enumerate(item.__defaults__ or ())
        yield from (item.__kwdefaults__ or {}).items()
        yield from enumerate(
            getattr(cell, "cell_contents", None) for cell in item.__closure__ or ()
        )
    if _is_own(item) and not isinstance(item, type):
        yield from (
            (field, getattr(item, field)) for field in getattr(item, "__struct_fields__", ())
        )
