"""Synchronous loads: what a client may demand once such a load has failed."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from schedproof.gate.files.scenario_file import read_scenario
from schedproof.model.target import ModelTarget
from schedproof.model.vllm import connector
from schedproof.properties.checking.replay import replay
from schedproof.spec.catalogue import load

RULES = [rule for rule in load("vllm", "0.33") if rule.checked]
CORPUS = Path(__file__).parents[2] / "corpus"
READ = read_scenario(CORPUS / "a-failed-load-is-read.json")


def broken(scenario):
    return {rule.rule: rule.message for rule in replay(ModelTarget(), scenario, RULES).broken}


def test_the_model_computes_tokens_that_failed_to_load_before_it_uses_them():
    outcome = replay(ModelTarget(), READ, RULES)
    assert outcome.finished
    assert not outcome.broken
    assert {"V1-R92", "V1-R27"} & set(outcome.exercised) == {"V1-R92"}


def test_a_token_of_the_step_in_which_its_load_fails_is_an_error(monkeypatch):
    monkeypatch.setattr(connector, "fall_back", lambda _, state, flight, __: (state, flight, {}))
    assert broken(READ)["V1-R92"] == "owner emits a token of the step in which its load fails"


def test_a_reader_must_not_use_a_block_before_it_is_computed_again(monkeypatch):
    """The fault of the releases: the blocks can still be found while they are computed again."""
    monkeypatch.setattr(connector, "forget", lambda pool, content, block: pool)
    messages = broken(READ)
    assert messages["V1-R92"].startswith("reader computes its tokens from 64 on, but its tokens")
    assert messages["V1-R92"].endswith("only 0 of them have been computed since")
    assert "ALL-R08" in messages


@pytest.mark.parametrize("policy", ["recompute", "fail"])
def test_loads_between_steps_are_not_judged(policy):
    config = {**READ.config, "kv_load_failure_policy": policy, "synchronous_loads": False}
    outcome = replay(ModelTarget(), replace(READ, config=config), RULES)
    assert not outcome.broken
    assert "V1-R92" not in outcome.exercised
