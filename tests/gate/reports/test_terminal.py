"""What is printed of a gate: findings in full, progress on a terminal, a line a rule."""

import io
import json
import re
from collections import Counter
from datetime import date
from typing import Any

import pytest

from schedproof.gate.console import output
from schedproof.gate.judging.faults import faults_of
from schedproof.gate.judging.verdict import (
    NOT_SHOWN,
    EngineRun,
    Progress,
    RuleVerdict,
    TargetInfo,
    Verdict,
    refusals,
)
from schedproof.gate.reports.markdown import markdown
from schedproof.gate.reports.outcome import explanation_lines, reach_in_words
from schedproof.gate.reports.terminal import Terminal, print_verdict, summary
from schedproof.properties.search.state import Reach
from schedproof.spec.catalogue import load

from .. import reported

RULES = load("spyre")
TITLES = {rule.id: rule.title for rule in RULES}
SAYS = {rule.id: rule.statement for rule in RULES}


def verdict(*rules, **changes):
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


def printed(given, verbose=True):
    console = output.make_console()
    console.file = io.StringIO()
    print_verdict(console, given, RULES, verbose)
    return console.file.getvalue().splitlines()


KNOWN = RuleVerdict("SPY-R22", "violated", 4, "s.json", "left out", divergence="2.4.0: pauses")
NEW = RuleVerdict("SPY-R07", "violated", 5, "s.json", "too wide")


def test_a_known_divergence_is_printed_with_the_sentence_of_the_rule():
    assert printed(verdict(KNOWN, NEW)) == [
        f"diverges       SPY-R22  {TITLES['SPY-R22']}: left out",
        f"    the rule: {SAYS['SPY-R22']}",
        "    known divergence of 2.4.0: pauses",
        f"BROKEN         SPY-R07  {TITLES['SPY-R07']}: too wide",
        "toy 1 against sound: does not conform (0 held, 2 broken (1 known divergence); seed 3)",
    ]


def test_what_was_reached_is_one_line_that_says_what_never_occurred():
    assert reach_in_words(Reach(1, 1, 70, 9, 20, {"abort": 0, "priority": 0})) == (
        "1 run of up to 1 request and 20 steps, prompts up to 70 tokens, answers up to 9; "
        "never: abort, priority"
    )
    assert reach_in_words(Reach(2000, 300, 1, 9, 20, {"abort": 12})) == (
        "2,000 runs of up to 300 requests and 20 steps, prompts up to 1 token, answers up to 9; "
        "abort in 12"
    )


def test_a_target_that_shows_little_conforms_only_as_far_as_it_can_be_judged():
    held = RuleVerdict("ALL-R01", "held", exercised=9)
    hidden = [RuleVerdict(rule.id, "not_observable", message=f"{NOT_SHOWN}x") for rule in RULES[:2]]
    *_, last = printed(verdict(held, *hidden, exit_code=0))
    assert last == (
        "toy 1 against sound: conforms, but it shows enough for only 1 of 3 rules "
        "(1 held, 0 broken, 2 not observable; seed 3)"
    )
    *_, last = printed(verdict(held, hidden[0], exit_code=0))
    assert last.startswith("toy 1 against sound: conforms (1 held, ")


@pytest.mark.parametrize(("requests", "warns"), [(1, True), (2, False)])
def test_refused_requests_are_counted_and_it_warns_if_none_met_another(requests, warns):
    runs = (EngineRun("hypothesis", "small", 9, 90, 1, 0, 30), EngineRun("workloads", "a", 1, 9, 1))
    held = RuleVerdict("ALL-R01", "held", exercised=9)
    reach = Reach(10, requests, 1, 1, 20)
    lines = printed(verdict(held, exit_code=0, engines=runs, reach=reach))
    assert lines[-1].endswith("(1 held, 0 broken; 30 requests refused; seed 3)")
    warning = "no run had more than one request, because the target refused 30 others; "
    assert any(line.startswith(f"warning        {warning}") for line in lines) is warns
    page = markdown(verdict(held, exit_code=0, engines=runs, reach=reach))
    assert ("no run had more than one request" in page) is warns


def test_configurations_that_were_refused_are_counted_with_each_reason_once():
    said = Counter(
        {
            "$.config.num_blocks is 4; vllm 0.33.0 does not start with max_model_len 256": 2,
            "$.config.num_blocks is 3; vllm 0.33.0 does not start with max_model_len 12": 3,
            "$.config.watermark is 0.5; valid: 0 (vllm 0.19.1 has no such option)": 1,
        }
    )
    assert printed(verdict(NEW, refusals=refusals(said)))[1:3] == [
        "refused 5 configurations, such as: $.config.num_blocks is 4; vllm 0.33.0 does not start "
        "with max_model_len 256",
        "refused 1 configuration: $.config.watermark is 0.5; valid: 0 (vllm 0.19.1 has no such "
        "option)",
    ]


def test_rules_that_are_inconclusive_for_the_same_reason_share_a_line():
    stopped = [RuleVerdict(rule.id, "inconclusive", message="stopped") for rule in RULES[:3]]
    alone = RuleVerdict(RULES[3].id, "inconclusive", message="another")
    given = verdict(*stopped, alone, exit_code=3)
    assert printed(given, verbose=False)[:-1] == [
        "inconclusive   3 rules: stopped (--verbose lists them)",
        f"inconclusive   {RULES[3].id}  {RULES[3].title}: another",
    ]
    assert len(printed(given)) == 5


def test_known_divergences_are_counted_apart():
    also = RuleVerdict("SPY-R35", "violated", 4, "s.json", "idle", divergence="2.4.0: idles")
    assert "2 broken (2 known divergences)" in summary(verdict(KNOWN, also), RULES)
    assert "1 broken;" in summary(verdict(NEW), RULES)


def test_rules_without_a_predicate_are_one_line_and_not_counted():
    unchecked = [rule for rule in RULES if rule.unchecked][:2]
    entries = [RuleVerdict(rule.id, "not_observable", message=rule.unchecked) for rule in unchecked]
    held = RuleVerdict("SPY-R35", "held", exercised=9)
    hidden = RuleVerdict("ALL-R03", "not_observable", message="the target does not show waiting")
    lines = printed(verdict(*entries, held, hidden, exit_code=0))
    assert lines == [
        f"held           SPY-R35  {TITLES['SPY-R35']} (exercised in 9 steps)",
        f"not observable ALL-R03  {TITLES['ALL-R03']}: the target does not show waiting",
        "2 more rules have no predicate of their own (to see why, and what checks "
        "them instead: schedproof rules)",
        "toy 1 against sound: conforms (1 held, 0 broken, 1 not observable; seed 3)",
    ]


def test_what_held_is_a_line_and_what_was_left_out_keeps_its_own():
    entries = (
        RuleVerdict("SPY-R35", "held", exercised=9),
        RuleVerdict("SPY-R22", "held", exercised=4),
        RuleVerdict("SPY-R07", "excluded", message="by design: as we like it"),
        RuleVerdict("SPY-R02", "not_exercised", message="A witness."),
        RuleVerdict("ALL-R03", "not_observable", message="the target does not show waiting"),
        RuleVerdict("ALL-R09", "not_observable", message="the target does not show blocks"),
    )
    assert printed(verdict(*entries, exit_code=0), verbose=False) == [
        "held           2 rules, each exercised in 4 steps or more (--verbose lists them)",
        "not exercised  SPY-R02",
        "not observable 2 rules: the target does not show blocks, waiting",
        f"excluded       SPY-R07  {TITLES['SPY-R07']}: by design: as we like it",
        "toy 1 against sound: conforms (2 held, 0 broken, 1 excluded, 1 not exercised, "
        "2 not observable; seed 3)",
    ]
    assert len(printed(verdict(*entries, exit_code=0))) == 7
    broken = printed(verdict(*entries, RuleVerdict("SPY-R30", "violated")), verbose=False)
    assert [line[:22] for line in broken[:5]] == [
        "held           2 rules",
        "not exercised  SPY-R02",
        "not observable 2 rules",
        "excluded       SPY-R07",
        "BROKEN         SPY-R30",
    ]


def test_the_verdict_file_keeps_the_divergence():
    data = json.loads(output.as_json(verdict(KNOWN, NEW)))
    assert [entry["divergence"] for entry in data["rules"]] == ["2.4.0: pauses", None]


@pytest.mark.parametrize(("rule", "offered"), [("ALL-R01", False), ("ALL-R03", True)])
def test_only_rules_that_can_be_excluded_are_offered_as_by_design(rule, offered):
    event = reported.found("f.json", rule=rule)
    [fault] = faults_of([event.finding], reported.BY_ID, date(2026, 1, 1))
    lines = explanation_lines(event, reported.BY_ID[rule], fault)
    assert "to accept it until a date, add to the --deviations file:" in lines
    assert any("[[by_design]]" in line for line in lines) is offered


PLACES: dict[str, dict[str, str]] = {
    "pipe": {},
    "narrow pipe": {"COLUMNS": "60"},
    "terminal": {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "100"},
    "narrow terminal": {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "60"},
    "no color": {"FORCE_COLOR": "1", "TERM": "xterm-256color", "NO_COLOR": "1"},
    "dumb": {"FORCE_COLOR": "1", "TERM": "dumb"},
    "ascii": {"encoding": "ascii"},
}


def told_to(console, *, progress=False):
    terminal = Terminal(console, RULES)
    for event in reported.events():
        if progress or not isinstance(event, Progress):  # it is drawn when the clock says so
            terminal(event)
    terminal.close()
    return reported.printed(console)


@pytest.mark.parametrize("place", ["pipe", "terminal", "narrow terminal", "ascii"])
def test_a_gate_is_told_in_full_wherever_it_is_read(place, console, snapshot):
    text = told_to(console(**PLACES[place]))
    assert text.replace("\x1b", "<ESC>") == snapshot


def test_the_width_of_a_terminal_changes_nothing_that_may_be_copied(console):
    assert told_to(console(**PLACES["pipe"])) == told_to(console(**PLACES["narrow pipe"]))
    wide, narrow = (
        [line for line in told_to(console(**PLACES[name])).splitlines() if " replay " in line]
        for name in ("terminal", "narrow terminal")
    )
    assert wide == narrow != []


def test_no_color_leaves_the_words(console):
    plain, pale = told_to(console()), told_to(console(**PLACES["no color"]))
    assert "\x1b[3" not in pale
    words = pale.replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[0m", "")
    assert words.split() == plain.split()


def test_hostile_words_cannot_leave_their_line(console):
    lines = told_to(console()).splitlines()
    assert not [line for line in lines if line.lstrip().startswith(("::error", "lines"))]
    assert all(line.isprintable() for line in lines)


def test_a_pipe_gets_no_progress(console):
    assert told_to(console(), progress=True) == told_to(console())


@pytest.mark.parametrize("columns", [40, 100])
def test_a_terminal_gets_progress_that_fits_its_line(columns, console):
    made = console(FORCE_COLOR="1", TERM="xterm-256color", COLUMNS=str(columns), NO_COLOR="1")
    made._force_terminal = True
    terminal = Terminal(made, RULES)
    terminal(Progress("hypothesis, small", 10, 60, 100))
    terminal.close()
    drawn = [line for line in reported.printed(made).split("\r") if "small: 10/60" in line]
    assert drawn
    words = [re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", line).partition("\n")[0] for line in drawn]
    assert all(len(line.rstrip()) <= columns for line in words)


def test_a_dumb_terminal_gets_no_control_codes(console):
    assert "\x1b" not in told_to(console(**PLACES["dumb"], NO_COLOR="1"), progress=True)
