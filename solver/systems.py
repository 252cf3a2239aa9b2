"""What the solver knows of each registered system: its scopes, proofs and contracts.

This module does not import Z3, because that takes a third of a second.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple

from ..spec.systems import SYSTEMS, part
from .exploration.scope import Scope

if TYPE_CHECKING:
    from .smt.obligation import RuleProof

# the largest number of items in a list argument: a batch of four takes more than a minute
MAX_MEMBERS = 3


@dataclass(frozen=True)
class Sizes:
    """The range of `block` in tokens and of `chunk_blocks` in blocks. None means no upper bound."""

    name: str
    block: tuple[int, int | None]
    chunk_blocks: tuple[int, int | None]


@dataclass(frozen=True)
class Contract:
    """A property of one function of the model, for block and chunk sizes in a given range.
    CrossHair proves it.

    `holds` calls the function with arguments that satisfy `given`. It returns whether the result
    has the documented property.

    Attributes:
        name: `CONTRACT/SIZES`.
        about: the function, as `MODULE.FUNCTION`; the module is in the system's model or in
            `model`.
        statement: the property in one sentence.
        holds: a function that returns whether the property holds for its keyword arguments.
        given: the precondition, apart from the sizes.
    """

    name: str
    about: str
    statement: str
    holds: Callable[..., bool]
    given: Callable[..., bool]
    sizes: Sizes

    def applies(self, **arguments: Any) -> bool:
        """Return whether the sizes are in range and the precondition holds."""
        for name in ("block", "chunk_blocks"):
            if name in arguments:
                least, most = getattr(self.sizes, name)
                if not (least <= arguments[name] and (most is None or arguments[name] <= most)):
                    return False
        return self.given(**arguments)

    def arguments(self) -> dict[str, Any]:
        """Return the name and type of each argument."""
        return {
            name: parameter.annotation
            for name, parameter in signature(self.holds).parameters.items()
        }


class SystemSpace(NamedTuple):
    """Everything that the explorer needs to know about a system.

    Attributes:
        scopes: its scopes, the smallest first.
        limit_key: the configuration key that takes the limits of a scope as values.
        limit_name: what reports call a limit.
        models: builds the models of a revision in one configuration: one model for each limit, in
            ascending order of the limits. The last argument names a formula that replaces the
            revision's own; None keeps it.
    """

    scopes: Sequence[Scope]
    limit_key: str
    limit_name: str
    models: Callable[[str, Mapping[str, Any], Sequence[int], str | None], Any]


def space_of(system: str) -> SystemSpace:
    space: SystemSpace = part(system, "space")
    return space


def explored_systems() -> tuple[str, ...]:
    return tuple(name for name, system in SYSTEMS.items() if system.space is not None)


def proofs_of(system: str) -> "Mapping[str, RuleProof]":
    """Return the proofs of a registered system, except those listed in `System.questions`."""
    return part(system, "proofs") or {}


def contracts() -> "dict[str, Contract]":
    by_name: dict[str, Contract] = {}
    for system in SYSTEMS:
        by_name |= part(system, "contracts") or {}
    return by_name
