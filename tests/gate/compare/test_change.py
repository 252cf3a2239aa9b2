"""`gate --base`: what is printed, which targets have a base, and what is refused."""

import subprocess
from pathlib import Path

import pytest

from schedproof.gate.cli.options import base_of
from schedproof.gate.compare.change import ChangeReporter
from schedproof.gate.judging.profiles import PROFILES, Profile
from schedproof.gate.judging.verdict import (
    Change,
    Concluded,
    Differed,
    Fault,
    Notice,
    RuleVerdict,
    TargetInfo,
    Verdict,
)
from schedproof.gate.targets import probe as probing
from schedproof.gate.targets.checkouts import known_checkouts
from schedproof.gate.targets.target_spec import TargetSpec, parse_target
from schedproof.model.errors import InputError
from schedproof.spec.catalogue import load

from ..reported import found, printed

CLASS = TargetSpec("vllm==0.28.0:mine.py:Mine", "release", scheduler="/here/mine.py:Mine")


def verdict(**changes):
    values = {
        "target": TargetInfo("vllm==0.28.0:mine.py:Mine", "Mine", "vllm 0.28.0"),
        "base": TargetInfo("vllm==0.28.0", "vllm", "0.28.0"),
        "system": "vllm",
        "revision": "documented",
        "profile": "quick",
        "seed": 0,
        "engines": (),
        "rules": (RuleVerdict("ALL-R05", "known"), RuleVerdict("ALL-R06", "held", exercised=3)),
        "findings": (),
        "exit_code": 0,
    }
    return Verdict(**values | changes)


def reported(console, judged):
    made = console()
    ChangeReporter(made, load("vllm"), False)(Concluded(judged))
    return printed(made)


def test_a_change_that_breaks_nothing_is_told_so_in_three_lines(console):
    lines = reported(console, verdict()).splitlines()
    assert len(lines) == 3
    assert lines[1] == "also broken by the base: ALL-R05"
    assert lines[2] == (
        "Mine (vllm 0.28.0) against vllm 0.28.0: no fault found that the base does not have (seed "
        "0)"
    )


def test_a_change_that_shows_too_little_is_told_so(console):
    hidden = [
        RuleVerdict(rule, "not_observable", message="the target does not show waiting")
        for rule in ("V1-R07", "V1-R09")
    ]
    rules = (*hidden, RuleVerdict("ALL-R06", "held", exercised=3))
    line = reported(console, verdict(rules=rules)).splitlines()[-1]
    assert "the base does not have, but it shows enough for only 1 of 3 rules (seed 0)" in line


def test_a_fault_that_the_base_does_not_have_is_named_as_soon_as_it_is_found(console):
    made = console()
    ChangeReporter(made, load("spyre"), False)(found("out/ALL-R03.json", ["r0", "r1"]))
    assert printed(made).startswith("found ALL-R03: step ")


def test_two_faults_in_one_rule_that_may_follow_from_one_cause_take_one_line(console):
    faults = fault(1, "ALL-R03"), fault(2, "V1-R07", behind=1), fault(3, "V1-R07", behind=1)
    lines = reported(console, verdict(faults=faults)).splitlines()
    assert [line.split()[2] for line in lines if line.startswith("  may follow:")] == ["V1-R07"]
    assert "1 fault that the base does not have, 1 more that may follow" in lines[-1]


def test_only_the_first_finding_is_printed_before_the_end(console):
    made = console()
    report = ChangeReporter(made, load("spyre"), False)
    report(found("out/ALL-R03.json", ["r0", "r1"]))
    report(found("out/ALL-R03-tight.json", ["r0", "r1"]))
    for number in range(2):
        report(Differed("decision: tkv", number, "small", 1.0, "d.json"))
    assert printed(made).count("found ALL-R03") == 1
    report(Notice("differs from what was meant"))
    assert printed(made).count("differs decision: tkv: step 0, small scale, after 1.0 s") == 1
    assert "differs from what was meant" in printed(made)


def test_what_breaks_only_after_an_intended_difference_is_no_fault_of_the_base(console):
    why = "broken only after an intended difference (3 runs)"
    rules = RuleVerdict("V1-R11", "known", message=why), RuleVerdict("ALL-R05", "known")
    lines = reported(console, verdict(rules=rules)).splitlines()
    assert lines[1:3] == [
        "also broken by the base: ALL-R05",
        "broken only after an intended difference: V1-R11",
    ]


def test_what_it_repairs_and_decides_otherwise_is_a_line_each_with_its_command(console):
    repaired = Change("ALL-R05", "r.json", 3, "stuck", "schedproof replay r.json")
    decision = Change("decision: preempted", "d.json", 1, "x", "schedproof replay d.json", 4)
    text = reported(console, verdict(repaired=(repaired,), decisions=(decision,)))
    assert "REPAIRS ALL-R05 " in text
    assert ": schedproof replay r.json\n" in text
    assert "DIFFERS decision: preempted (4 runs): schedproof replay d.json\n" in text
    assert "repairs 1 rule, 1 kind of difference (--json lists all) (seed 0)" in text


def fault(number, rule, kind="decision", **changes):
    words = "what it means", rule, number, f"{rule} breaks", f"{rule}.json", "replay", ""
    return Fault(number, kind, *words, **changes)


def test_a_fault_that_may_follow_from_another_one_is_below_it(console):
    severe = fault(1, "ALL-R09", behind=2, kind="blocks")
    faults = severe, fault(2, "ALL-R03"), fault(3, "V1-R07", behind=2)
    lines = reported(console, verdict(faults=faults)).splitlines()
    below = [line for line in lines if line.startswith("  may follow:")]
    assert below == ["  may follow: V1-R07 no needless wait: step 3: V1-R07 breaks (V1-R07.json)"]
    above = [line for line in lines[: lines.index(below[0])] if line.startswith("BREAKS")]
    assert above[-1].startswith("BREAKS ALL-R03 no request lost")
    assert "1 fault that the base does not have, 2 more that may follow from it" in lines[-1]
    last = [line for line in lines if line.startswith("BREAKS")][-1]
    assert last.startswith("BREAKS ALL-R09 no block lost")
    assert last.endswith(" (may follow from ALL-R03, or have the same cause: ALL-R09.json)")


def test_a_cause_is_printed_although_a_fault_in_the_same_rule_may_follow_from_it(console):
    faults = fault(1, "V1-R07", behind=2), fault(2, "V1-R07")
    lines = reported(console, verdict(faults=faults)).splitlines()
    assert lines[0].startswith("BREAKS V1-R07")
    assert "1 fault that the base does not have" in lines[-1]


def test_of_many_faults_that_may_follow_the_last_are_named_by_their_rules(console):
    rules = ["V1-R07", "V1-R09", "V1-R11", "V1-R04", "V1-R06", "V1-R02"]
    faults = fault(1, "ALL-R03"), *(fault(n, rule, behind=1) for n, rule in enumerate(rules, 2))
    lines = reported(console, verdict(faults=faults)).splitlines()
    below = [line for line in lines if line.startswith("  may follow:")]
    assert len(below) == 5
    assert below[-1] == "  may follow: V1-R06, V1-R02 (--json lists them)"


def test_of_many_faults_a_chain_is_below_the_first(console):
    faults = fault(1, "V1-R07", behind=2), fault(2, "ALL-R09", behind=3), fault(3, "ALL-R03")
    text = reported(console, verdict(faults=faults))
    first, *below = [line for line in text.splitlines() if ": step " in line]
    assert first.startswith("BREAKS ALL-R03")
    assert [line.split()[2] for line in below] == ["V1-R07", "ALL-R09"]


def test_beside_a_fault_only_two_kinds_of_difference_are_printed(console):
    decisions = tuple(Change(f"decision: {n}", "d.json", 1, "x", "replay") for n in range(6))
    assert reported(console, verdict(decisions=decisions)).count("DIFFERS") == 5
    text = reported(console, verdict(decisions=decisions, faults=(fault(1, "ALL-R03"),)))
    assert text.count("DIFFERS") == 2
    assert "6 kinds of difference (--json lists all) (seed 0)" in text


def test_the_base_of_a_class_is_the_class_of_the_release_from_which_it_is_derived():
    base = base_of(CLASS, True, None)
    assert base is not None
    assert (base.text, base.scheduler, base.is_base) == ("vllm==0.28.0", CLASS.scheduler, True)


def test_a_target_without_a_base_is_its_own_judge():
    assert base_of(CLASS, False, None) is None


@pytest.mark.parametrize(
    ("spec", "base", "message"),
    [
        (CLASS, "model", "not valid together with --base model"),
        (TargetSpec("model", "model"), None, "model has no base; valid: a release with --schedu"),
    ],
)
def test_what_has_no_base_is_one_line(spec, base, message):
    with pytest.raises(InputError, match=message):
        base_of(spec, True, base)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A checkout of nano-vllm whose last commit adds a file."""
    monkeypatch.setenv("SCHEDPROOF_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "checkout"
    (folder / "nanovllm" / "engine").mkdir(parents=True)
    for name in known_checkouts()["nano-vllm"].needs:
        (folder / name).touch()
    git(folder, "init", "-q")
    commit(folder, "all")
    (folder / "new.py").touch()
    commit(folder, "more")
    return folder


def git(folder, *words):
    subprocess.run(["git", "-C", str(folder), *words], check=True)


def commit(folder, message):
    git(folder, "add", ".")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", message)


def test_the_base_of_a_checkout_is_another_revision_of_its_repository(repository):
    spec = parse_target("nano-vllm", repository)
    base = base_of(spec, False, "HEAD~1")
    assert base is not None
    assert base.checkout == spec.checkout
    names = {path.name for path in Path(base.folder).iterdir()}
    assert names == {"nanovllm", "pyproject.toml"}


def test_a_revision_that_is_not_there_is_one_line(repository):
    spec = parse_target("nano-vllm", repository)
    with pytest.raises(InputError, match="--base: 'HEAD~9'; valid: a release such as"):
        base_of(spec, False, "HEAD~9")


def test_what_it_breaks_has_a_command_that_replays_and_one_that_draws_it(console):
    replay = "schedproof replay r.json --target vllm==0.28.0:mine.py:Mine"
    fault = Fault(
        *(1, "request", "a request is lost", "ALL-R03", 4, "r1 is lost", "r.json", replay, ""),
        scenarios=("r.json",),
    )
    text = reported(console, verdict(faults=(fault,)))
    assert text.startswith(
        "BREAKS ALL-R03 no request lost, duplicated or invented: step 4: r1 is lost"
    )
    assert f"\n  replay: {replay}\n" in text
    assert "\n  show:   schedproof show r.json --target vllm==0.28.0:mine.py:Mine\n" in text


def test_the_line_of_a_fault_names_its_other_rules(console):
    faults = tuple(fault(number, "ALL-R03", follows=("V1-R20", "V1-R25")) for number in (1, 2, 3))
    assert "BREAKS ALL-R03 (and V1-R20, V1-R25) no request" in reported(
        console, verdict(faults=faults)
    )


def test_of_many_faults_the_command_that_draws_one_is_left_out(console):
    faults = tuple(fault(number, "ALL-R03") for number in (1, 2, 3))
    text = reported(console, verdict(faults=faults))
    assert (text.count("\n  replay: "), text.count("\n  show: ")) == (3, 0)


ORDER = """
from schedproof.model.target import ModelTarget

class Order(ModelTarget):
    def step(self):
        reply = super().step()
        if len(reply["step"]["running"]) > 1:
            reply["step"]["running"].reverse()
        return reply
"""


@pytest.mark.slow
def test_a_gate_lists_the_kinds_of_difference_and_replay_shows_one(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(probing, "SCALES", ("small",))
    monkeypatch.setitem(PROFILES, "quick", Profile(10, 10, 20, 0))
    Path("toys.py").write_text(ORDER, encoding="utf-8")
    words = ("--base", "model", "--rule", "ALL-R03", "--profile", "quick")
    result = run("gate", "toys:Order", *words)
    assert result.code == 0, result
    [line] = [line for line in result.out.splitlines() if line.startswith("DIFFERS ")]
    assert line.startswith("DIFFERS order: running (")
    command = line.partition(": schedproof ")[2].split()
    shown = run(*command)
    assert shown.code == 1, shown
    assert "running: in the order " in shown.out
    same = run("replay", command[1], "--base", "model")
    assert (same.code, same.out.startswith("the targets do not differ in ")) == (0, True)
