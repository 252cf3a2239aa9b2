"""Write SARIF 2.1.0: one result per fault, located at the scenario files of its findings."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ... import __version__
from ...properties.checking.failure_signature import shape
from ...properties.rules.predicate import Broken
from ...spec.catalogue import Rule
from ..console.output import as_json, one_line
from ..judging.verdict import Fault, Finding, Found, Verdict
from .outcome import breaks, broken_off, out_of_date

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)


def sarif(verdict: Verdict, rules: Mapping[str, Rule], found: Mapping[str, Found]) -> bytes:
    """Return the verdict as SARIF. `found` maps each scenario to its finding."""
    ids = [entry.id for entry in verdict.rules]
    by_path = {finding.scenario: finding for finding in verdict.findings}
    run = {
        "tool": {
            "driver": {
                "name": "schedproof",
                "version": __version__,
                "rules": [_descriptor(rules[name]) for name in ids],
            }
        },
        "invocations": [_invocation(verdict)],
        "results": [
            _result(fault, by_path[fault.scenario], ids.index(fault.rule), found)
            for fault in verdict.faults
        ],
        "columnKind": "unicodeCodePoints",
        "properties": {
            "target": verdict.target.spec,
            "targetName": one_line(verdict.target.name),
            "targetVersion": one_line(verdict.target.version),
            "system": verdict.system,
            "revision": verdict.revision,
            "profile": verdict.profile,
            "seed": verdict.seed,
        },
    }
    return as_json({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def _result(
    fault: Fault, finding: Finding, index: int, found: Mapping[str, Found]
) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": "error",
        "message": {"text": _message(fault, finding)},
        "locations": [{"physicalLocation": _location(finding.scenario)}],
        "properties": {
            "fault": fault.number,
            "kind": fault.kind,
            "means": fault.means,
            "follows": fault.follows,
            "needs": fault.needs,
            "step": finding.step,
            "requests": finding.requests,
            "engine": finding.engine,
            "scale": finding.scale,
            "consequences": finding.consequences,
        },
    }
    if len(fault.scenarios) > 1:
        result["relatedLocations"] = [
            {"physicalLocation": _location(path)} for path in fault.scenarios[1:]
        ]
    if (event := found.get(finding.scenario)) is not None:
        result["partialFingerprints"] = {"schedproofShape/v1": _fingerprint(event)}
        result["properties"]["replay"] = event.replay
    if finding.divergence:
        # A known divergence still has to be accepted, so the gate fails.
        known = {
            "kind": "external",
            "status": "underReview",
            "justification": one_line(finding.divergence),
        }
        result |= {"level": "warning", "suppressions": [known]}
    return result


def _descriptor(rule: Rule) -> dict[str, Any]:
    help_text = f"{rule.statement}\nSource: {rule.source}"
    if rule.witness:
        help_text += f"\nExercised when: {rule.witness}"
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.statement},
        "help": {"text": help_text},
        "defaultConfiguration": {"level": "error"},
        "properties": {"kind": rule.kind},
    }


def _invocation(verdict: Verdict) -> dict[str, Any]:
    ended = verdict.fault is None and not verdict.interrupted
    invocation: dict[str, Any] = {"executionSuccessful": ended, "exitCode": verdict.exit_code}
    dated = [f"{what} {reason}" for what, reason in out_of_date(verdict).items()]
    why = broken_off(verdict)
    reported = dated if why is None else [*dated, why]
    if reported:
        invocation["toolExecutionNotifications"] = [
            {"level": "error", "message": {"text": one_line(text)}} for text in reported
        ]
    return invocation


def _message(fault: Fault, finding: Finding) -> str:
    words = f"step {finding.step}: {one_line(finding.message)} ({fault.means}"
    follows = fault.follows
    return f"{words}; {', '.join(follows)} {breaks(follows)}, too)" if follows else f"{words})"


def _location(scenario: str) -> dict[str, Any]:
    path = Path(scenario)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    uri = path.as_uri() if path.is_absolute() else quote(path.as_posix())
    return {"artifactLocation": {"uri": uri}, "region": {"startLine": 1}}


def _fingerprint(found: Found) -> str:
    finding = found.finding
    words = (found.scenario.origin or {}).get("shape")  # of a crash: with the code that raised
    if words is None:
        broken = Broken(finding.rule, finding.step, finding.message)
        words = shape(broken, found.scenario.request_ids)
    return hashlib.sha256(words.encode()).hexdigest()
