"""The small scopes of each system, and its models as `scheduling` explores them.

Nothing here needs Z3, which takes a third of a second to import.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..spec.systems import SYSTEMS, part
from .scope import Scope

if TYPE_CHECKING:
    from .decided import Decided


class Space(NamedTuple):
    """What is explored of a system.

    Attributes:
        scopes: its scopes, the smallest first.
        checkup: the scopes in which a planted fault has to show.
        limit_key: the configuration key of which a scope has several values, its limits.
        limit_name: what one of them is called in a report.
        models: the models of a revision in one configuration, for every limit, in ascending order;
            the last argument is the volumetric formula that replaces the revision's own, or None.
    """

    scopes: Sequence[Scope]
    checkup: Sequence[Scope]
    limit_key: str
    limit_name: str
    models: Callable[[str, Mapping[str, Any], Sequence[int], str | None], Any]


def space_of(system: str) -> Space:
    """What is explored of a registered system that has scopes."""
    found: Space = part(system, "space")
    return found


def explored_systems() -> tuple[str, ...]:
    """The registered systems that have scopes."""
    return tuple(name for name, system in SYSTEMS.items() if system.space is not None)


def decided_of(system: str) -> "Mapping[str, Decided]":
    """By rule id, how proofs decide the rules of a registered system.

    Spyre's volumetric rule (SPY-R07) has more questions than one and is not among them.
    """
    return part(system, "decided") or {}
