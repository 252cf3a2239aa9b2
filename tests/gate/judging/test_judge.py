"""The gate on targets in this process: what each engine finds, and what it means for a rule."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from schedproof.gate.files.scenario_file import FileError, read_scenario
from schedproof.gate.judging.context import shrink_model_of
from schedproof.gate.judging.judge import judge
from schedproof.gate.judging.verdict import (
    Began,
    Concluded,
    EngineRun,
    Found,
    Notice,
    Progress,
    RuleVerdict,
    TargetInfo,
    exit_code,
    not_judged,
)
from schedproof.gate.reports.outcome import broken_off
from schedproof.gate.targets import probe as probing
from schedproof.model.faults import ConfigRefused, TargetHung
from schedproof.model.scenario import Request, Scenario
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.spec.catalogue import load

from ..build import Release, Toy, entry

RULES = load("spyre")
# Refusals are a broken rule by themselves, and lockstep is for releases.
NOT_ASKED = ("ALL-R12", "ALL-R07")
THREE = "ALL-R03 SPY-R14 SPY-R22"  # what BreaksThreeRules breaks


@pytest.mark.slow
def test_the_corpus_finds_what_only_production_scale_shows(gate):
    class NotInLongRuns(Toy):
        def bend(self, step):
            if any(tokens > 20_000 for tokens in step["computed"].values()):
                step["finished"] = {"stranger": "eos"}

    verdict = judge(gate(NotInLongRuns(), "ALL-R03", corpus_steps=2_000))
    finding = verdict.findings[0]
    assert (finding.engine, finding.scale, finding.rule) == ("corpus", "production", "ALL-R03")
    assert {kept.engine for kept in verdict.findings} == {"corpus"}
    assert (verdict.exit_code, entry(verdict, "ALL-R03").status) == (1, "violated")
    assert "stranger" in (entry(verdict, "ALL-R03").message or "")


def test_a_finding_is_written_down_and_breaks_again(gate):
    class LosesThird(Toy):
        def bend(self, step):
            step["waiting"] = step["waiting"][:1]

    judged = gate(LosesThird(), "ALL-R03")
    finding = judge(judged).findings[0]
    scenario = read_scenario(Path(finding.scenario))
    again = replay(LosesThird(), scenario, RULES).broken
    assert (again[0].rule, again[0].step, again[0].message) == (
        finding.rule,
        finding.step,
        finding.message,
    )
    assert finding.requests == len(scenario.requests) == 3
    full = Path(finding.scenario).with_suffix("")
    full.write_text("")
    with pytest.raises(FileError, match=r"ALL-R03 is broken in step .*: cannot be written to"):
        judge(gate(LosesThird(), "ALL-R03", out=full))
    assert scenario.origin is not None
    assert scenario.origin["engine"] == "hypothesis"
    found = [event for event in gate.events if isinstance(event, Found)]  # type: ignore[attr-defined]
    assert found[0].finding == finding


def test_a_gate_is_told_from_its_beginning_to_its_verdict(gate):
    judged = gate(BreaksThreeRules(), THREE, corpus_steps=2_000)
    verdict = judge(judged)
    events = gate.events  # type: ignore[attr-defined]
    target = TargetInfo("toy", "schedproof model of spyre", "sound")
    assert events[0] == Began(target, "spyre", "sound", "quick", 0, ("small", "tight"))
    assert events[-1] == Concluded(verdict)
    middle = events[1:-1]
    assert {type(event) for event in middle} == {Notice, Progress, Found}
    assert tuple(event.finding for event in middle if isinstance(event, Found)) == verdict.findings


@pytest.mark.slow
def test_progress_never_goes_back_nor_beyond_what_was_asked_for(gate):
    target = BreaksThreeRules()
    target.version = "my own"  # of which no model is known: Hypothesis shrinks, too
    judge(gate(target, THREE, corpus_steps=200))
    reported = [event for event in gate.events if isinstance(event, Progress)]  # type: ignore[attr-defined]
    engines = {event.engine for event in reported}
    corpus = {"corpus, small", "corpus, production"}
    smaller = {name for name in engines if name.startswith("shrinking ")}
    assert engines - smaller == {*corpus, "hypothesis, small", "hypothesis, tight"}
    assert smaller
    for engine in engines:
        of_it = [event for event in reported if event.engine == engine]
        runs, steps = [event.runs for event in of_it], [event.steps for event in of_it]
        assert runs == sorted(runs)
        assert steps == sorted(steps)
        assert all(event.runs <= event.of or engine in smaller for event in of_it)
    assert any(event.shrinking for event in reported)


@pytest.mark.slow
def test_a_finding_is_reported_once_its_file_is_there(gate):
    commands = []

    def report(event):
        if isinstance(event, Found):
            scenario = read_scenario(Path(event.finding.scenario))
            assert replay(BreaksThreeRules(), scenario, RULES).broken
            commands.append(event.replay)

    judged = gate(BreaksThreeRules(), report=report)
    verdict = judge(judged)
    replays = [f"schedproof replay {finding.scenario} --target toy" for finding in verdict.findings]
    # Behind another rule only its own is asked for: the other one would end the replay.
    assert [command.partition(" --rule ")[0] for command in commands] == replays
    rules = [command.partition(" --rule ")[2] for command in commands]
    assert all(
        rule in ("", finding.rule) for rule, finding in zip(rules, verdict.findings, strict=True)
    )
    assert len(commands) > 2


def test_a_crash_in_half_characters_leaves_a_file_that_can_be_read(gate):
    class CrashesOddly(Toy):
        def bend(self, step):
            raise ValueError("\udc80 and \ud800")

    finding = judge(gate(CrashesOddly(), "ALL-R01")).findings[0]
    assert "\\udc80 and \\ud800" in finding.message
    scenario = read_scenario(Path(finding.scenario))
    assert replay(CrashesOddly(), scenario, RULES).broken[0].rule == "ALL-R01"


def test_a_rule_broken_in_the_same_step_is_a_consequence(gate):
    class DoublesRunning(Toy):
        def bend(self, step):
            if step["kind"] == "decode" and step["running"]:
                step["running"] = step["running"] * 2
                step["emitted"] = {}

    verdict = judge(gate(DoublesRunning(), "ALL-R03 SPY-R22"))
    assert entry(verdict, "ALL-R03").consequence_of is None
    assert entry(verdict, "SPY-R22").status == "violated"
    assert entry(verdict, "SPY-R22").consequence_of == "ALL-R03"
    assert verdict.findings[0].consequences == ("SPY-R22",)


class BreaksThreeRules(Toy):
    """Each rule in configurations of its own."""

    def bend(self, step):
        which = self.config["max_num_seqs"] % 3
        if which == 0:
            step["waiting"] = ["ghost"]
        elif step["kind"] == "prefill" and which == 1:
            step["left_pad_blocks"] = dict.fromkeys(step["scheduled"], 7)
        elif step["kind"] == "decode":
            step["emitted"] = {}


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 2, 3])
def test_rules_are_shrunk_one_after_another_up_to_max_failures(most, gate):
    verdict = judge(gate(BreaksThreeRules(), THREE, max_failures=most, seed=1))
    for scale in ("small", "tight"):
        found = [finding for finding in verdict.findings if finding.scale == scale]
        assert len({finding.rule for finding in found}) == len(found) == 3
        # A request that is lost is shrunk whatever came first.
        shrunk = [finding.rule for finding in found if not finding.others_first]
        assert most <= len(shrunk) <= most + ("ALL-R03" in shrunk)
    assert verdict.exit_code == 1


def test_a_target_that_does_not_do_the_same_twice_is_broken(gate):
    class CrashesOnce(Toy):
        crashed = False

        def bend(self, step):
            if len(step["running"]) > 1 and not self.crashed:
                self.crashed = True
                raise ValueError("only once")

    judged = gate(CrashesOnce())
    verdict = judge(judged)
    assert verdict.exit_code == 3
    assert verdict.findings == ()
    assert entry(verdict, "ALL-R01").status == "inconclusive"
    assert "not deterministic" in (verdict.fault or "")
    assert [path.name[:14] for path in judged.options.out.iterdir()] == ["flaky-ALL-R01-"]


@pytest.mark.slow
def test_a_corpus_finding_is_confirmed_too(gate):
    class CrashesOnce(Toy):
        steps = 0

        def bend(self, step):
            self.steps += 1
            if self.steps == 50:
                raise ValueError("only once")

    verdict = judge(gate(CrashesOnce(), corpus_steps=2_000))
    assert (verdict.exit_code, verdict.findings) == (3, ())
    assert [engine.complete for engine in verdict.engines] == [False]


def test_a_target_that_rejects_by_whim_is_no_pass(gate):
    class Whims(Toy):
        whim = random.Random(3)

        def add(self, request):
            if self.whim.random() < 0.4:
                return {"ok": False, "error": "rejected", "message": "not today"}
            return super().add(request)

    verdict = judge(gate(Whims(), examples=200))
    assert verdict.exit_code == 3
    assert "the target is not deterministic" in (verdict.fault or "")


@pytest.mark.slow
def test_refused_configurations_and_rejected_requests_are_counted(gate, monkeypatch):
    monkeypatch.setattr(probing, "SCALES", ("small",))

    class Picky(Toy):
        def start(self, system, revision, config):
            if config["interleave"] and config["max_num_seqs"] != 32:
                return {"ok": False, "error": "config", "message": "no interleaving"}
            return super().start(system, revision, config)

        def add(self, request):
            if request["max_tokens"] == 1:
                return {"ok": False, "error": "rejected", "message": "too short"}
            return super().add(request)

    # What it refuses at the door is a broken rule by itself.
    asked = " ".join(rule.id for rule in RULES if rule.checked and rule.id not in NOT_ASKED)
    verdict = judge(gate(Picky(), rules=asked, max_failures=1))
    small = next(engine for engine in verdict.engines if engine.scale == "small")
    assert small.refused_configs > 0
    assert small.rejected_requests > 0
    assert small.complete


def test_a_hang_ends_the_gate_and_is_asked_for_twice(gate):
    class Hangs(Toy):
        hangs = 0

        def bend(self, step):
            if len(step["running"]) > 1:
                type(self).hangs += 1
                raise TargetHung("step", 10.0, "where it is")

    verdict = judge(gate(Hangs()))
    assert entry(verdict, "ALL-R02").status == "violated"
    assert [finding.scale for finding in verdict.findings] == ["small"]
    assert Hangs.hangs == 2  # found, and confirmed
    found, *_ = (event for event in gate.events if isinstance(event, Found))  # type: ignore[attr-defined]
    assert found.run.details == "where it is"
    # No request comes after the hang, which is not shrunk further.
    arrivals = [
        request.arrival for request in read_scenario(Path(verdict.findings[0].scenario)).requests
    ]
    assert max(arrivals) <= verdict.findings[0].step
    texts = [event.text for event in gate.events if isinstance(event, Notice)]  # type: ignore[attr-defined]
    assert "the target hangs, so no further runs are tried" in texts
    assert "inconclusive" in {rule.status for rule in verdict.rules}


def test_a_hang_in_the_users_corpus_ends_the_gate_too(gate):
    class Hangs(Toy):
        hangs = 0

        def bend(self, step):
            type(self).hangs += 1
            raise TargetHung("step", 10.0)

    alone = Request(id="r0", arrival=0, prompt=(("r0", 5),), max_tokens=2)
    own = Scenario(system="spyre", revision="sound", config={}, requests=(alone,))
    context = gate(Hangs())
    context.options = replace(context.options, corpus=(own, own, own))
    verdict = judge(context)
    assert [(finding.engine, finding.rule) for finding in verdict.findings] == [
        ("own corpus", "ALL-R02")
    ]
    assert Hangs.hangs == 2


def test_a_hang_when_nothing_is_left_to_do_is_found_again(gate):
    class HangsWhenIdle(Toy):
        def start(self, system, revision, config):
            self.idle = 0
            return super().start(system, revision, config)

        def bend(self, step):
            self.idle = 0 if step["running"] or step["waiting"] else self.idle + 1
            if self.idle == 3:
                raise TargetHung("step", 10.0)

    verdict = judge(gate(HangsWhenIdle()))
    assert entry(verdict, "ALL-R02").status == "violated"
    [finding] = verdict.findings
    scenario = read_scenario(Path(finding.scenario))
    assert replay(HangsWhenIdle(), scenario, load("spyre")).broken[0].rule == "ALL-R02"
    # The seed's next request is replaced by one that keeps the run going.
    arrivals = [request.arrival for request in scenario.requests]
    assert max(arrivals) == finding.step + 1


def test_ctrl_c_while_shrinking_keeps_the_finding_and_shrinks_no_more(gate):
    class Interrupts(Toy):
        broken = runs_after = 0

        def start(self, system, revision, config):
            self.runs_after += self.broken > 0
            if self.broken == 2:
                self.broken += 1
                raise KeyboardInterrupt
            return super().start(system, revision, config)

        def bend(self, step):
            if len(step["running"]) > 1:
                self.broken += 1
                step["waiting"] = ["ghost"]

    target = Interrupts()
    verdict = judge(gate(target, "ALL-R03"))
    assert verdict.interrupted
    assert verdict.exit_code == 1
    assert [finding.rule for finding in verdict.findings] == ["ALL-R03"]
    assert Path(verdict.findings[0].scenario).is_file()
    assert [engine.complete for engine in verdict.engines] == [True, False]


def test_ctrl_c_before_anything_is_found_is_inconclusive(gate):
    class Interrupts(Toy):
        def add(self, request):
            raise KeyboardInterrupt

    verdict = judge(gate(Interrupts()))
    assert (verdict.interrupted, verdict.exit_code, verdict.findings) == (True, 3, ())
    # Nothing is said of what was never exercised: it was broken off before.
    by_id = {rule.id: rule for rule in RULES}
    for judged in verdict.rules:
        assert judged.status != "not_exercised", judged
        assert (judged.status == "not_observable") == bool(by_id[judged.id].unchecked), judged


def test_a_fault_after_a_finding_keeps_the_finding(gate):
    class Both(Toy):
        def bend(self, step):
            if self.config["block_size"] == 64:
                del step["running"]
            elif len(step["running"]) > 1:
                step["waiting"] = ["ghost"]

    verdict = judge(gate(Both(), "ALL-R03"))
    assert verdict.exit_code == 1
    assert "the step lacks the field running, although observes lists it" in (verdict.fault or "")
    assert [finding.scale for finding in verdict.findings] == ["small"]


def test_a_target_that_refuses_all_is_refused_with_its_words(gate):
    class Refuses(Toy):
        def start(self, system, revision, config):
            return {"ok": False, "error": "config", "message": f"{config['block_size']}"}

    with pytest.raises(ConfigRefused, match=r"small \(4\) and short \(64\) and tight \(64\)"):
        judge(gate(Refuses()))


@pytest.mark.slow
def test_lockstep_is_judged_for_a_target_and_not_for_the_model_itself(gate):
    class AnotherTarget(ModelTarget):
        pass

    other = judge(gate(AnotherTarget(), examples=1, revision="2.1.2", max_failures=1))
    itself = judge(gate(ModelTarget(), examples=1, revision="2.1.2", max_failures=1))
    assert "ALL-R07" in {rule.id for rule in other.rules}
    assert "ALL-R07" not in {rule.id for rule in itself.rules}


def test_short_runs_of_published_blocks_take_the_place_of_small_blocks(gate):
    class LargeBlocks(Toy):
        def start(self, system, revision, config):
            if config["block_size"] < 64:
                return {"ok": False, "error": "config", "message": "too small"}
            return super().start(system, revision, config)

    def scales(target):
        verdict = judge(gate(target, "SPY-R35", examples=1))
        return [engine.scale for engine in verdict.engines if engine.name == "hypothesis"]

    assert scales(Toy()) == ["small", "tight"]
    assert scales(LargeBlocks()) == ["short", "tight"]


@pytest.mark.slow
def test_what_is_shown_in_some_configurations_only_is_observable(gate, monkeypatch):
    monkeypatch.setattr(probing, "SCALES", ("small",))

    class HidesHits(Toy):
        def start(self, system, revision, config):
            reply = super().start(system, revision, config)
            reply["observes"] = [field for field in reply["observes"] if field != "prefix_hit"]
            return reply

        def bend(self, step):
            step.pop("prefix_hit", None)

    plain = Toy()
    assert "prefix_hit" not in plain.start("spyre", "sound", {})["observes"]
    shown = judge(gate(plain, "ALL-R08", examples=30))
    assert entry(shown, "ALL-R08").status == "held"
    hidden = judge(gate(HidesHits(), "ALL-R08", examples=1))
    assert entry(hidden, "ALL-R08").status == "not_observable"
    assert "does not show prefix_hit" in (entry(hidden, "ALL-R08").message or "")


def test_a_rule_without_a_predicate_is_not_observable_and_says_why(gate):
    verdict = judge(gate(Toy(), examples=1))
    unchecked = {rule.id: rule.unchecked for rule in RULES if rule.unchecked}
    found = {rule.id: rule.message for rule in verdict.rules if rule.id in unchecked}
    assert found == {
        rule: why
        for rule, why in unchecked.items()
        if rule in {judged.id for judged in verdict.rules}
    }
    assert found
    assert {entry(verdict, rule).status for rule in found} == {"not_observable"}


@pytest.mark.slow
def test_a_known_divergence_is_said_beside_the_rule_and_is_no_pass(gate, monkeypatch):
    monkeypatch.setattr(probing, "SCALES", ("small",))
    verdict = judge(gate(Release(), "SPY-R22", examples=40, max_failures=1))
    judged = entry(verdict, "SPY-R22")
    assert (judged.status, verdict.exit_code) == ("violated", 1)
    assert (judged.divergence or "").startswith("2.4.0 and later: A request that is paused")
    assert {finding.divergence for finding in verdict.findings} == {judged.divergence}


@pytest.mark.parametrize(
    ("version", "decides_as"),
    [("2.1.1", "2.1.2"), ("2.1.2", "2.1.2"), ("2.5.2", "2.5.2"), ("2.6.3", "2.5.2")],
)
def test_the_shrink_model_decides_as_the_release_whatever_it_is_held_to(version, decides_as):
    shrink_model = shrink_model_of(Toy(), "spyre", version)
    assert shrink_model is not None
    reply = shrink_model.start("spyre", "sound", {})
    assert (reply["ok"], reply["version"]) == (True, decides_as)


def test_there_is_no_shrink_model_for_the_model_or_an_unknown_version():
    assert shrink_model_of(ModelTarget(), "spyre", "2.5.2") is None
    assert shrink_model_of(Toy(), "spyre", "2.2.0") is None
    assert shrink_model_of(Toy(), "spyre", "my own") is None


def test_a_gate_of_a_known_release_has_an_shrink_model(gate):
    known, own = gate(Release(), "SPY-R35", examples=1), gate(ModelTarget(), "SPY-R35", examples=1)
    judge(known)
    judge(own)
    assert known.shrink_model is not None
    assert own.shrink_model is None


@pytest.mark.parametrize(
    ("statuses", "chosen", "broken_off", "code"),
    [
        ("held held planned", False, False, 0),
        ("held not_exercised not_observable planned", False, False, 0),
        ("held not_exercised", True, False, 3),
        ("held not_observable", True, False, 3),
        ("held planned", True, False, 3),
        ("not_exercised planned", False, False, 3),
        ("", False, False, 3),
        ("held inconclusive", False, False, 3),
        ("held", False, True, 3),
        ("held violated", False, True, 1),
        ("violated not_exercised", True, False, 1),
    ],
)
def test_the_exit_code(statuses, chosen, broken_off, code):
    rules = tuple(RuleVerdict("X", status) for status in statuses.split())  # type: ignore[arg-type]
    assert exit_code(rules, ("X",) if chosen else (), broken_off) == code


def test_a_scale_or_an_entry_that_the_target_refuses_is_not_judged():
    runs = [
        EngineRun("corpus", "small", 0, 0, 0.1, refused_configs=4),
        EngineRun("hypothesis", "small", 9, 0, 0.1, refused_configs=9),
        EngineRun("corpus", "tight", 0, 0, 0.1, refused_configs=4),
        EngineRun("hypothesis", "tight", 9, 30, 0.1, refused_configs=5),
        EngineRun("corpus", "production", 0, 0, 0.1, refused_configs=2),
        EngineRun("workloads", "short", 0, 0, 0.1, refused_configs=2),
        EngineRun("workloads", "long", 0, 0, 0.1, refused_configs=2),
        EngineRun("own corpus", "given", 3, 30, 0.1, refused_configs=1),
    ]
    assert not_judged(runs) == [
        "1 entry of the corpus, which the target refuses",
        "scale small, because the target refuses each of its 13 configurations",
        "workloads, because the target refuses each of its 4 configurations",
    ]
    assert not_judged([run for run in runs if run.scale in ("tight", "production")]) == []


def test_a_scale_without_a_single_run_is_inconclusive(gate):
    class ProbedOnly(Toy):
        """Refuses the scale `tight` once it has been probed."""

        probed = False

        def start(self, system, revision, config):
            tight = config["block_size"] == 64
            if tight and self.probed:
                return {"ok": False, "error": "config", "message": "not again"}
            return super().start(system, revision, config)

    target = ProbedOnly()
    judged = gate(target, "ALL-R03", corpus_steps=0)
    judged.report = lambda event: setattr(target, "probed", True)
    verdict = judge(judged)
    assert entry(verdict, "ALL-R03").status == "held"
    assert verdict.exit_code == 3
    assert (broken_off(verdict) or "").startswith("the gate did not judge scale tight, because")


class CrashesAtStart(Toy):
    """Raises at `start` in the configurations that `crashes` chooses."""

    def __init__(self, crashes):
        super().__init__()
        self.crashes = crashes

    def start(self, system, revision, config):
        if self.crashes(config):
            raise ValueError("no device")
        return super().start(system, revision, config)


@pytest.mark.parametrize(
    "crashes",
    [
        lambda config: config["max_num_seqs"] == 3,  # only the search draws it
        lambda config: config["prefix_caching"],  # the gate itself tries it first
        lambda config: config["max_model_len"] == 1024,  # of the scale tight
        lambda config: config["num_blocks"] == 16,  # a kind of configuration
    ],
    ids=["drawn", "feature", "scale", "kind"],
)
def test_a_crash_at_the_start_in_some_configurations_is_a_finding(gate, crashes):
    judged = gate(CrashesAtStart(crashes), "ALL-R01 ALL-R03", examples=40)
    verdict = judge(judged)
    assert (verdict.exit_code, verdict.fault) == (1, None)
    assert entry(verdict, "ALL-R01").status == "violated"
    finding = verdict.findings[0]
    assert "raised at 'start': ValueError: no device" in finding.message
    scenario = read_scenario(Path(finding.scenario))
    assert scenario.origin is not None
    assert scenario.origin["rule"] == "ALL-R01"
    [broken] = replay(CrashesAtStart(crashes), scenario, RULES).broken
    assert str(broken.message) == finding.message
    assert entry(verdict, "ALL-R03").status == "held"
