"""Which rules `--rule` selects."""

from collections.abc import Sequence
from dataclasses import replace

from ...model.errors import InputError
from ...model.systems import make_model, revisions_of
from ...properties.predicates.rules import LOCKSTEP, applies
from ...spec.catalogue import Rule, load, select
from ..console.option_checks import option
from ..targets.target_spec import TargetSpec

NO_LOCKSTEP = "none"


def picked(catalogue: Sequence[Rule], words: Sequence[str]) -> Sequence[Rule]:
    """The rules that --rule names; `A,B` means A and B.

    Raises:
        InputError, CatalogueError: none is named, or one that is not there.
    """
    ids = [part.strip() for word in words for part in word.split(",") if part.strip()]
    if not ids:
        raise InputError("--rule", f"{words[0]!r} names no rule; `schedproof rules` lists them")
    return select(catalogue, ids)


def judged_by(
    system: str,
    words: Sequence[str] | None,
    revision: str,
    target: TargetSpec,
    lockstep: str | None = None,
) -> Sequence[Rule]:
    """The rules that --rule names (`A,B` means A and B), else all of the system's catalogue.

    `lockstep`: the revision whose model decides beside the target, or "none"; by default that of
    `revision`, where lockstep applies to it.

    Raises:
        InputError, CatalogueError: one that cannot be checked here at all.
    """
    chosen: Sequence[Rule] = picked(load(system), words) if words else load(system)
    if words and lockstep == NO_LOCKSTEP and any(rule.id == LOCKSTEP for rule in chosen):
        raise InputError("--rule", f"{LOCKSTEP} contradicts --lockstep {NO_LOCKSTEP}")
    if lockstep is not None:
        chosen = _compared_with(lockstep, system, chosen)
    for rule in chosen if words else ():
        check_applies(rule, revision)
        if rule.id == LOCKSTEP and target.is_plain_model and not rule.beside:
            raise InputError(
                "--rule", f"{rule.id} compares a target with the model; valid: any other target"
            )
    return chosen


def _compared_with(lockstep: str, system: str, rules: Sequence[Rule]) -> Sequence[Rule]:
    """The rules with lockstep as the user asks for it, or without."""
    if lockstep == NO_LOCKSTEP:
        return [rule for rule in rules if rule.id != LOCKSTEP]
    with option("--lockstep"):
        if lockstep not in revisions_of(system):
            valid = ", ".join((*revisions_of(system), NO_LOCKSTEP))
            raise InputError("--lockstep", f"{lockstep!r:.60}; valid: {valid}")
        make_model(system, lockstep, {})
    return [
        replace(rule, revisions=("*",), beside=lockstep) if rule.id == LOCKSTEP else rule
        for rule in rules
    ]


def check_applies(rule: Rule, revision: str) -> None:
    """Raise InputError unless the rule belongs to the revision."""
    if not applies(rule, revision):
        raise InputError(
            "--rule",
            f"{rule.id} does not apply to revision {revision}; "
            f"it applies to {', '.join(rule.revisions)}",
        )
