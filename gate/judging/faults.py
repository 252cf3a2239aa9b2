"""Group findings by cause: findings that a single fix would resolve are one fault.

A run does not show its cause, so these rules are heuristics. Two findings are one fault if

- one scenario breaks both rules;
- the catalogue explains both by the same known divergence;
- both runs enter the same lines of the user's class, and similar passing runs do not enter them;
- both break the same rule, at different scales, and either one needs every feature that the other
  needs or the same fields differ first in both;
- one step breaks both rules;
- the run of one finding breaks the rule of the other first, and needs no feature that the other
  does not need;
- both need the same features, and the same fields differ in the first step that the model decides
  differently. A crash has no such step; for a crash, it is enough that both need the same features
  and that one of these is optional.

An optional feature is off unless a configuration or a request turns it on, such as sessions or a
connector. If only one of two findings needs some optional feature, they are separate faults. This
does not apply in the first three cases above, nor if both break the same rule and enter the same
lines of the class. Two failures of one rule are also separate if different rules were broken before
them. A finding that was not shrunk joins at most one fault. If its run lacks an optional feature
that a fault needs, it does not join that fault.

A fault B may still be the consequence of a fault A. The report says so if the run of B's first
finding breaks a rule of A in an earlier step, and has every optional feature that A needs. If a
class is judged against its base, the report also says so if B's run executes every line of the
class that A's run executes. A crash or a hang ends its run, so the report never names one as the
cause of another fault.
"""

import datetime
import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from ...properties.checking.failure_signature import shape
from ...properties.rules.predicate import Broken
from ...properties.rules.registry import (
    AT_THE_DOOR,
    FOLLOW_NOTHING,
    LOCKSTEP,
    NEVER_CRASHES,
    NEVER_HANGS,
)
from ...spec.catalogue import Rule
from .coverage import line_numbers
from .verdict import Fault, Finding

# What a user of the engine experiences, worst first.
MEANS = {
    "crash": "the engine stops: the scheduler raises, and all of its requests are lost",
    "hang": "the engine hangs: the scheduler does not answer, and no request makes progress",
    "request": (
        "a request is lost, duplicated, or continues after its end; its client waits "
        "forever, or gets another request's tokens"
    ),
    "blocks": "blocks of the cache are lost or read by the wrong request: the engine runs out of "
    "memory, or answers with another request's tokens",
    "tokens": "a client gets too many or too few tokens, or the wrong finish reason",
    "wait": "requests wait longer than they need to, or forever",
    "refusal": "a request that could run is refused",
    "limit": "the scheduler exceeds a bound, or departs from its documents",
    "decision": "the scheduler decides differently from its documents",
    "adapter": "nothing: the adapter reports a step incorrectly; fix the adapter, then run the "
    "gate again",
}
KINDS = {
    NEVER_CRASHES: "crash",
    "ALL-R02": "hang",
    "ALL-R03": "request",
    "ALL-R04": "tokens",
    "ALL-R08": "blocks",
    "ALL-R09": "blocks",
    "ALL-R11": "blocks",
    "V1-R71": "blocks",
    AT_THE_DOOR: "refusal",
}
BY_RULE_KIND = {"progress": "wait", "decision": "decision", "safety": "limit"}
NAMES = tuple(f"r{number}" for number in range(20))  # the names that a search gives to requests
# Features that requests of any system may have. Unlike optional ones, they do not tell faults
# apart.
BASIC = frozenset({"abort", "end before max_tokens", "shared prompt", "priority"})
FEW = 3  # an unshrunk finding counts as needing this many features
ENDS = (NEVER_CRASHES, NEVER_HANGS)
ACCEPTED_FOR = datetime.timedelta(days=90)


def faults_of(
    findings: Sequence[Finding],
    rules: Mapping[str, Rule],
    today: datetime.date,
    own_file: str = "",
    usual: Collection[str] = (),
    folder: Path = Path(),
) -> tuple[Fault, ...]:
    """Group findings into faults. Those that affect users most come first, known divergences last.

    The entry that accepts a fault expires 90 days after `today`. `own_file` is the file of the
    user's class, and `usual` lists the keys that every configuration of the system has. `folder` is
    that of the file of deviations.
    """
    groups: list[list[Finding]] = []
    for finding in sorted(findings, key=lambda finding: finding.needs is None):
        alike = [
            group
            for group in groups
            if any(_one_cause(finding, member, own_file, usual) for member in group)
        ]
        if finding.needs is None and alike:
            alike = [min(alike, key=lambda group: _join_order(finding, group))]
        groups = [group for group in groups if group not in alike]
        groups.append([member for group in alike for member in group] + [finding])
    order = list(findings)
    whole = [sorted(group, key=lambda member: _cause_order(member, order)) for group in groups]
    whole.sort(key=lambda group: _worst_first(group, rules, order))
    by_cause = sorted(whole, key=lambda group: _cause_order(group[0], order))
    return tuple(
        _fault(number, group, whole, by_cause, rules, today, usual, folder)
        for number, group in enumerate(whole, 1)
    )


def _join_order(finding: Finding, group: Sequence[Finding]) -> tuple[bool, int]:
    """Return a sort key for the groups that an unshrunk finding could join. Groups with the
    finding's scenario come first, then groups whose rule is the first that the finding's run
    breaks."""
    broken = frozenset[str]().union(*(_broken_in_last_step(member) for member in group))
    places = [place for place, rule in enumerate(finding.behind) if rule in broken]
    is_other = all(_content(member) != _content(finding) for member in group)
    return is_other, min(places, default=len(finding.behind))


def _one_cause(finding: Finding, other: Finding, own_file: str, usual: Collection[str]) -> bool:
    if finding.by_adapter != other.by_adapter:
        # The adapter may have reported the wrong kind of step. But rules that apply to every system
        # do not depend on the kind, so the scheduler must have broken them.
        rule = other.rule if finding.by_adapter else finding.rule
        follows = any(_comes_after(*pair) for pair in ((finding, other), (other, finding)))
        return follows and not rule.startswith(FOLLOW_NOTHING)
    if _content(finding) == _content(other):
        return True
    if own_file and {*finding.only_here} & {*other.only_here} & _lines_of(own_file, finding):
        return True
    if finding.divergence and finding.divergence == other.divergence:
        return True
    pairs = (finding, other), (other, finding)
    same_code = finding.rule == other.rule and any(_executes(*pair) for pair in pairs)
    if not same_code and any(_extra_features(*pair, usual) for pair in pairs):
        return False
    if finding.rule == other.rule:
        return _is_one_failure(finding, other)
    if bool(finding.divergence) != bool(other.divergence):
        return False  # a known divergence must not hide an unknown fault
    if finding.rule in _broken_in_last_step(other) or other.rule in _broken_in_last_step(finding):
        return True
    for later, earlier in pairs:
        if _comes_after(later, earlier) and _needs_no_more(later, earlier):
            return True
    return _same_needs(finding, other) and _differs_in_same_fields(finding, other, usual)


def _differs_in_same_fields(finding: Finding, other: Finding, usual: Collection[str]) -> bool:
    """Return whether the same fields differ first in both findings.

    A crash may hide which fields would have differed. In that case, return whether the finding
    needs an optional feature.
    """
    if any(each.rule == NEVER_CRASHES and each.differs is None for each in (finding, other)):
        return bool(_optional_features(finding, usual))
    return bool(finding.differs) and finding.differs == other.differs


def _lines_of(file: str, finding: Finding) -> set[str]:
    return {lines for lines in finding.only_here if lines.startswith(f"{file}:")}


def _extra_features(finding: Finding, other: Finding, usual: Collection[str]) -> set[str]:
    """Return the optional features that the first finding needs and the second does not need in any
    setting.

    If only one of them needs sessions, for example, a fault in the handling of sessions cannot have
    caused both. If the second finding was not shrunk, assume that it needs every feature that its
    run uses.
    """
    theirs = (other.features or None) if other.needs is None else other.needs
    if theirs is None:
        return set()
    keys = _keys(theirs)
    return {name for name in _optional_features(finding, usual) if _key(name) not in keys}


def _optional_features(finding: Finding, usual: Collection[str]) -> set[str]:
    needs = {*(finding.needs or ())} - BASIC
    return {name for name in needs if _key(name) not in usual}


def _key(feature: str) -> str:
    return feature.partition(" ")[0]


def _keys(features: Iterable[str]) -> set[str]:
    return {_key(name) for name in features}


def _is_one_failure(finding: Finding, other: Finding) -> bool:
    """Return whether two findings of one rule are the same failure. Crashes and hangs must
    have the same message and place, and differences from the model must concern the same fields."""
    if finding.rule in (*ENDS, LOCKSTEP) and _shape(finding) != _shape(other):
        return False
    if finding.behind and other.behind and not {*finding.behind} & {*other.behind}:
        return False  # each may follow from another fault
    if finding.differs and finding.differs == other.differs:
        return True
    if finding.needs is None or other.needs is None:
        return True
    mine, theirs = (
        _needs_unlike(finding, other),
        _needs_unlike(other, finding),
    )
    return mine <= theirs or theirs <= mine


def _needs_unlike(finding: Finding, other: Finding) -> set[str]:
    """Return the features that a finding needs, except those that `other` needs in another setting.

    If one finding needs a feature on and the other needs it off, the rule is broken either way, so
    the feature does not matter.
    """
    theirs = {*(other.needs or ())}
    keys = _keys(theirs)
    return {name for name in finding.needs or () if name in theirs or _key(name) not in keys}


def _broken_in_last_step(finding: Finding) -> frozenset[str]:
    """Return the rules broken in the last step, except the comparison with the model. A failing run
    always differs from the model, so this comparison says nothing about the cause."""
    return finding.rules - {LOCKSTEP}


def _comes_after(later: Finding, earlier: Finding) -> bool:
    return bool({*later.behind} & _broken_in_last_step(earlier))


def _executes(finding: Finding, cause: Finding) -> bool:
    """Return whether the run of `finding` executes every line of the user's class that the run
    of `cause` executes."""
    needed, here = _own_lines(cause), _own_lines(finding)
    return cause.rule not in ENDS and bool(needed) and needed <= here


def _own_lines(finding: Finding) -> set[int]:
    return {line for lines in finding.own for line in line_numbers(lines.rpartition(":")[2])}


def _content(finding: Finding) -> str:
    """Return the part of the scenario's file name that is a digest of its content."""
    return Path(finding.scenario).stem.rpartition("-")[2]


def _shape(finding: Finding) -> str:
    return shape(Broken(finding.rule, finding.step, finding.message, finding.place), NAMES)


def _needs_no_more(finding: Finding, other: Finding) -> bool:
    """Return whether `other` needs every feature that `finding` needs. If either of them was not
    shrunk, return whether both were found at the same scale."""
    if finding.needs is None or other.needs is None:
        return finding.scale == other.scale
    return {*finding.needs} <= {*other.needs}


def _same_needs(finding: Finding, other: Finding) -> bool:
    return (
        finding.needs is not None
        and finding.needs != ()
        and {*finding.needs} == {*(other.needs or ())}
    )


def _cause_order(finding: Finding, order: Sequence[Finding]) -> tuple[bool, bool, int, int]:
    """Return a sort key. It puts findings first whose run broke no other rule earlier, then shrunk
    findings, then findings that need few features. `order` breaks ties."""
    needs = FEW if finding.needs is None else len(finding.needs)
    return bool(finding.behind), bool(finding.others_first), needs, order.index(finding)


def kind_of(finding: Finding, rules: Mapping[str, Rule]) -> str:
    if finding.by_adapter:
        return "adapter"
    return KINDS.get(finding.rule) or BY_RULE_KIND[rules[finding.rule].kind]


def _worst(group: Sequence[Finding], rules: Mapping[str, Rule]) -> str:
    if any(finding.by_adapter for finding in group):
        return "adapter"
    return min((kind_of(finding, rules) for finding in group), key=list(MEANS).index)


def _worst_first(
    group: Sequence[Finding], rules: Mapping[str, Rule], order: Sequence[Finding]
) -> tuple[bool, int, int]:
    known = all(finding.divergence for finding in group)
    return known, list(MEANS).index(_worst(group, rules)), order.index(group[0])


def _fault(
    number: int,
    group: Sequence[Finding],
    whole: Sequence[Sequence[Finding]],
    roots_first: Sequence[Sequence[Finding]],
    rules: Mapping[str, Rule],
    today: datetime.date,
    usual: Collection[str],
    folder: Path,
) -> Fault:
    root, *others = group
    broken = dict.fromkeys(
        [*root.consequences, *(r for o in others for r in (o.rule, *o.consequences))]
    )
    earlier = {
        place: [
            finding
            for finding in other
            if _comes_after(root, finding) and not _extra_features(finding, root, usual)
        ]
        for place, other in enumerate(whole, 1)
        if place != number
    }
    places = [place for place, broken_before in earlier.items() if broken_before]
    # Prefer a fault whose features this one has too.
    places.sort(key=lambda at: not any(_needs_no_more(other, root) for other in earlier[at]))
    if not places:  # Few features say little about a crash, so any other fault may be its cause.
        before = roots_first[: None if root.rule in ENDS else roots_first.index(group)]
        places = [whole.index(other) + 1 for other in before if _executes(root, other[0])]
    kind = _worst(group, rules)
    return Fault(
        number=number,
        kind=kind,
        means=MEANS[kind],
        rule=root.rule,
        step=root.step,
        message=root.message,
        scenario=root.scenario,
        replay=root.replay,
        accept="" if kind == "adapter" else _entry(root, today + ACCEPTED_FOR, folder),
        follows=tuple(rule for rule in broken if rule != root.rule),
        scenarios=tuple(dict.fromkeys(finding.scenario for finding in group)),
        scales=tuple(dict.fromkeys(finding.scale for finding in group)),
        needs=root.needs or (),
        behind=places[0] if places else None,
        divergence=root.divergence if all(finding.divergence for finding in group) else None,
        shrunk=not root.others_first,
        decided=root.decided,
        only_here=root.only_here,
        nearest=root.nearest,
    )


def _entry(finding: Finding, until: datetime.date, folder: Path) -> str:
    scenario = finding.scenario
    if folder != Path() and not Path(scenario).is_absolute():
        scenario = os.path.relpath(scenario, folder)
    return (
        f'[[known]]\nrule = "{finding.rule}"\nscenario = {json.dumps(scenario)}\n'
        f'reason = "why this failure is accepted"\nuntil = {until}\n'
    )
