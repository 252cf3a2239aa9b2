"""Describe a verdict in the words that all reports share."""

from collections.abc import Sequence

from ...model.replies import StartUp
from ...properties.rules.predicate import Broken
from ...properties.rules.registry import NEVER_CRASHES, NEVER_HANGS
from ...properties.search.state import Reach
from ...spec.catalogue import Rule
from ..console import CONFORMS, INCONCLUSIVE
from ..console.interrupts import why
from ..console.output import failure_lines, one_line, plural
from ..judging.verdict import (
    NOT_SHOWN,
    Fault,
    Found,
    RuleVerdict,
    Verdict,
    not_judged,
    nothing_accepted,
)

UNTIL_THEN = "the verdict covers only what had run by then"
NOTHING_ACCEPTED = "the target accepted no request, so nothing was judged"
# Of the lines that only one run enters, how many files and ranges to show.
SHOWN_FILES, SHOWN_RANGES = 3, 6
# If a target conforms and a rule has one of these statuses, the target shows enough for the rule.
SEEN = ("held", "known", "not_exercised")
WORDS = {0: "conforms", 1: "does not conform"}


def result(verdict: Verdict) -> str:
    """Return one line: the target, the revision, and whether the target conforms to it."""
    what = f"{verdict.target.name} {verdict.target.version} against {verdict.revision}"
    words = WORDS.get(verdict.exit_code, "inconclusive")
    return f"{what}: {words}{shows_little(verdict.exit_code, verdict.rules)}"


def shows_little(
    code: int, rules: Sequence[RuleVerdict], hides: str | tuple[str, ...] = NOT_SHOWN
) -> str:
    """Return text to append to the result of a conforming target if it does not show enough for
    most of the rules. Messages about such rules begin with `hides`.
    """
    hidden = sum((entry.message or "").startswith(hides) for entry in rules)
    seen = sum(entry.status in SEEN for entry in rules)
    if code != CONFORMS or hidden <= seen:
        return ""
    return f", but it shows enough for only {seen} of {plural(hidden + seen, 'rule')}"


def requests_refused(verdict: Verdict) -> int:
    return sum(engine.rejected_requests for engine in verdict.engines)


def isolation_warning(verdict: Verdict) -> str | None:
    """Return a warning if the target refused so many requests that no run had more than one."""
    refused = requests_refused(verdict)
    if not refused or verdict.reach is None or verdict.reach.requests > 1:
        return None
    return (
        f"no run had more than one request, because the target refused {refused:,} others; so the "
        "gate could not judge how requests affect each other"
    )


def broken_off(verdict: Verdict) -> str | None:
    """Return why the gate covered less than was requested; None if it covered everything."""
    if verdict.fault is not None:
        return verdict.fault
    if verdict.interrupted:
        return f"{why()}: {UNTIL_THEN}"
    if (refused := refused_parts(verdict)) is not None:
        return refused
    if verdict.exit_code == INCONCLUSIVE and nothing_accepted(verdict.reach):
        return NOTHING_ACCEPTED
    statuses = {entry.status for entry in verdict.rules}
    if verdict.exit_code == INCONCLUSIVE and "inconclusive" not in statuses:
        return "a requested rule was never exercised, or the target shows too little to check it"
    return None


def refused_parts(verdict: Verdict) -> str | None:
    """Return a line about the parts of the gate that were not judged because the target refused
    them, or None."""
    lines = not_judged(verdict.engines)
    return f"the gate did not judge {'; nor '.join(lines)}" if lines else None


def out_of_date(verdict: Verdict) -> dict[str, str]:
    return {
        f"deviation of {entry.rule} ({entry.scenario or entry.version})": (
            f"{entry.state}: {entry.says}"
        )
        for entry in verdict.deviations
        if entry.fails
    }


def reason_of(entry: RuleVerdict) -> str:
    if entry.status == "held":
        return f"exercised in {plural(entry.exercised, 'step')}"
    also = [f"with {entry.consequence_of}"] if entry.consequence_of else []
    also += [f"fault {entry.fault}"] if entry.fault else []
    return f"{entry.message or ''} ({', '.join(also)})" if also else entry.message or ""


def explanation_lines(event: Found, rule: Rule, fault: Fault | None = None) -> list[str]:
    """Return the lines that describe a finding in full. If the finding represents a fault, describe
    the fault as well."""
    finding = event.finding
    broken = Broken(finding.rule, finding.step, finding.message)
    reported = (rule, event.scenario, broken, finding.scenario, event.replay, event.run)
    lines = failure_lines(*reported, None if event.cause is None else event.cause.why)
    if finding.others_first:
        lines.append(
            f"not shrunk: {finding.others_first} other findings were shrunk first (--max-failures)"
        )
    if finding.start_up:
        lines.append(start_line(finding.start_up))
    if finding.divergence:
        lines.append(f"known:    {finding.divergence}")
    if fault is not None and fault.scenario == finding.scenario:
        if before := [rule for rule in finding.behind if rule not in fault.follows]:
            of_fault = f" (fault {fault.behind})" if fault.behind else ""
            lines.append(
                f"earlier: {', '.join(before)} {breaks(before)} before this rule{of_fault}"
            )
        lines += _of_the_fault(fault)
    return [one_line(line) for line in lines]


def lines_of_code(fault: Fault) -> list[str]:
    """Return where the scheduler raised an exception or hung, and which lines only this run
    entered."""
    lines = []
    if fault.decided:
        lines.append(f"decided:  {fault.decided}")
    if fault.only_here:
        number = f"{fault.nearest} " if fault.nearest > 1 else ""
        runs = f"the {number}most similar passing run{'s' if number else ''}"
        what = f"lines that {runs} did not enter"
        files = [_first_lines(file) for file in fault.only_here[:SHOWN_FILES]]
        files += ["..."] * (len(fault.only_here) > SHOWN_FILES)
        lines.append(f"only here: {'; '.join(files)} ({what})")
    return lines


def _of_the_fault(fault: Fault) -> list[str]:
    lines = lines_of_code(fault)
    if fault.needs:
        lines.append(f"only with: {', '.join(fault.needs)}")
    if fault.follows:
        lines.append(f"follows:  {', '.join(fault.follows)} {breaks(fault.follows)} as well")
    lines += [f"also in:  {path}" for path in fault.scenarios[1:]]
    if fault.accept:
        lines.append("to accept it until a date, add to the --deviations file:")
        lines += [f"  {line}" for line in fault.accept.splitlines()]
        if fault.rule in (NEVER_CRASHES, NEVER_HANGS):
            return lines  # a crash or a hang ends the run, so these rules cannot be excluded
        meant = f'[[by_design]] with rule = "{fault.rule}" and a reason'
        lines.append(f"to accept it for good, because it is intended: {meant}")
    return lines


def _first_lines(file: str) -> str:
    ranges = file.split(", ")
    return ", ".join(ranges[:SHOWN_RANGES]) + ", ..." * (len(ranges) > SHOWN_RANGES)


def breaks(rules: Sequence[str]) -> str:
    return "is broken" if len(rules) == 1 else "are broken"


def in_short(fault: Fault) -> str:
    follows = f" (and {', '.join(fault.follows)})" * bool(fault.follows)
    known = f"; known divergence of {fault.divergence}" if fault.divergence else ""
    return one_line(f"{fault.number}. {fault.kind}: {fault.rule}{follows}: {fault.message}{known}")


def reach_in_words(reach: Reach) -> str:
    sizes = (
        f"{plural(reach.runs, 'run')} of up to {plural(reach.requests, 'request')} and "
        f"{plural(reach.steps, 'step')}, prompts up to {plural(reach.prompt_tokens, 'token')}, "
        f"answers up to {reach.output_tokens:,}"
    )
    features = [f"{name} in {runs:,}" for name, runs in reach.features.items() if runs]
    missing = [name for name, runs in reach.features.items() if not runs]
    never = [f"never: {', '.join(missing)}"] * bool(missing)
    return "; ".join([sizes, *([", ".join(features)] * bool(features)), *never])


def start_line(start_up: StartUp) -> str:
    return f"starts in production: {one_line(str(start_up))}"
