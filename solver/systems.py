"""What the solver knows of each registered system: its scopes, its proofs, its contracts.

Nothing here imports Z3, which takes a third of a second.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..spec.systems import SYSTEMS, part
from .exploration.scope import Scope

if TYPE_CHECKING:
    from .contract import Contract
    from .smt.obligation import RuleProof


class SystemSpace(NamedTuple):
    """How to explore a system.

    Attributes:
        scopes: its scopes, the smallest first.
        checkup: the scopes in which a planted fault has to show.
        limit_key: the configuration key of which a scope has several values, its limits.
        limit_name: what reports call one of them.
        models: builds the models of a revision in one configuration, one for each limit, in
            ascending order. The last argument names a formula of the system that replaces the
            revision's own; None keeps that.
    """

    scopes: Sequence[Scope]
    checkup: Sequence[Scope]
    limit_key: str
    limit_name: str
    models: Callable[[str, Mapping[str, Any], Sequence[int], str | None], Any]


def space_of(system: str) -> SystemSpace:
    """Return how to explore a registered system that has scopes."""
    found: SystemSpace = part(system, "space")
    return found


def explored_systems() -> tuple[str, ...]:
    """Return the registered systems that have scopes."""
    return tuple(name for name, system in SYSTEMS.items() if system.space is not None)


def proofs_of(system: str) -> "Mapping[str, RuleProof]":
    """Return the proofs of a registered system, by rule id.

    A rule that `schedproof search` decides by questions of its own (`System.questions`) is not
    among them.
    """
    return part(system, "proofs") or {}


def contracts() -> "dict[str, Contract]":
    """Return the contracts of all registered systems, by name."""
    found: dict[str, Contract] = {}
    for system in SYSTEMS:
        found |= part(system, "contracts") or {}
    return found
