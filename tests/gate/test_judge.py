"""The gate on targets in this process: what each engine finds, and what it means for a rule."""

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from schedproof.gate import engines
from schedproof.gate.events import Event, Found, Notice, Progress
from schedproof.gate.judge import run_gate
from schedproof.gate.profiles import PROFILES, Profile
from schedproof.gate.scenario_file import read_scenario
from schedproof.gate.state import Gate
from schedproof.gate.verdict import RuleVerdict, Verdict, exit_code
from schedproof.model.faults import ConfigRefused, TargetHung
from schedproof.model.target import ModelTarget, Reply
from schedproof.properties.replay import replay
from schedproof.spec.catalogue import load, select

RULES = load("spyre")


class Toy(ModelTarget):
    """The sound model, bent where a subclass says."""

    config: Mapping[str, Any]

    def start(self, system: str, revision: str, config: Mapping[str, Any]) -> Reply:
        self.config = config
        return super().start(system, "sound", config)

    def step(self) -> Reply:
        reply = super().step()
        self.bend(reply["step"])
        return reply

    def bend(self, step: dict[str, Any]) -> None:
        pass


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Gate]:
    """A gate with a small budget; its events are in `events`."""

    def make(
        target: Any, rules: str = "", *, examples: int = 12, corpus_steps: int = 0, **changes: Any
    ) -> Gate:
        monkeypatch.setitem(PROFILES, "quick", Profile(examples, 30, 60, corpus_steps))
        values: dict[str, Any] = {
            "target": target,
            "target_spec": "toy",
            "system": "spyre",
            "revision": "sound",
            "rules": select(RULES, rules.split()) if rules else RULES,
            "chosen": bool(rules),
            "profile_name": "quick",
            "seed": 0,
            "max_failures": 3,
            "out": tmp_path / "out",
            "report": events.append,
        }
        return Gate(**(values | changes))

    events: list[Event] = []
    make.events = events  # type: ignore[attr-defined]
    return make


def entry(verdict: Verdict, rule: str) -> RuleVerdict:
    return next(one for one in verdict.rules if one.id == rule)


def test_the_corpus_finds_what_only_production_scale_shows(gate: Callable[..., Gate]) -> None:
    class NotInLongRuns(Toy):
        def bend(self, step: dict[str, Any]) -> None:
            if any(tokens > 20_000 for tokens in step["computed"].values()):
                step["finished"] = {"stranger": "eos"}

    verdict = run_gate(gate(NotInLongRuns(), "ALL-R03", corpus_steps=2_000))
    finding = verdict.findings[0]
    assert (finding.engine, finding.scale, finding.rule) == ("corpus", "production", "ALL-R03")
    assert {one.engine for one in verdict.findings} == {"corpus"}
    assert (verdict.exit_code, entry(verdict, "ALL-R03").status) == (1, "violated")
    assert "stranger" in (entry(verdict, "ALL-R03").message or "")


def test_a_finding_is_written_down_and_breaks_again(gate: Callable[..., Gate]) -> None:
    class LosesThird(Toy):
        def bend(self, step: dict[str, Any]) -> None:
            step["waiting"] = step["waiting"][:1]

    judged = gate(LosesThird(), "ALL-R03")
    finding = run_gate(judged).findings[0]
    scenario = read_scenario(Path(finding.scenario))
    again = replay(LosesThird(), scenario, RULES).broken
    assert (again[0].rule, again[0].step, again[0].message) == (
        finding.rule,
        finding.step,
        finding.message,
    )
    assert finding.requests == len(scenario.requests) == 3
    assert scenario.origin is not None
    assert scenario.origin["engine"] == "hypothesis"
    found = [event for event in gate.events if isinstance(event, Found)]  # type: ignore[attr-defined]
    assert found[0].finding == finding
    assert any(isinstance(event, Progress) for event in gate.events)  # type: ignore[attr-defined]


def test_a_rule_broken_in_the_same_step_is_a_consequence(gate: Callable[..., Gate]) -> None:
    class DoublesRunning(Toy):
        def bend(self, step: dict[str, Any]) -> None:
            if step["kind"] == "decode" and step["running"]:
                step["running"] = step["running"] * 2
                step["emitted"] = {}

    verdict = run_gate(gate(DoublesRunning(), "ALL-R03 SPY-R22"))
    assert entry(verdict, "ALL-R03").consequence_of is None
    assert entry(verdict, "SPY-R22").status == "violated"
    assert entry(verdict, "SPY-R22").consequence_of == "ALL-R03"
    assert verdict.findings[0].consequences == ("SPY-R22",)


class BreaksThreeRules(Toy):
    """Each rule in configurations of its own."""

    def bend(self, step: dict[str, Any]) -> None:
        which = self.config["max_num_seqs"] % 3
        if which == 0:
            step["waiting"] = ["ghost"]
        elif step["kind"] == "prefill" and which == 1:
            step["left_pad_blocks"] = dict.fromkeys(step["scheduled"], 7)
        elif step["kind"] == "decode":
            step["emitted"] = {}


@pytest.mark.parametrize("most", [1, 2, 3])
def test_rules_are_found_one_after_another_up_to_max_failures(
    most: int, gate: Callable[..., Gate]
) -> None:
    verdict = run_gate(gate(BreaksThreeRules(), examples=60, max_failures=most))
    for scale in ("small", "tight"):
        found = [one.rule for one in verdict.findings if one.scale == scale]
        assert len(set(found)) == len(found) == most
    assert verdict.exit_code == 1


def test_a_target_that_does_not_do_the_same_twice_is_broken(gate: Callable[..., Gate]) -> None:
    class CrashesOnce(Toy):
        crashed = False

        def bend(self, step: dict[str, Any]) -> None:
            if len(step["running"]) > 1 and not self.crashed:
                self.crashed = True
                raise ValueError("only once")

    judged = gate(CrashesOnce())
    verdict = run_gate(judged)
    assert verdict.exit_code == 3
    assert verdict.findings == ()
    assert entry(verdict, "ALL-R01").status == "inconclusive"
    assert "not deterministic" in (verdict.fault or "")
    assert [path.name[:14] for path in judged.out.iterdir()] == ["flaky-ALL-R01-"]


def test_a_corpus_finding_is_confirmed_too(gate: Callable[..., Gate]) -> None:
    class CrashesOnce(Toy):
        steps = 0

        def bend(self, step: dict[str, Any]) -> None:
            self.steps += 1
            if self.steps == 50:
                raise ValueError("only once")

    verdict = run_gate(gate(CrashesOnce(), corpus_steps=2_000))
    assert (verdict.exit_code, verdict.findings) == (3, ())
    assert [engine.complete for engine in verdict.engines] == [False]


def test_a_target_that_rejects_by_whim_is_no_pass(gate: Callable[..., Gate]) -> None:
    class Whims(Toy):
        whim = random.Random(1)

        def add(self, request: Mapping[str, Any]) -> Reply:
            if self.whim.random() < 0.4:
                return {"ok": False, "error": "rejected", "message": "not today"}
            return super().add(request)

    verdict = run_gate(gate(Whims(), examples=200))
    assert verdict.exit_code == 3
    assert "the target is not deterministic" in (verdict.fault or "")


def test_refused_configurations_and_rejected_requests_are_counted(
    gate: Callable[..., Gate],
) -> None:
    class Picky(Toy):
        def start(self, system: str, revision: str, config: Mapping[str, Any]) -> Reply:
            if config["interleave"] and config["max_num_seqs"] != 32:
                return {"ok": False, "error": "config", "message": "no interleaving"}
            return super().start(system, revision, config)

        def add(self, request: Mapping[str, Any]) -> Reply:
            if request["max_tokens"] == 1:
                return {"ok": False, "error": "rejected", "message": "too short"}
            return super().add(request)

    verdict = run_gate(gate(Picky(), max_failures=1))
    small = next(engine for engine in verdict.engines if engine.scale == "small")
    assert small.refused_configs > 0
    assert small.rejected_requests > 0
    assert small.complete


def test_a_hang_ends_the_search_after_few_trials(gate: Callable[..., Gate]) -> None:
    class Hangs(Toy):
        hangs = 0

        def bend(self, step: dict[str, Any]) -> None:
            if len(step["running"]) > 1:
                type(self).hangs += 1
                raise TargetHung("step", 10.0)

    verdict = run_gate(gate(Hangs()))
    assert entry(verdict, "ALL-R02").status == "violated"
    assert [one.scale for one in verdict.findings] == ["small", "tight"]
    # The first, at most ten to shrink it, and one to confirm; at two scales.
    assert Hangs.hangs <= 2 * (1 + engines.HANG_ATTEMPTS + 1)
    assert any(
        "searched no more" in event.text
        for event in gate.events  # type: ignore[attr-defined]
        if isinstance(event, Notice)
    )


def test_ctrl_c_while_shrinking_keeps_the_finding_and_shrinks_no_more(
    gate: Callable[..., Gate],
) -> None:
    class Interrupts(Toy):
        broken = runs_after = 0

        def start(self, system: str, revision: str, config: Mapping[str, Any]) -> Reply:
            self.runs_after += self.broken > 0
            if self.broken == 2:
                self.broken += 1
                raise KeyboardInterrupt
            return super().start(system, revision, config)

        def bend(self, step: dict[str, Any]) -> None:
            if len(step["running"]) > 1:
                self.broken += 1
                step["waiting"] = ["ghost"]

    target = Interrupts()
    verdict = run_gate(gate(target, "ALL-R03"))
    assert verdict.interrupted
    assert verdict.exit_code == 1
    assert [one.rule for one in verdict.findings] == ["ALL-R03"]
    assert Path(verdict.findings[0].scenario).is_file()
    assert [engine.complete for engine in verdict.engines] == [True, False]


def test_ctrl_c_before_anything_is_found_is_inconclusive(gate: Callable[..., Gate]) -> None:
    class Interrupts(Toy):
        starts = 0

        def start(self, system: str, revision: str, config: Mapping[str, Any]) -> Reply:
            self.starts += 1
            if self.starts == 6:
                raise KeyboardInterrupt
            return super().start(system, revision, config)

    verdict = run_gate(gate(Interrupts()))
    assert (verdict.interrupted, verdict.exit_code, verdict.findings) == (True, 3, ())
    statuses = {one.status for one in verdict.rules}
    assert "not_exercised" not in statuses


def test_a_fault_after_a_finding_keeps_the_finding(gate: Callable[..., Gate]) -> None:
    class Both(Toy):
        def bend(self, step: dict[str, Any]) -> None:
            if self.config["block_size"] == 64:
                del step["running"]
            elif len(step["running"]) > 1:
                step["waiting"] = ["ghost"]

    verdict = run_gate(gate(Both(), "ALL-R03"))
    assert verdict.exit_code == 1
    assert "field running is promised" in (verdict.fault or "")
    assert [one.scale for one in verdict.findings] == ["small"]


def test_a_target_that_refuses_all_is_refused_with_its_words(gate: Callable[..., Gate]) -> None:
    class Refuses(Toy):
        def start(self, system: str, revision: str, config: Mapping[str, Any]) -> Reply:
            return {"ok": False, "error": "config", "message": f"{config['block_size']}"}

    with pytest.raises(ConfigRefused, match=r"small \(4\) and tight \(64\)"):
        run_gate(gate(Refuses()))


def test_lockstep_is_judged_for_a_target_and_not_for_the_model_itself(
    gate: Callable[..., Gate],
) -> None:
    class Release(ModelTarget):
        pass

    other = run_gate(gate(Release(), examples=1, revision="2.1.2", max_failures=1))
    itself = run_gate(gate(ModelTarget(), examples=1, revision="2.1.2", max_failures=1))
    assert "ALL-R07" in {one.id for one in other.rules}
    assert "ALL-R07" not in {one.id for one in itself.rules}


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
def test_the_exit_code(statuses: str, chosen: bool, broken_off: bool, code: int) -> None:
    rules = tuple(RuleVerdict("X", status) for status in statuses.split())  # type: ignore[arg-type]
    assert exit_code(rules, chosen, broken_off) == code
