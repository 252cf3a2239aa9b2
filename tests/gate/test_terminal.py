"""What is printed of a verdict: a line a rule, divergences with the rule's own sentence."""

import io
import json
from typing import Any

from schedproof.gate import report
from schedproof.gate.reports.terminal import print_verdict, summary
from schedproof.gate.verdict import RuleVerdict, TargetInfo, Verdict
from schedproof.spec.catalogue import load

RULES = load("spyre")
TITLES = {rule.id: rule.title for rule in RULES}
SAYS = {rule.id: rule.says for rule in RULES}


def verdict(*rules: RuleVerdict, **changes: Any) -> Verdict:
    values: dict[str, Any] = {
        "target": TargetInfo("toy", "toy", "1"),
        "system": "spyre",
        "revision": "sound",
        "profile": "quick",
        "seed": 3,
        "engines": (),
        "rules": rules,
        "findings": (),
        "exit_code": 1,
    }
    return Verdict(**(values | changes))


def printed(given: Verdict) -> list[str]:
    console = report.make_console()
    console.file = io.StringIO()
    print_verdict(console, given, RULES)
    return console.file.getvalue().splitlines()


KNOWN = RuleVerdict("SPY-R22", "violated", 4, "s.json", "left out", divergence="2.4.0: pauses")
NEW = RuleVerdict("SPY-R07", "violated", 5, "s.json", "too wide")


def test_a_known_divergence_is_printed_with_the_sentence_of_the_rule() -> None:
    assert printed(verdict(KNOWN, NEW)) == [
        f"diverges       SPY-R22  {TITLES['SPY-R22']}: left out",
        f"    the rule: {SAYS['SPY-R22']}",
        "    known of 2.4.0: pauses",
        f"BROKEN         SPY-R07  {TITLES['SPY-R07']}: too wide",
        "toy 1 against sound: does not conform (0 held, 2 broken (1 known divergence); seed 3)",
    ]


def test_known_divergences_are_counted_apart() -> None:
    also = RuleVerdict("SPY-R35", "violated", 4, "s.json", "idle", divergence="2.4.0: idles")
    assert "2 broken (2 known divergences)" in summary(verdict(KNOWN, also), RULES)
    assert "1 broken;" in summary(verdict(NEW), RULES)


def test_rules_without_a_predicate_are_one_line_and_not_counted() -> None:
    unchecked = [rule for rule in RULES if rule.unchecked][:2]
    entries = [RuleVerdict(one.id, "not_observable", message=one.unchecked) for one in unchecked]
    held = RuleVerdict("SPY-R35", "held", at_stake=9)
    hidden = RuleVerdict("ALL-R03", "not_observable", message="the target does not show waiting")
    lines = printed(verdict(*entries, held, hidden, exit_code=0))
    assert lines == [
        f"held           SPY-R35  {TITLES['SPY-R35']} (at stake in 9 steps)",
        f"not observable ALL-R03  {TITLES['ALL-R03']}: the target does not show waiting",
        "2 more have no predicate of their own (schedproof rules says why, and what stands in)",
        "toy 1 against sound: conforms (1 held, 0 broken, 1 not observable; seed 3)",
    ]


def test_the_verdict_file_keeps_the_divergence() -> None:
    data = json.loads(report.as_json(verdict(KNOWN, NEW)))
    assert [entry["divergence"] for entry in data["rules"]] == ["2.4.0: pauses", None]
