"""What is pruned from a corpus, and what never is."""

import json

import pytest
from msgspec.structs import replace

from schedproof.gate.corpus.folder import FoundOn, check_rule, entries
from schedproof.gate.corpus.replay import (
    EntryVerdict,
    Running,
    check,
    judge,
    prune,
    rules_for,
    run_entries,
    with_expectation,
)
from schedproof.gate.files.scenario_file import FileError, scenario_json
from schedproof.gate.targets.target_spec import parse_target
from schedproof.model.faults import TargetBroken, TargetCrashed, TargetFault, TargetHung
from schedproof.model.scenario import Expectation
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget

from ..corpus_build import calm, crowd, kept


class Fixed(ModelTarget):
    """Never more sequences than may run: it lets no other request in."""

    def add(self, request):
        if request["id"] not in ("r0", "r1"):
            return {"ok": False, "error": "rejected", "message": "full"}
        return super().add(request)


class Lenient(ModelTarget):
    """Shortens a request that is too long instead of refusing it."""

    def add(self, request):
        return super().add({**request, "prompt": [[name, 2] for name, _ in request["prompt"]]})


class Stranger(ModelTarget):
    """Refuses every configuration."""

    def start(self, system, revision, config):
        return {"ok": False, "error": "config", "message": "not here"}


class Babbler(ModelTarget):
    """What it says is no step."""

    def step(self):
        raise TargetBroken("step", "is no reply", "")


def pruned(folder, target, *, dry_run=False):
    """The names that are left, and what was said."""
    messages: list[str] = []
    prune(entries(folder), target, messages.append, dry_run=dry_run)
    return [entry.path.name for entry in entries(folder)], messages


def test_of_one_failure_the_smallest_stays(tmp_path):
    small = kept(tmp_path, crowd(prompt=2), shape="the same")
    large = kept(tmp_path, crowd(prompt=9), shape="the same")
    remaining, messages = pruned(tmp_path, Fixed(), dry_run=True)
    assert len(remaining) == 2
    assert f"{large}: the same failure as {small}, which is no larger: would be removed" in messages
    assert pruned(tmp_path, Fixed())[0] == [small.name]


@pytest.mark.parametrize("change", ["expectation", "target"])
def test_an_entry_with_another_expectation_or_target_is_no_duplicate(change, tmp_path):
    small, large = crowd(prompt=2), crowd(prompt=9)
    if change == "expectation":
        large = with_expectation(large, ["NAN-R40"])
    kept(tmp_path, small, shape="the same")
    kept(tmp_path, large, shape="the same", target="b:B" if change == "target" else "model")
    assert len(pruned(tmp_path, Fixed())[0]) == 2


def test_a_smaller_entry_with_another_feature_replaces_none(tmp_path):
    for prompt, cached in ((2, False), (9, True)):
        config = full_config("vllm", "documented", {"enable_prefix_caching": cached})
        entry = crowd(prompt, requests=1, system="vllm", revision="documented", config=config)
        kept(tmp_path, entry, rule="ALL-R06", shape="the same")
    assert len(pruned(tmp_path, ModelTarget())[0]) == 2


def test_what_still_breaks_is_never_removed(tmp_path):
    for prompt in (2, 9):
        kept(tmp_path, crowd(prompt=prompt), shape="the same")
    remaining, messages = pruned(tmp_path, ModelTarget())
    assert len(remaining) == 2
    assert any("kept, because it still breaks a rule" in line for line in messages)


def test_witnesses_are_no_duplicates_of_each_other(tmp_path):
    kept(tmp_path, calm())
    kept(tmp_path, crowd(prompt=2, requests=1))
    assert len(pruned(tmp_path, ModelTarget())[0]) == 2


def test_of_the_same_content_the_one_with_its_own_name_stays(tmp_path):
    path = kept(tmp_path, calm(), rule="NAN-R14")
    (tmp_path / "a-copy.json").write_text(path.read_text())
    assert pruned(tmp_path, ModelTarget())[0] == [path.name]


def test_what_the_model_refuses_goes_and_what_only_the_target_refuses_stays(tmp_path):
    path = kept(tmp_path, calm(), rule="NAN-R14")
    kept(tmp_path, crowd(prompt=900, requests=1), rule="NAN-R14")
    remaining, messages = pruned(tmp_path, Stranger())
    assert remaining == [path.name]
    assert any("can no longer be replayed: the target refuses" in line for line in messages)


def test_what_only_the_model_refuses_stays(tmp_path):
    path = kept(tmp_path, crowd(prompt=900, requests=1), rule="NAN-R14")
    assert pruned(tmp_path, Lenient()) == ([path.name], ["0 of 1 entries removed"])
    assert pruned(tmp_path, ModelTarget())[0] == []


def judged(target, scenario, rule="NAN-R14"):
    return judge(target, scenario, rule, rules_for(scenario))


def test_what_an_exported_test_prints_cannot_control_the_terminal(monkeypatch):
    words = EntryVerdict("inconclusive", "\x1b[31mred\n::error::pwned")
    monkeypatch.setattr("schedproof.gate.corpus.replay.judge", lambda *_: words)
    scenario = replace(calm(), origin={"rule": "NAN-R14"})
    found = check(json.loads(scenario_json(scenario)), ModelTarget())
    assert found == "inconclusive:  [31mred ::error::pwned"


def test_how_a_replay_compares_with_its_expectation():
    assert judged(ModelTarget(), crowd()).status == "NOT AS EXPECTED"
    assert judged(Fixed(), crowd()).status == "as expected"
    assert judged(Stranger(), crowd()).why == "the target refuses the configuration: not here"
    assert judged(Stranger(), crowd()).status == "not exercised"
    assert judged(Babbler(), crowd()).status == "inconclusive"


def test_a_run_with_an_entry_that_the_target_refuses_is_inconclusive(tmp_path, console):
    class Small(ModelTarget):
        def start(self, system, revision, config):
            if config["num_blocks"] > calm().config["num_blocks"]:
                return {"ok": False, "error": "config", "message": "too large"}
            return super().start(system, revision, config)

    running = Running(console(), Small(), parse_target("m:Small"), (), "", lambda: "")
    kept(tmp_path, calm(), rule="NAN-R14")
    assert run_entries(running, entries(tmp_path)) == 0
    kept(tmp_path, crowd(requests=2, config={**calm().config, "num_blocks": 17}), rule="NAN-R14")
    assert run_entries(running, entries(tmp_path)) == 3


def test_a_rule_that_was_to_break_and_holds_is_not_as_expected():
    known = with_expectation(crowd(), ["NAN-R40"])
    assert judged(ModelTarget(), known).status == "as expected"
    reported = judge(Repaired(), known, "NAN-R40", rules_for(known, ["NAN-R40"]))
    assert (reported.status, reported.why) == (
        "NOT AS EXPECTED",
        "the run breaks no rule; expected NAN-R40",
    )


class Repaired(ModelTarget):
    """A revision that lets no more sequences run than may."""

    def start(self, system, revision, config):
        return super().start(system, "documented", config)


class Refuses(ModelTarget):
    """Refuses the requests that `refused` names."""

    refused: tuple[str, ...] = ()

    def add(self, request):
        if request["id"] in self.refused:
            return {"ok": False, "error": "rejected", "message": "not here"}
        return super().add(request)


def test_a_target_that_refuses_a_request_does_not_show_that_a_rule_holds_again():
    known, target = with_expectation(crowd(), ["NAN-R40"]), Refuses()
    for refused in (("r1",), ("r0", "r1", "r2")):
        target.refused = refused
        reported = judge(target, known, "NAN-R40", rules_for(known, ["NAN-R40"]))
        assert reported.status == "not exercised"
        assert reported.why == f"the target refuses {refused[0]}: not here"
        assert reported.refused is (len(refused) == 3)


def test_a_rule_that_was_to_break_and_is_not_exercised_shows_nothing():
    reported = judged(ModelTarget(), with_expectation(calm(), ["NAN-R19"]), "NAN-R19")
    assert reported.status == "not exercised"
    assert reported.why.startswith("NAN-R19 is never exercised on this target")


def test_a_rule_that_was_to_break_may_break_behind_another():
    known = with_expectation(crowd(), ["NAN-R04"])
    reported = judged(ModelTarget(), known, "NAN-R04")
    assert (reported.status, reported.why) == ("as expected", "NAN-R40 breaks first")
    never = judged(ModelTarget(), with_expectation(crowd(), ["NAN-R14"]))
    assert never.status == "NOT AS EXPECTED"


def test_on_another_target_an_entry_is_about_its_own_rule():
    """In `crowd` NAN-R40 breaks, and ALL-R04 holds."""
    scenario = with_expectation(crowd(), None)
    rules = rules_for(scenario)
    elsewhere = judge(ModelTarget(), scenario, "ALL-R04", rules, FoundOn(name="mine", version="1"))
    assert elsewhere.status == "as expected"
    assert elsewhere.why == (
        "ALL-R04 holds on schedproof model of nano_vllm 0.2.0 (it was broken only on mine 1); "
        "another rule is broken there: NAN-R40"
    )
    at_home = FoundOn(name="schedproof model of nano_vllm", version="0.1.0")
    here = judge(ModelTarget(), scenario, "ALL-R04", rules, at_home)
    assert here.status == "NOT AS EXPECTED"
    assert here.why.endswith("; another rule is broken there: NAN-R40")


def test_a_rule_that_breaks_on_another_target_too_is_not_as_expected():
    """NAN-R04 breaks only once NAN-R40 has."""
    scenario = with_expectation(crowd(), None)
    told = judge(ModelTarget(), scenario, "NAN-R04", rules_for(scenario), FoundOn(name="mine"))
    assert told.status == "NOT AS EXPECTED"
    assert told.why.startswith("NAN-R04 is broken on schedproof model of nano_vllm 0.2.0")


@pytest.mark.parametrize(
    "expect",
    [
        Expectation(),
        Expectation(violates=()),
        Expectation(steps=({"step": 0, "kind": "prefill"},)),
        Expectation(steps=({"step": 99},)),
    ],
)
def test_without_rules_to_be_broken_a_broken_rule_is_not_as_expected(expect):
    scenario = replace(crowd(), expect=expect)
    told = judge(ModelTarget(), scenario, "NAN-R40", rules_for(scenario))
    assert told.status == "NOT AS EXPECTED"
    scenario = replace(calm(), expect=expect)
    held = judge(ModelTarget(), scenario, "NAN-R04", rules_for(scenario))
    assert held.status == "as expected"


def test_a_crash_before_the_expected_steps_is_not_as_expected():
    class Crashes(ModelTarget):
        def step(self):
            raise TargetCrashed("step", "boom")

    for step in (0, 1):
        scenario = replace(calm(), expect=Expectation(steps=({"step": step},)))
        told = judge(Crashes(), scenario, "NAN-R04", rules_for(scenario))
        assert told.status == "NOT AS EXPECTED"
        assert told.why == f"step {step} is expected, but the run ends after 0"


def test_another_rule_does_not_stand_for_an_expected_rule_that_is_not_judged():
    scenario = replace(crowd(), expect=Expectation(violates=("NAN-R04",)))
    rules = [rule for rule in rules_for(scenario) if rule.id != "NAN-R04"]
    assert judge(ModelTarget(), scenario, "NAN-R40", rules).status == "NOT AS EXPECTED"
    assert judge(ModelTarget(), scenario, "NAN-R04", rules).status == "not exercised"


def test_an_expected_rule_that_there_is_not_is_refused(tmp_path):
    scenario = replace(crowd(), expect=Expectation(violates=("XXX-R01",)))
    path = kept(tmp_path, scenario)
    with pytest.raises(FileError, match=r"\$\.expect\.violates: 'XXX-R01' is not a rule of nano"):
        check_rule(entries(tmp_path)[0])
    with pytest.raises(FileError, match="XXX-R01"):
        check(json.loads(path.read_text()), ModelTarget())


def test_a_run_that_a_crash_or_a_hang_ends_does_not_show_that_the_rule_holds():
    class Fails(ModelTarget):
        fault: TargetFault

        def start(self, system, revision, config):
            self.steps = 0
            return super().start(system, revision, config)

        def step(self):
            self.steps += 1
            if self.steps > 2:
                raise self.fault
            return super().step()

    scenario = with_expectation(calm(), None)
    faults = {"ALL-R01": TargetCrashed("step", "boom"), "ALL-R02": TargetHung("step", 1)}
    for broken, fault in faults.items():
        target = Fails()
        target.fault = fault
        told = judge(target, scenario, "NAN-R04", rules_for(scenario), FoundOn(name="mine"))
        assert told.status == "NOT AS EXPECTED"
        assert told.why == (
            "NAN-R04 is not judged to the end on schedproof model of nano_vllm 0.2.0, because the "
            f"run ends early; another rule is broken there: {broken}"
        )
