"""The mutants of every registered system, and the published bugs that no mutant brings back."""

from collections.abc import Mapping, Sequence

from ...spec.systems import SYSTEMS, part
from .mutant import Mutant


def mutants_of(system: str) -> Sequence[Mutant]:
    """The mutants of a system, known bugs last; a system may have none."""
    return part(system, "mutants") or ()


def out_of_scope(system: str) -> Mapping[str, str]:
    """By id, the published bugs of a system that no mutant brings back, with the reason."""
    return part(system, "out_of_scope") or {}


def all_mutants() -> list[Mutant]:
    """The mutants of all systems, in the order of registration."""
    return [mutant for system in SYSTEMS for mutant in mutants_of(system)]
