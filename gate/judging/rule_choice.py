"""Select the rules to judge, as `--rule` and `--exclude` say."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from ...model.errors import InputError
from ...model.scenario import Scenario
from ...model.systems import make_model, revisions_of
from ...properties.rules.registry import LOCKSTEP, NEVER_CRASHES, NEVER_HANGS, applies
from ...spec.catalogue import Rule, load, meant
from ..console.option_checks import option, rule_words
from ..targets.target_spec import TargetSpec

NO_LOCKSTEP = "none"


def rules_named(catalogue: Sequence[Rule], words: Sequence[str]) -> dict[str, bool]:
    """Return the ids that --rule selects (`A,B` counts as A and B), each with whether the user
    named it in full. Raise InputError if the option names no rule."""
    return meant(catalogue, rule_words("--rule", words))


def judged_by(
    system: str,
    words: Sequence[str] | None,
    revision: str,
    target: TargetSpec,
    compare_with: str | None = None,
    exclude: Sequence[str] = (),
) -> Sequence[Rule]:
    """Return the rules to judge: those that --rule selects (such as A,B or ALL-*), or else the
    whole catalogue, without excluded rules.

    `compare_with` is the revision whose model runs beside the target, or "none". By default it is
    `revision`, if lockstep applies to it. Raise InputError if a named rule cannot be checked here.
    """
    catalogue = load(system, revision)
    named = (
        rules_named(catalogue, words)
        if words
        else dict.fromkeys([known.id for known in catalogue], False)
    )
    left_out = excluded(catalogue, exclude)
    chosen: Sequence[Rule] = [rule for rule in catalogue if rule.id in named]
    if compare_with == NO_LOCKSTEP and named.get(LOCKSTEP):
        raise InputError("--rule", f"{LOCKSTEP} contradicts --compare-with {NO_LOCKSTEP}")
    if compare_with is not None:
        chosen = _compared_with(compare_with, system, chosen)
    for rule in chosen:
        if not named[rule.id]:
            continue
        if rule.id in left_out:
            raise InputError("--exclude", f"--rule names {rule.id}; valid: one of the two")
        check_applies(rule, revision)
        if _is_itself(rule, target):
            raise InputError(
                "--rule", f"{rule.id} compares a target with the model; valid: any other target"
            )
    return [
        rule
        for rule in chosen
        if rule.id not in left_out
        and (not words or named[rule.id] or _can_be_judged(rule, revision, target))
    ]


def lockstep_of(
    scenario: Scenario,
    words: Sequence[str] | None,
    target: TargetSpec,
    compare_with: str | None,
    report: Callable[[str], None],
) -> str | None:
    """Return the lockstep that judges a scenario if `compare_with` is None. There is none if the
    scenario expects another rule to break, because the first difference from the model would end
    the run too early; `report` then receives a line that explains this."""
    expected = (scenario.expect and scenario.expect.violates) or (LOCKSTEP,)
    if compare_with or words or LOCKSTEP in expected or target.is_plain_model:
        return compare_with
    report(f"not compared with a model: the scenario expects {', '.join(expected)} to break")
    return NO_LOCKSTEP


def excluded(catalogue: Sequence[Rule], words: Sequence[str]) -> frozenset[str]:
    """Return the ids that --exclude selects; raise InputError if a rule cannot be excluded."""
    ids = frozenset(meant(catalogue, rule_words("--exclude", words)))
    if always := sorted(ids & {NEVER_CRASHES, NEVER_HANGS}):
        raise InputError(
            "--exclude", f"{always[0]}: a crash or a hang ends every run; valid: any other rule"
        )
    return ids


def _can_be_judged(rule: Rule, revision: str, target: TargetSpec) -> bool:
    return applies(rule, revision) and not _is_itself(rule, target)


def _is_itself(rule: Rule, target: TargetSpec) -> bool:
    return rule.id == LOCKSTEP and target.is_plain_model and not rule.beside


def _compared_with(compare_with: str, system: str, rules: Sequence[Rule]) -> Sequence[Rule]:
    if compare_with == NO_LOCKSTEP:
        return [rule for rule in rules if rule.id != LOCKSTEP]
    with option("--compare-with"):
        if all(rule.id != LOCKSTEP for rule in load(system)):
            raise InputError(
                "--compare-with",
                f"{compare_with!r:.60}; system {system} has no model to compare with; "
                f"valid: {NO_LOCKSTEP}",
            )
        if compare_with not in revisions_of(system):
            valid = ", ".join((*revisions_of(system), NO_LOCKSTEP))
            raise InputError("--compare-with", f"{compare_with!r:.60}; valid: {valid}")
        make_model(system, compare_with, {})
    return [
        replace(rule, revisions=("*",), beside=compare_with) if rule.id == LOCKSTEP else rule
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
