"""What a gate learns of a target before it searches."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from schedproof.gate.judging.judge import judge
from schedproof.gate.targets import probe as probing
from schedproof.gate.targets.factory import opened
from schedproof.gate.targets.probe import ProbeRequest, probe
from schedproof.gate.targets.scales import scales_of
from schedproof.gate.targets.target_spec import parse_target
from schedproof.model.faults import TargetBroken
from schedproof.model.systems import config_keys, full_config
from schedproof.model.target import ModelTarget
from schedproof.properties.vllm import ANY_LENGTH, WITH_THE_NULL_BLOCK
from schedproof.spec.catalogue import load, select
from schedproof.spec.systems import SYSTEMS

from ..build import PlansItsPool, Toy


class Plain(Toy):
    """Takes nothing but the plainest configuration."""

    refuses: Mapping[str, Any] = {"prefix_caching": True, "interleave": False}

    def start(self, system, revision, config):
        for key, value in self.refuses.items():
            if config[key] == value:
                message = f"$.config.{key}: {value} is not for us"
                return {"ok": False, "error": "config", "message": message}
        return super().start(system, revision, config)


class LacksAnOption(Plain):
    """What is usual it does not have."""

    refuses: Mapping[str, Any] = {"interleave": True}


class NeedsAPool(Toy):
    def start(self, system, revision, config):
        if config["num_blocks"] is None:
            return {"ok": False, "error": "config", "message": "$.config.num_blocks: give a pool"}
        return super().start(system, revision, config)


def test_a_kind_of_configuration_that_a_target_refuses_is_known_and_said(gate):
    query = ProbeRequest(PlansItsPool(), "vllm", "documented", load("vllm"))
    capabilities = probe(query)
    assert capabilities.refused_kinds == {WITH_THE_NULL_BLOCK, ANY_LENGTH}
    said = f"{ANY_LENGTH} left out, because the target refuses it: $.config.num_blocks: too few"
    assert said in capabilities.notices()
    assert probe(query._replace(fixed={"num_blocks": 64})).refused_kinds == set()


def test_what_a_target_and_its_base_both_refuse_is_a_line_with_the_first_reason():
    capabilities = probe(ProbeRequest(PlansItsPool(), "vllm", "documented", load("vllm")))
    [line] = capabilities.notices(in_one=True)
    assert line.startswith(f"{WITH_THE_NULL_BLOCK}, {ANY_LENGTH}: left out, because ")
    assert line.endswith("refuses them. The reason for the first one: $.config.num_blocks: too few")


def test_what_a_target_refuses_is_fixed_at_what_it_takes_and_said(gate):
    capabilities = probe(gate(Plain()).probe_request)
    assert capabilities.scales == ["small", "tight"]
    assert capabilities.fixed["small"] == {"prefix_caching": False, "interleave": True}
    [text] = [
        remark
        for remark in capabilities.notices()
        if remark.startswith("prefix_caching True left out")
    ]
    assert "not for us" in text


def test_an_option_that_a_target_does_not_have_is_fixed_without_it_and_said(gate):
    capabilities = probe(gate(LacksAnOption()).probe_request)
    assert capabilities.scales == ["small", "tight"]
    assert capabilities.fixed["small"] == {"interleave": False}
    [text] = [
        remark for remark in capabilities.notices() if remark.startswith("always interleave False")
    ]
    assert "True is not for us" in text


class LacksAnEncoder(ModelTarget):
    def start(self, system, revision, config):
        if config.get("max_num_encoder_input_tokens"):
            return {"ok": False, "error": "config", "message": "no encoder here"}
        return super().start(system, revision, config)


def test_the_sizes_of_a_refused_feature_are_left_out_with_it():
    query = ProbeRequest(LacksAnEncoder(), "vllm", "documented", load("vllm"))
    fixed = probe(query).fixed["small"]
    assert fixed == {"max_num_encoder_input_tokens": 0, "encoder_cache_size": 0}
    full_config("vllm", "documented", fixed)


def test_nothing_is_fixed_for_a_target_that_takes_all(gate):
    capabilities = probe(gate(Toy()).probe_request)
    assert [*capabilities.fixed.values()] == [{}, {}]
    assert {"prefix_hit", "free_blocks"} <= capabilities.shows


@pytest.mark.slow
def test_the_search_asks_for_nothing_that_is_refused(gate):
    verdict = judge(gate(Plain(), "SPY-R22", examples=20))
    searches = [engine for engine in verdict.engines if engine.name == "hypothesis"]
    assert [search.refused_configs for search in searches] == [0, 0]
    assert all(search.runs >= 20 for search in searches)


def test_a_target_that_needs_a_pool_gets_one(gate):
    assert probe(gate(NeedsAPool()).probe_request).scales == ["small", "tight"]


def test_what_is_asked_for_means_something_in_each_system():
    for system, revisions in [(known.name, known.revisions) for known in SYSTEMS.values()]:
        for scale in scales_of(system).scales.values():
            full_config(system, revisions[0], {**scale, **scales_of(system).plain})
        keys = {key for revision in revisions for key in config_keys(system, revision)}
        assert {key for feature in scales_of(system).features for key in feature} <= keys


class Lacks(ModelTarget):
    """vLLM's model without one of the keys that are absent where they say nothing."""

    def __init__(self, key):
        super().__init__()
        self.key = key

    def start(self, system, revision, config):
        if config.get(self.key, "recompute") not in (False, 0, 1, "recompute"):
            return {"ok": False, "error": "config", "message": f"$.config.{self.key}: no"}
        return super().start(system, revision, config)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "still"),
    [
        ("kv_load_failure_policy", {"V1-R20", "V1-R19", "V1CP-R35"}),
        ("async_scheduling", {"V1-R20", "V1-R19", "V1CP-R35"}),
        ("num_speculative_tokens", {"V1-R20", "V1-R19"}),
        ("kv_connector", {"V1-R19", "V1CP-R35"}),
    ],
)
def test_a_target_that_refuses_one_option_is_searched_with_the_others(
    gate, key, still, monkeypatch
):
    monkeypatch.setattr(probing, "SCALES", ("small",))
    context = gate(Lacks(key), examples=40, system="vllm", revision="documented")
    rules = select(load("vllm"), sorted(still))
    context.options = replace(context.options, rules=rules)
    verdict = judge(context)
    assert {rule.id: rule.status for rule in verdict.rules} == dict.fromkeys(still, "held")


def test_a_clone_or_a_module_of_a_known_name_in_the_folder_is_not_imported_for_ours(
    tmp_path, monkeypatch
):
    (tmp_path / "schedproof").mkdir()
    for shadow in ("schedproof/__init__.py", "random.py", "signal.py"):
        (tmp_path / shadow).write_text("raise SystemExit('imported')\n")
    (tmp_path / "mine.py").write_text("from schedproof.model.target import ModelTarget as make\n")
    monkeypatch.chdir(tmp_path)
    with opened(parse_target("mine:make")) as target:
        assert target.target.start("vllm", "documented", {})["ok"]


class IgnoresKeys(ModelTarget):
    """A scheduler of any kind that passes over the keys that it does not know."""

    features: tuple[str, ...] | None = None

    def start(self, system, revision, config):
        known = {
            key: value for key, value in config.items() if key in full_config(system, revision, {})
        }
        reply = {**super().start(system, revision, known)}
        del reply["features"]
        return reply if self.features is None else {**reply, "features": [*self.features]}


def test_a_feature_that_a_target_does_not_declare_is_not_used():
    learned = probe(ProbeRequest(IgnoresKeys(), "generic", "documented", load("generic")))
    assert [line for line in learned.left_out if line.endswith("declare them in features")]
    assert learned.fixed["small"]["async_scheduling"] is False
    assert learned.fixed["small"]["kv_connector"] is False


def test_a_declared_feature_that_does_not_exist_is_named():
    target = IgnoresKeys()
    target.features = ("time_travel",)
    with pytest.raises(TargetBroken, match="features has 'time_travel'; valid: async_scheduling"):
        probe(ProbeRequest(target, "generic", "documented", load("generic")))
