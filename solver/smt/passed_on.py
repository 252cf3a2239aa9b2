"""Values that the code may only pass on: configurations, and ids of requests. It may also compare
ids with each other."""

import re
from typing import Any

from .execution import UndecidedError

# The ids that proofs give to requests.
OURS = re.compile(r"[rw]?[0-9]+|p|new|gone")


class Name(str):
    """The id of a request. A step may only compare it with other ids, and anything else raises
    UndecidedError."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        if type(other) is str and not OURS.fullmatch(other):
            self._is_read()
        return str.__eq__(self, other)

    def _is_read(self, *_: Any, **__: Any) -> Any:
        raise UndecidedError("reads the id of a request")

    __str__ = __repr__ = __format__ = __len__ = __iter__ = __getitem__ = __contains__ = _is_read
    __lt__ = __le__ = __gt__ = __ge__ = __add__ = __mul__ = __rmul__ = __mod__ = _is_read

    def __getattribute__(self, name: str) -> Any:
        return self._is_read() if name in vars(str) else object.__getattribute__(self, name)


def plain_id(name: str) -> str:
    """Return the id as a plain string. Code that is run on symbols sees a `Name` instead."""
    return str.__str__(name)


def must_be(given: Any, config: Any) -> None:
    """Raise UndecidedError if the code passes on a configuration other than the given one."""
    if given is not config:
        raise UndecidedError("asks about another configuration")
