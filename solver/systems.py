"""The solver's part of each registered system: its scopes, proofs and contracts.

Nothing here imports Z3, which takes a third of a second.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple

from ..spec.systems import SYSTEMS, part
from .exploration.scope import Scope

if TYPE_CHECKING:
    from .smt.obligation import RuleProof

# the longest list argument: checking a batch of four takes more than a minute
MAX_MEMBERS = 3


@dataclass(frozen=True)
class Sizes:
    """The range of `block` in tokens and of `chunk_blocks` in blocks; None means no upper bound."""

    name: str
    block: tuple[int, int | None]
    chunk_blocks: tuple[int, int | None]


@dataclass(frozen=True)
class Contract:
    """One property of one function of the model, at some sizes, for CrossHair to prove.

    `holds` calls the function with arguments that `given` allows, and returns whether the result
    has the property that the system's documentation states.

    Attributes:
        name: `CONTRACT/SIZES`.
        about: the function, `MODULE.FUNCTION` of the system's model or of `model`.
        statement: the property in one sentence.
        holds: returns whether the property holds for these keyword arguments.
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
    """Everything that is needed to explore a system.

    Attributes:
        scopes: its scopes, the smallest first.
        limit_key: the configuration key that takes the limits of a scope as values.
        limit_name: the word for a limit in reports.
        models: builds the models of a revision in one configuration, one for each limit, in
            ascending order. The last argument names a formula that replaces the revision's own;
            None keeps it.
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
    """Return a registered system's proofs, without those of `System.questions`."""
    return part(system, "proofs") or {}


def contracts() -> "dict[str, Contract]":
    by_name: dict[str, Contract] = {}
    for system in SYSTEMS:
        by_name |= part(system, "contracts") or {}
    return by_name
