"""The scopes that are explored for planted faults."""

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

from schedproof.solver.exploration.scope import Scope
from schedproof.solver.systems import space_of


def checkup(system: str) -> Sequence[Scope]:
    """Return the scopes in which every fault of a system must show: its own, or all that it has."""
    place = f"{__name__}.{system}"
    return import_module(place).CHECKUP if find_spec(place) else space_of(system).scopes
