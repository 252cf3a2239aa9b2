"""`--system generic`: any scheduler is judged by what it has, and no more."""

from collections.abc import Mapping
from typing import Any

import pytest

import schedproof
from schedproof.gate.judging.profiles import PROFILES, Profile
from schedproof.gate.targets import probe as probing
from schedproof.gate.targets.probe import ProbeRequest, probe
from schedproof.model.errors import InputError
from schedproof.model.faults import TargetBroken
from schedproof.model.target import ModelTarget
from schedproof.spec.catalogue import load

KEYS = ("num_blocks", "max_num_seqs", "max_num_batched_tokens")


class Other(ModelTarget):
    """The scheduler of another system behind the keys of this one; null is its own number."""

    # nano-vLLM has its cache in every configuration.
    system, revision = "nano_vllm", "documented"
    refuses: tuple[str, ...] = ("max_model_len", "order", "enable_prefix_caching")
    usual: Mapping[str, Any] = {"num_blocks": 64, "max_num_seqs": 8, "max_num_batched_tokens": 128}

    def start(self, system, revision, config):
        plain = {"max_model_len": None, "order": "any", "enable_prefix_caching": True}
        for key in self.refuses:
            if config[key] != plain[key]:
                return {"ok": False, "error": "config", "message": f"$.config.{key}: no such thing"}
        values = {key: config[key] or self.usual[key] for key in KEYS}
        values["block_size"] = config["block_size"]
        return super().start(self.system, self.revision, self.terms(config, values))

    def terms(self, config, values):
        return values


class Simulator(Other):
    system, revision = "llmservingsim", "head"
    refuses = ("max_model_len",)

    def terms(self, config, values):
        same = ("enable_chunked_prefill", "enable_prefix_caching")
        return values | {key: config[key] for key in same}


class Page(Simulator):
    revision, refuses = "documented", ("max_model_len", "order")


class Bare(ModelTarget):
    """A scheduler without blocks, which shows who finishes and no more."""

    def start(self, system, revision, config):
        if config["num_blocks"] is not None:
            return {"ok": False, "error": "config", "message": "$.config.num_blocks: no blocks"}
        return super().start(system, revision, config) | {"observes": ["finished"]}


class Lifo(ModelTarget):
    """The last request first, where the key that it declares says so."""

    def start(self, system, revision, config):
        self.last_first = config["own"].get("queue") == "lifo"
        return super().start(system, revision, config) | {
            "config_keys": {"queue": ["fifo", "lifo"]},
            "features": [],
        }

    def step(self):
        if self.last_first and len(self._state.waiting) > 1:
            self._state = self._state._replace(waiting=self._state.waiting[::-1])
        return super().step()


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    """An empty folder and a third of the usual runs, which exercise what is asserted."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(PROFILES, "quick", Profile(20, 20, 20, 2_000))


@pytest.fixture
def _small(monkeypatch):
    """One scale shows what is tested."""
    monkeypatch.setattr(probing, "SCALES", ("small",))


def judged(target, **more):
    return schedproof.judge(target, system="generic", profile="quick", **more)


@pytest.mark.slow
@pytest.mark.parametrize(("target", "seed"), [(Other, 1), (Simulator, 1), (Page, 1)])
def test_schedulers_of_other_systems_keep_what_it_asks_for(target, seed):
    verdict = judged(target(), seed=seed, exclude=["GEN-R10"] if target is Other else [])
    assert [finding.rule for finding in verdict.findings] == []
    assert verdict.exit_code == 0
    held = {rule.id for rule in verdict.rules if rule.status == "held"}
    assert {"GEN-R01", "GEN-R02", "GEN-R05", "GEN-R07", "ALL-R06", "ALL-R11"} <= held


class Namesake(ModelTarget):
    """It calls itself as the system is called, and runs one request at a time."""

    def start(self, system, revision, config):
        alone = {**config, "max_num_seqs": 1}
        return super().start(system, revision, alone) | {"name": "generic"}


@pytest.mark.slow
@pytest.mark.usefixtures("_small")
def test_no_scheduler_of_any_kind_is_compared_with_a_model():
    verdict = judged(Namesake())
    assert "ALL-R07" not in {rule.id for rule in verdict.rules}
    assert [finding.rule for finding in verdict.findings] == []
    with pytest.raises(InputError, match="system generic has no model"):
        judged(Namesake(), compare_with="documented")


@pytest.mark.slow
@pytest.mark.usefixtures("_small")
def test_a_target_that_shows_little_is_judged_by_the_bounds():
    verdict = judged(Bare())
    statuses = {rule.id: rule.status for rule in verdict.rules}
    assert verdict.exit_code == 0
    assert [statuses[rule] for rule in ("GEN-R01", "GEN-R02", "GEN-R04")] == ["held"] * 3
    assert [statuses[rule] for rule in ("GEN-R05", "GEN-R08", "ALL-R09")] == ["not_observable"] * 3


@pytest.mark.slow
def test_a_fault_behind_a_key_of_its_own_is_found_and_replayed_with_it():
    verdict = judged(Lifo(), rules=["GEN-R04"])
    assert {finding.rule for finding in verdict.findings} == {"GEN-R04"}
    scenario = schedproof.read_scenario(verdict.findings[0].scenario)
    assert scenario.config["own"] == {"queue": "lifo"}
    broken = schedproof.replay(scenario, Lifo(), rules=["GEN-R04"]).broken
    assert [failure.rule for failure in broken] == ["GEN-R04"]


@pytest.mark.slow
@pytest.mark.usefixtures("_small")
def test_what_is_excluded_is_in_the_verdict_and_not_judged():
    verdict = judged(Lifo(), rules=["GEN-*"], exclude=["GEN-R04"])
    statuses = {rule.id: rule.status for rule in verdict.rules}
    assert statuses["GEN-R04"] == "excluded"
    assert verdict.exit_code == 0


@pytest.mark.parametrize("declared", [3, {"queue": []}, {"queue": "fifo"}, {3: [1]}])
def test_keys_are_declared_with_their_values(declared):
    class Declares(ModelTarget):
        def start(self, system, revision, config):
            return super().start(system, revision, config) | {"config_keys": declared}

    with pytest.raises(TargetBroken, match="config_keys"):
        probe(ProbeRequest(Declares(), "generic", "documented", load("generic")))


def test_another_system_has_no_keys_of_a_targets_own():
    class Declares(ModelTarget):
        def start(self, system, revision, config):
            return super().start(system, revision, config) | {"config_keys": {"queue": ["fifo"]}}

    with pytest.raises(TargetBroken, match="valid: --system generic"):
        probe(ProbeRequest(Declares(), "vllm", "documented", load("vllm")))
