"""What a verdict means, in the words that all reports share."""

from ...properties.rules.predicate import Broken
from ...spec.catalogue import Rule
from ..console import INCONCLUSIVE
from ..console.interrupts import why
from ..console.output import failure_lines, one_line
from ..judging.events import Found
from ..judging.verdict import RuleVerdict, Verdict

UNTIL_THEN = "the verdict is about what ran until then"
WORDS = {0: "conforms", 1: "does not conform"}


def result(verdict: Verdict) -> str:
    """The target, what it is held to, and whether it conforms."""
    what = f"{verdict.target.name} {verdict.target.version} against {verdict.revision}"
    return f"{what}: {WORDS.get(verdict.exit_code, 'inconclusive')}"


def broken_off(verdict: Verdict) -> str | None:
    """Why the gate as a whole says less than it was asked; None where it ran to its end."""
    if verdict.fault is not None:
        return verdict.fault
    if verdict.interrupted:
        return f"{why()}: {UNTIL_THEN}"
    statuses = {entry.status for entry in verdict.rules}
    if verdict.exit_code == INCONCLUSIVE and "inconclusive" not in statuses:
        return "a rule that was to be judged was never exercised, or cannot be seen"
    return None


def out_of_date(verdict: Verdict) -> dict[str, str]:
    """The known deviations that fail the gate, each with the reason."""
    return {
        f"deviation of {one.rule} ({one.scenario or one.version})": f"{one.state}: {one.says}"
        for one in verdict.deviations
        if one.state != "known"
    }


def because(entry: RuleVerdict) -> str:
    """Why the rule has this status, or an empty text."""
    if entry.status == "held":
        return f"exercised in {entry.exercised} steps"
    also = f" (with {entry.consequence_of})" if entry.consequence_of else ""
    return f"{entry.message or ''}{also}"


def explained(event: Found, rule: Rule) -> list[str]:
    """All that is known of a finding, a printable line each."""
    finding = event.finding
    broken = Broken(finding.rule, finding.step, finding.message)
    reported = (rule, event.scenario, broken, finding.scenario, event.replay, event.run)
    known = [f"known:    {one_line(finding.divergence)}"] if finding.divergence else []
    return failure_lines(*reported) + known
