"""What a campaign is about: which rules of which revisions, by which engines, from which seed."""

from collections.abc import Sequence
from typing import Any

import msgspec

from ...model.errors import InputError
from ...model.systems import check_system, revisions_of
from ...spec.catalogue import load, meant
from ...spec.systems import SYSTEMS
from ..console.option_checks import option
from .items import ENGINES

Pair = tuple[str, str]  # a system and its revision
SCALES = ("small", "tight")


class Settings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that the plan of a campaign follows from.

    Attributes:
        pairs: systems with their revisions, in the order of the catalogue.
        rules: ids of the rules that are judged; empty for all.
        scales: for Hypothesis, with the keys of the configuration that have one value there.
        shared: with a shared example database, so that the seeds alone do not tell what happens.
        code: digest of models, predicates and this package, and of the versions of Hypothesis and
            Z3: with others every result may be another.
    """

    seed: int = 0
    pairs: tuple[Pair, ...] = ()
    rules: tuple[str, ...] = ()
    engines: tuple[str, ...] = ENGINES
    target: str = "model"
    scales: dict[str, dict[str, Any]] = {}
    shared: bool = False
    code: str = ""


def pairs_of(systems: Sequence[str], revisions: Sequence[str]) -> tuple[Pair, ...]:
    """The revisions of these names of the systems of these names; without names, all.

    Raises:
        InputError: an unknown name.
    """
    for name in systems:
        with option("--system"):
            check_system(name)
    chosen = [name for name in SYSTEMS if name in systems or not systems]
    there = [(system, revision) for system in chosen for revision in revisions_of(system)]
    for name in revisions:
        if name not in {revision for _, revision in there}:
            valid = ", ".join(dict.fromkeys(revision for _, revision in there))
            problem = f"{name!r} is not a revision of {', '.join(chosen)}; valid: {valid}"
            raise InputError("--revision", problem)
    return tuple(pair for pair in there if pair[1] in revisions or not revisions)


def check_rules(rules: Sequence[str], pairs: Sequence[Pair]) -> tuple[str, ...]:
    """The ids of rules that one of the systems has, in the order given.

    Raises:
        InputError: a rule without a predicate.
        CatalogueError: an unknown one.
    """
    catalogue = {rule.id: rule for system, _ in pairs for rule in load(system)}
    ids = meant([*catalogue.values()], rules)
    for rule in (catalogue[name] for name in ids):
        if not rule.checked:
            why = rule.unchecked or rule.planned
            raise InputError("--rule", f"{rule.id} has no predicate: {why}")
    return tuple(ids)


def check_engines(engines: Sequence[str], target: str) -> tuple[str, ...]:
    """The engines of these names; without names, all that the target can be asked by.

    Raises:
        InputError: an unknown name, or one that asks the model only.
    """
    valid = ENGINES if target == "model" else ("hypothesis",)
    for name in engines:
        if name not in valid:
            problem = f"{name!r}; valid with target {target}: {', '.join(valid)}"
            raise InputError("--engine", problem)
    return tuple(name for name in valid if name in engines or not engines)
