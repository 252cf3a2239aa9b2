"""Findings by cause: what belongs together, what comes first, and what is said of it."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from schedproof.gate.judging.deviations import read_deviations
from schedproof.gate.judging.faults import faults_of
from schedproof.gate.judging.judge import violation
from schedproof.gate.judging.verdict import Fault, Finding
from schedproof.model.systems import full_config
from schedproof.spec.catalogue import load

from ..build import Toy

RULES = {rule.id: rule for rule in load("vllm")}
USUAL = full_config("vllm", "documented", {})


def finding(rule: str, **changes: Any) -> Finding:
    """A finding that was shrunk, and needs nothing."""
    values: dict[str, Any] = {
        "rule": rule,
        "engine": "hypothesis",
        "scale": "small",
        "scenario": f"out/{rule}-{abs(hash((rule, *changes.items()))):010x}.json",
        "step": 3,
        "message": "r0 and 2 blocks",
        "requests": 1,
        "consequences": (),
        "found_after": 1.0,
        "shrunk_in": 1.0,
        "needs": (),
    }
    return Finding(**(values | changes))


def faults(*findings: Finding, folder: Path = Path()) -> tuple[Fault, ...]:
    return faults_of(findings, RULES, date(2026, 1, 31), usual=USUAL, folder=folder)


def together(*findings: Finding) -> list[list[str]]:
    return [[fault.rule, *fault.follows] for fault in faults(*findings)]


def test_rules_that_break_in_one_scenario_are_one_fault():
    leak = finding("ALL-R10", scenario="out/ALL-R10-0123456789.json", needs=("num_blocks",))
    other = finding("ALL-R06", scenario="out/ALL-R06-0123456789.json", needs=None)
    assert together(leak, other) == [["ALL-R10", "ALL-R06"]]


def test_the_verdict_on_a_rule_shows_the_run_that_its_fault_shows():
    first = finding("V1-R09", scale="tight", needs=("abort",), message="764 > 763", step=9)
    small = finding("V1-R09", message="86 > 84")
    verdict = violation("V1-R09", first, 12, faults(first, small))
    assert (verdict.message, verdict.step, verdict.scenario) == ("86 > 84", 3, small.scenario)


def test_rules_that_break_in_one_step_are_one_fault():
    first = finding("ALL-R05", consequences=("ALL-R10",))
    assert together(first, finding("ALL-R10", scale="tight")) == [["ALL-R05", "ALL-R10"]]


def test_what_breaks_without_a_session_is_no_fault_of_sessions():
    session = ("num_blocks", "streaming_inputs on", "session")
    turn = finding("V1-R45", needs=session[1:])
    stuck = finding("ALL-R10", needs=session[1:], behind=("V1-R45",), scale="tight")
    pool = finding("ALL-R05", needs=("num_blocks",), consequences=("ALL-R10",))
    assert together(turn, stuck, pool) == [["V1-R45", "ALL-R10"], ["ALL-R05", "ALL-R10"]]
    incomplete = finding("ALL-R06", needs=("num_blocks",))
    assert len(faults(finding("ALL-R06", needs=session, scale="tight"), incomplete)) == 2
    assert len(faults(turn, finding("ALL-R10", behind=("V1-R45",)))) == 2


def test_a_rule_that_breaks_with_and_without_an_optional_feature_is_two_faults():
    priority = ("num_blocks", "long_prefill_token_threshold", "policy priority", "priority")
    urgent = finding("ALL-R08", needs=priority, differs="scheduled")
    loaded = finding("ALL-R08", needs=("kv_connector on", "failed load"), differs="scheduled")
    assert len(faults(urgent, loaded)) == 2
    plain, sooner = (finding("V1-R45", needs=(*on, "session")) for on in ((), ("drafts",)))
    assert len(faults(plain, sooner)) == 2


def test_rules_that_break_with_the_same_known_divergence_are_one_fault():
    waits = finding("V1-R07", needs=("num_blocks",), divergence="0.18.0: at once")
    taken = finding("V1-R10", needs=("async_scheduling on",), divergence="0.18.0: at once")
    assert together(waits, taken) == [["V1-R07", "V1-R10"]]


def test_a_crash_is_one_fault_with_a_rule_that_needs_the_same_features():
    needs = ("kv_connector on", "abort", "external_tokens", "send_aborted")
    crash = finding("ALL-R01", needs=needs)
    early = finding("V1-R20", needs=needs, differs="blocks")
    assert len(faults(crash, early)) == 1
    assert len(faults(crash, finding("V1-R20", needs=needs[:-1], differs="blocks"))) == 2
    assert len(faults(finding("ALL-R10", needs=needs), early)) == 2
    usual = ("num_blocks", "priority")
    plain = finding("ALL-R01", needs=usual), finding("V1-R20", needs=usual, differs="blocks")
    assert len(faults(*plain)) == 2  # what needs no optional feature may have any cause


def test_what_was_not_shrunk_belongs_to_the_rule_that_its_run_breaks_first():
    turn = finding("V1-R45", needs=("session",))
    hit = finding("ALL-R08", needs=("session", "shared prompt"), behind=("V1-R45",))
    late = finding("V1-R44", needs=None, behind=("ALL-R08", "V1-R45"))
    assert together(turn, hit, late) == [["ALL-R08", "V1-R44"], ["V1-R45"]]


def test_what_was_not_shrunk_does_not_follow_from_what_needs_a_feature_that_it_lacks():
    turn = finding("V1-R45", needs=("streaming_inputs on", "session"), consequences=("V1CP-R02",))
    chunk = finding("V1-R56", needs=None, features=("streaming_inputs off",), behind=("V1CP-R02",))
    assert [(f.rule, f.follows, f.behind) for f in faults(turn, chunk)] == [
        ("V1-R45", ("V1CP-R02",), None),
        ("V1-R56", (), None),
    ]
    with_sessions = replace(chunk, features=("streaming_inputs on", "session", "kv_groups"))
    assert together(turn, with_sessions) == [["V1-R45", "V1CP-R02", "V1-R56"]]


def test_a_rule_without_an_optional_feature_is_not_behind_one_that_needs_it():
    turn = finding("V1-R45", needs=("session",))
    wait = finding("V1-R07", needs=("num_blocks",), behind=("V1-R45",))
    assert [fault.behind for fault in faults(turn, wait)] == [None, None]
    wait = finding("V1-R07", needs=("num_blocks", "session"), behind=("V1-R45",))
    assert [fault.behind for fault in faults(turn, wait)] == [2, None]


def test_a_rule_that_the_same_lines_of_a_class_break_is_one_fault():
    item = finding("V1-R74", needs=("drafts",), own=("mine.py:8-20",), differs="scheduled")
    two = finding("V1-R74", needs=("session",), own=("mine.py:8-10",), differs="scheduled")
    assert len(faults(item, two)) == 1
    assert len(faults(item, finding("V1-R74", needs=("session",), differs="scheduled"))) == 2


def test_a_rule_that_breaks_behind_different_rules_is_not_one_fault():
    needs = ("num_blocks", "session")
    turn, wait = finding("V1-R45", needs=needs[1:]), finding("V1-R48", needs=needs)
    stuck = finding("ALL-R10", needs=needs[1:], behind=("V1-R45",), scale="tight")
    locked = finding("ALL-R10", needs=needs, behind=("V1-R48",))
    assert together(turn, stuck, wait, locked) == [["V1-R45", "ALL-R10"], ["V1-R48", "ALL-R10"]]


def test_that_a_step_differs_from_the_models_joins_nothing():
    first, other = (finding(rule, consequences=("ALL-R07",)) for rule in ("V1-R09", "V1-R05"))
    assert len(faults(first, other)) == 2


def test_a_rule_at_two_scales_is_one_fault_if_one_needs_no_more_than_the_other():
    small, tight = finding("V1-R09"), finding("V1-R09", scale="tight", needs=("abort",))
    [fault] = faults(tight, small)
    assert fault.scales == ("small", "tight")
    assert fault.scenarios == (small.scenario, tight.scenario)  # what needs less comes first
    other = finding("V1-R09", scale="tight", needs=("policy priority",))
    assert len(faults(finding("V1-R09", needs=("abort",)), other)) == 2


def test_a_rule_that_breaks_with_a_switch_on_and_off_is_one_fault():
    on, off = (
        finding("V1-R09", scale=scale, needs=(f"reserve_full_isl {scale}", "priority"))
        for scale in ("on", "off")
    )
    assert len(faults(on, off)) == 1
    assert len(faults(on, finding("V1-R09", needs=("reserve_full_isl off", "abort")))) == 2


def test_a_rule_that_breaks_in_two_modes_of_one_option_is_one_fault():
    full, incremental = (
        finding("V1-R99", scale=mode, needs=(f"kv_cache_events {mode}", "shared prompt"))
        for mode in ("full", "incremental")
    )
    assert len(faults(full, incremental)) == 1
    assert len(faults(full, finding("V1-R99", needs=("streaming_inputs on",)))) == 2


def test_two_crashes_are_one_fault_if_they_say_the_same():
    crash = finding("ALL-R01", message="KeyError: 'r3', 3")
    alike = finding("ALL-R01", scale="tight", message="KeyError: 'r0', 17")
    assert len(faults(crash, alike)) == 1
    assert len(faults(crash, finding("ALL-R01", scale="tight", message="IndexError: 3"))) == 2


@pytest.mark.parametrize("rule", ["ALL-R01", "ALL-R02"])
def test_crashes_and_hangs_in_different_code_are_two_faults_though_they_say_the_same(rule):
    first = finding(rule, place="evict: queue.pop()")
    alike = finding(rule, place="evict: queue.pop()", scale="tight")
    assert len(faults(first, alike)) == 1
    assert len(faults(first, finding(rule, place="admit: queue.pop()", scale="tight"))) == 2


def test_what_breaks_behind_a_rule_and_needs_no_more_follows_from_it():
    leak = finding("ALL-R09", needs=("num_blocks",))
    stall = finding("ALL-R10", needs=("num_blocks",), behind=("ALL-R09",))
    assert together(stall, leak) == [["ALL-R09", "ALL-R10"]]


def test_what_was_not_shrunk_does_not_join_two_faults():
    leak = finding("SPY-P02", scale="production", needs=("abort",))
    wait = finding("ALL-R05", scale="short", needs=("pausing off",))
    stuck = finding("ALL-R06", scale="production", needs=None, behind=("SPY-P02", "ALL-R05"))
    rules = {rule.id: rule for rule in load("spyre")}
    grouped = faults_of((leak, wait, stuck), rules, date(2026, 1, 31))
    assert {(fault.rule, fault.follows) for fault in grouped} == {
        ("SPY-P02", ("ALL-R06",)),
        ("ALL-R05", ()),
    }


def test_what_breaks_behind_a_rule_and_needs_more_is_a_fault_of_its_own():
    leak = finding("ALL-R09", needs=("num_blocks",))
    lost = finding("ALL-R03", needs=("abort", "num_blocks"), behind=("ALL-R09",))
    first, second = faults(leak, lost)
    assert (first.rule, first.behind) == ("ALL-R03", 2)
    assert (second.rule, second.behind) == ("ALL-R09", None)


def test_rules_that_only_the_same_lines_of_the_users_own_file_break_are_one_fault():
    queue = finding("V1-R37", only_here=("sched/scheduler.py:1", "mine.py:8-10"), needs=("abort",))
    place = finding("V1CP-R17", only_here=("mine.py:8-10", "sched/scheduler.py:2"))
    other = finding("V1-R09", only_here=("sched/scheduler.py:2", "mine.py:8"))
    grouped = faults_of((queue, place, other), RULES, date(2026, 1, 31), "mine.py")
    assert [fault.rule for fault in grouped] == ["V1CP-R17", "V1-R09"]
    assert grouped[0].follows == ("V1-R37",)
    assert len(faults(queue, place, other)) == 3


def test_a_run_that_executes_all_lines_of_the_class_that_a_fault_needs_may_have_its_cause():
    lost = finding("ALL-R09", needs=("abort",), own=("mine.py:8-10",))
    reset = finding("V1-R35", needs=("abort", "control event"), own=("mine.py:8-10, 14",))
    other = finding("V1-R09", needs=("priority", "abort"), own=("mine.py:9-14",))
    assert [fault.behind for fault in faults(lost, reset, other)] == [None, 1, None]


def test_a_crash_is_no_cause_of_a_run_that_does_not_crash():
    crash = finding("ALL-R01", own=("mine.py:8-10",))
    wrong = finding("V1-R31", needs=("abort",), own=("mine.py:8-20",))
    assert [fault.behind for fault in faults(crash, wrong)] == [None, None]


def test_a_crash_may_have_the_cause_of_a_rule_whose_lines_it_executes():
    crash = finding("ALL-R01", own=("mine.py:8-10",), needs=())
    limit = finding("V1-R87", own=("mine.py:8-10",), needs=("max_num_active_seqs",))
    assert [(fault.rule, fault.behind) for fault in faults(crash, limit)] == [
        ("ALL-R01", 2),
        ("V1-R87", None),
    ]


def test_a_fault_in_whose_run_a_rule_broke_before_is_behind_it_whatever_that_needs_elsewhere():
    leak = finding("ALL-R09", needs=("abort",))
    plain = finding("ALL-R09", needs=("priority",), scale="tight")
    wait = finding("V1-R07", needs=("priority", "num_blocks"), behind=("ALL-R09",))
    assert [fault.behind for fault in faults(leak, wait)] == [None, 1]
    assert [fault.behind for fault in faults(leak, plain, wait)] == [None, None, 2]


def test_one_decision_that_breaks_two_rules_is_one_fault():
    needs = ("long_prefill_token_threshold",)
    pinned = finding("V1-R11", needs=needs, differs="scheduled")
    assert len(faults(pinned, finding("V1-R04", needs=needs, differs="scheduled"))) == 1
    assert len(faults(pinned, finding("V1-R04", needs=needs, differs="waiting"))) == 2
    plain = [finding(rule, differs="scheduled") for rule in ("V1-R11", "V1-R04")]
    assert len(faults(*plain)) == 2  # what needs nothing may have any cause


def test_what_the_catalogue_knows_does_not_hide_what_it_does_not():
    known = finding("V1-R11", needs=("policy priority",), differs="waiting", divergence="lifted")
    own = finding("V1-R09", needs=("policy priority",), differs="waiting", behind=("V1-R11",))
    first, second = faults(known, own)
    assert (first.rule, first.behind, first.divergence) == ("V1-R09", 2, None)
    assert (second.rule, second.divergence) == ("V1-R11", "lifted")


def test_what_the_catalogue_knows_does_not_join_a_fault_whose_rule_breaks_with_it():
    wait = finding("V1-R07", needs=("session",))
    known = finding("V1-R09", consequences=("V1-R07",), needs=None, divergence="one queue")
    assert [fault.divergence for fault in faults(wait, known)] == [None, "one queue"]


def test_what_is_worst_for_a_user_comes_first_and_what_is_known_last():
    known = finding("ALL-R01", divergence="0.28.0: it crashes")
    rules = ["V1-R09", "ALL-R12", "ALL-R05", "ALL-R04", "ALL-R09", "ALL-R03", "ALL-R02"]
    needs = {rule: (rule,) for rule in rules}
    found = [finding(rule, needs=needs[rule], message=rule) for rule in rules]
    ordered = [fault.rule for fault in faults(known, *found)]
    worst = ["ALL-R02", "ALL-R03", "ALL-R09", "ALL-R04", "ALL-R05", "ALL-R12", "V1-R09"]
    assert ordered == [*worst, "ALL-R01"]


def test_a_fault_says_what_its_user_sees_and_how_to_accept_it():
    [fault] = faults(finding("ALL-R09", scenario="out/ALL-R09-0123456789.json"))
    assert fault.means.startswith("blocks of the cache are lost")
    assert fault.accept.splitlines() == [
        "[[known]]",
        'rule = "ALL-R09"',
        'scenario = "out/ALL-R09-0123456789.json"',
        'reason = "why this failure is accepted"',
        "until = 2026-05-01",
    ]


def test_an_entry_names_its_scenario_from_the_folder_of_the_file_of_deviations(tmp_path):
    out = "out/ALL-R09-0123456789.json"
    for folder, path in ((Path("ci"), f"../{out}"), (Path("out"), Path(out).name)):
        [fault] = faults(finding("ALL-R09", scenario=out), folder=folder)
        assert f'scenario = "{path}"' in fault.accept
    (tmp_path / "known.toml").touch()
    assert read_deviations(tmp_path / "known.toml", "vllm", [], date.today()).folder == tmp_path


def test_what_was_not_shrunk_says_so_and_joins_what_it_may_follow_from():
    first = finding("ALL-R09", needs=("num_blocks",))
    later = finding("ALL-R10", needs=None, others_first=3, behind=("ALL-R09",))
    assert together(first, later) == [["ALL-R09", "ALL-R10"]]
    [alone] = faults(finding("ALL-R10", needs=None, others_first=3))
    assert not alone.shrunk


def test_a_known_divergence_takes_no_place_of_max_failures():
    assert finding("V1-R11").costs
    assert not finding("V1-R11", divergence="0.31.0: lifted").costs
    assert not finding("V1-R11", others_first=3).costs


@pytest.mark.parametrize("rule", ["ALL-R01", "ALL-R02", "ALL-R03", "ALL-R09", "ALL-R11"])
def test_what_is_worst_is_shrunk_whatever_came_first(rule, gate):
    judged = gate(Toy(), max_failures=3)
    assert judged.others_first(rule, 3) == 0
    assert [judged.others_first("SPY-R22", shrunk) for shrunk in (2, 3, 4)] == [0, 3, 4]
