"""Which rules `--rule` selects."""

from collections.abc import Sequence

from ...model.errors import InputError
from ...properties.predicates.rules import LOCKSTEP, applies
from ...spec.catalogue import Rule, select
from ..targets.target_spec import TargetSpec


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
    catalogue: Sequence[Rule], words: Sequence[str] | None, revision: str, target: TargetSpec
) -> Sequence[Rule]:
    """The rules that --rule names (`A,B` means A and B), else all of the catalogue.

    Raises:
        InputError, CatalogueError: one that cannot be checked here at all.
    """
    if not words:
        return catalogue
    chosen = picked(catalogue, words)
    for rule in chosen:
        check_applies(rule, revision)
        if rule.id == LOCKSTEP and target.is_plain_model:
            raise InputError(
                "--rule", f"{rule.id} compares a target with the model; valid: any other target"
            )
    return chosen


def check_applies(rule: Rule, revision: str) -> None:
    """Raise InputError unless the rule belongs to the revision."""
    if not applies(rule, revision):
        raise InputError(
            "--rule",
            f"{rule.id} does not apply to revision {revision}; "
            f"it applies to {', '.join(rule.revisions)}",
        )
