"""Write the verdict as Markdown for a pull request, in at most 40 lines. Each fault has a replay
command."""

import re
from collections.abc import Sequence

from ..console.output import one_line, plural
from ..judging.verdict import Fault, RuleVerdict, Verdict
from .outcome import broken_off, in_short, isolation_warning, out_of_date, reason_of, result

PUNCTUATION = re.compile(r"([!#$&()*+\-./:<>?@\[\\\]^_`{|}~])")
MOST_FAULTS, MOST_DATED, MOST_RULES = 10, 4, 5
LONGEST = 300  # the longest text of the target or the user that is shown, in characters
OPEN = {
    "known": "known",
    "excluded": "not judged, on purpose",
    "inconclusive": "inconclusive",
}


def markdown(verdict: Verdict) -> str:
    """Return the verdict as Markdown, with a replay command for each fault. Faults that the base
    shares are omitted; their rules are listed as known."""
    counts = [f"{plural(sum(entry.status == 'held' for entry in verdict.rules), 'rule')} held"]
    if judged_not := sum(entry.status.startswith(("not_", "planned")) for entry in verdict.rules):
        counts.append(f"{judged_not} not judged")
    new = " that the base does not have" * (verdict.base is not None)
    lines = [
        f"## schedproof: {escaped(result(verdict))}",
        "",
        f"**{plural(len(verdict.faults), 'fault')}{new}**; {', '.join(counts)}; "
        f"profile {verdict.profile}, seed {verdict.seed}",
        "",
    ]
    if (why := broken_off(verdict)) is not None:
        lines += [escaped(why), ""]
    points = [f"{what}: {reason}" for what, reason in out_of_date(verdict).items()]
    points = [*points[:MOST_DATED], *_more(len(points) - MOST_DATED, "deviation")]
    points += [
        f"{words}: {_open(entries)}"
        for status, words in OPEN.items()
        if (entries := [entry for entry in verdict.rules if entry.status == status])
    ]
    if verdict.base is not None:
        changes = f"{plural(len(verdict.decisions), 'kind')} of difference"
        repairs = ", ".join(change.what for change in verdict.repaired[:MOST_RULES])
        compared = f"compared with {verdict.base.name} {verdict.base.version}: {changes}"
        points.append(compared + f"; repairs {repairs}" * bool(repairs))
    points += [warning] if (warning := isolation_warning(verdict)) is not None else []
    lines += [f"- {escaped(point)}" for point in points]
    lines += [""] * bool(points)
    if verdict.faults:
        shown = verdict.faults[:MOST_FAULTS]
        lines += ["```", *(line for fault in shown for line in _lines(fault)), "```"]
        more = _more(len(verdict.faults) - MOST_FAULTS, "fault")
        lines += [f"{words}: the gate's own output lists all of them" for words in more]
    return "\n".join(lines).rstrip() + "\n"


def escaped(text: str) -> str:
    # GitHub notifies the user that an @ names, even after a backslash. A zero-width space prevents
    # this.
    return PUNCTUATION.sub(r"\\\1", _short(text)).replace("@", "@\u200b")


def _lines(fault: Fault) -> tuple[str, str]:
    # The command is never shortened, so that it can be copied.
    return _short(in_short(fault)), one_line(fault.replay)


def _open(entries: Sequence[RuleVerdict]) -> str:
    if len(entries) > MOST_RULES:
        shown = ", ".join(entry.id for entry in entries[:MOST_RULES])
        return f"{shown} and {len(entries) - MOST_RULES} more"
    return ", ".join(f"{entry.id} ({reason_of(entry)})" for entry in entries)


def _more(count: int, noun: str) -> list[str]:
    return [f"and {plural(count, f'more {noun}')}"] if count > 0 else []


def _short(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
