"""Contracts of the pure arithmetic of a system's model, for CrossHair to prove.

A contract calls one function of the model at arguments that `given` allows, and is true if the
answer has the property that the system's page gives it. `System.contracts` registers them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any

MAX_MEMBERS = 3  # of a list argument: a batch of four has more paths than a minute takes


@dataclass(frozen=True)
class Sizes:
    """Least and greatest `block`, in tokens, and `chunk_blocks`, in blocks; None is no bound."""

    name: str
    block: tuple[int, int | None]
    chunk_blocks: tuple[int, int | None]


@dataclass(frozen=True)
class Contract:
    """One property of one function of the model, at some sizes.

    Attributes:
        name: `CONTRACT/SIZES`.
        about: the function, `MODULE.FUNCTION` of the system's model or of `model`.
        statement: one sentence.
        holds: whether the property holds at these arguments (by keyword).
        given: the precondition, sizes apart.
    """

    name: str
    about: str
    statement: str
    holds: Callable[..., bool]
    given: Callable[..., bool]
    sizes: Sizes

    def applies(self, **arguments: Any) -> bool:
        """The precondition: sizes in their range, and what else is given."""
        for name in ("block", "chunk_blocks"):
            if name in arguments:
                least, most = getattr(self.sizes, name)
                if not (least <= arguments[name] and (most is None or arguments[name] <= most)):
                    return False
        return self.given(**arguments)

    def arguments(self) -> dict[str, Any]:
        """Name and type of each argument."""
        return {name: one.annotation for name, one in signature(self.holds).parameters.items()}
