"""Which scopes, limits and rules the options of `schedproof explore` select."""

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from ...model.errors import InputError
from ...properties.rules.registry import LOCKSTEP, applies, explored
from ...solver.exploration.scope import Aborts, Scope
from ...solver.systems import explored_systems, space_of
from ...spec.catalogue import Rule
from ..judging.rule_choice import check_applies, picked

ABORTS: tuple[Aborts, ...] = get_args(Aborts)


def check_has_scopes(system: str) -> None:
    """Raise InputError unless the registered system can be explored: it needs small scopes."""
    explorable = explored_systems()
    if system not in explorable:
        valid = ", ".join(explorable)
        raise InputError("$.system", f"{system} has no scopes to explore; valid: {valid}")


def chosen_scopes(names: Sequence[str] | None, system: str, revision: str) -> list[Scope]:
    """The scopes of these names, or all that the revision has.

    Raises:
        InputError: an unknown name, or a scope that the revision does not have.
    """
    valid = [one for one in space_of(system).scopes if one.belongs_to(revision)]
    by_name = {one.name: one for one in valid}
    for name in names or ():
        if name not in by_name:
            words = ", ".join(by_name)
            raise InputError(
                "--scope", f"{name!r} is no scope of revision {revision}; valid: {words}"
            )
    return [by_name[name] for name in names or by_name]


def changed(scope: Scope, requests: int | None, limits: str | None, aborts: str | None) -> Scope:
    """The scope with what the options say.

    Raises:
        InputError: a value that means nothing.
    """
    if requests is not None:
        if not 1 <= requests <= 6:
            raise InputError("--requests", f"{requests}; valid: 1 to 6")
        scope = replace(scope, requests=requests)
    if aborts is not None:
        if aborts not in ABORTS:
            raise InputError("--aborts", f"{aborts!r}; valid: {', '.join(ABORTS)}")
        scope = replace(scope, aborts=aborts)
    return scope if limits is None else replace(scope, limits=read_limits(limits))


def read_limits(words: str) -> tuple[int, ...]:
    """Limits in tokens, ascending: "6-40", or "12,20,40".

    Raises:
        InputError: no numbers, or none at all.
    """
    found: set[int] = set()
    for part in words.split(","):
        first, dash, last = part.strip().partition("-")
        ends = [first, last] if dash else [first, first]
        if not all(end.isascii() and end.isdigit() and len(end) < 7 for end in ends):
            raise InputError("--limits", f"{words!r}; valid: tokens, as 6-40 or 12,20,40")
        found |= set(range(int(ends[0]), int(ends[1]) + 1))
    if not found or min(found) < 1 or len(found) > 1000:
        raise InputError("--limits", f"{words!r}; valid: 1 to 1000 limits from 1 upwards")
    return tuple(sorted(found))


def chosen_rules(
    catalogue: Sequence[Rule], words: Sequence[str] | None, revision: str
) -> Sequence[Rule]:
    """The rules of these ids (`A,B` means A and B), or all that the revision has.

    Raises:
        InputError, CatalogueError: one that cannot be checked here.
    """
    named = picked(catalogue, words) if words else {}
    rules = [rule for rule in catalogue if not words or rule.id in named]
    for one in rules:
        if not named.get(one.id):
            continue
        if not one.checked:
            raise InputError("--rule", f"{one.id} has no predicate: {one.unchecked or one.planned}")
        if one.id == LOCKSTEP:
            raise InputError(
                "--rule", f"{one.id} compares a target with the model; valid: any other rule"
            )
        if not explored(one):
            raise InputError("--rule", f"{one.id} is no rule about states; valid: in `gate`")
        check_applies(one, revision)
    return [one for one in rules if explored(one) and applies(one, revision)]
