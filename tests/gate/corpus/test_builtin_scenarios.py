"""The scenarios that come along: in order, complete, and they break what they say."""

from pathlib import Path

import pytest
from msgspec.structs import replace

import schedproof.gate.corpus
from schedproof.gate.corpus.folder import (
    builtin_scenarios,
    max_steps,
    scenario_named,
    seed_corpus,
)
from schedproof.gate.files.scenario_file import FileError, write_scenario
from schedproof.model.scenario import Request, Scenario
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.properties.rules.registry import LOCKSTEP
from schedproof.spec.catalogue import load
from schedproof.spec.systems import SYSTEMS


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_file_is_there_under_its_own_name_in_order(system):
    folder = Path(schedproof.gate.corpus.__file__).parent / "builtin" / system
    found = builtin_scenarios(system)
    assert list(found) == sorted(path.name for path in folder.glob("*.json"))
    assert [f"{scenario.name}.json" for scenario in found.values()] == list(found)


@pytest.mark.parametrize(("system", "least"), [("spyre", 3), ("nano_vllm", 3)])
def test_the_model_of_its_revision_breaks_what_a_scenario_expects(system, least):
    expecting = {
        name: scenario
        for name, scenario in builtin_scenarios(system).items()
        if scenario.expect is not None
    }
    assert len(expecting) >= least
    for name, scenario in expecting.items():
        outcome = replay(ModelTarget(), scenario, load(system))
        assert outcome.unmet == [], name
        assert [failure.rule for failure in outcome.broken] == [
            *(scenario.expect.violates or ())
        ], name


# What no run of this scale that `tools/seeds.py` came to puts exercised.
RARE = {
    "spyre small": "SPY-P01 SPY-R34 SPY-R52",
    "spyre short": "SPY-P01 SPY-R34 SPY-R50 SPY-R51 SPY-R52",
}


@pytest.mark.parametrize(
    ("system", "scale"),
    [
        ("spyre", "small"),
        ("spyre", "short"),
        ("vllm", "small"),
        ("nano_vllm", "small"),
        ("nano_vllm", "tight"),
        ("llmservingsim", "small"),
        ("generic", "small"),
    ],
)
def test_every_rule_is_at_stake_in_the_seed_corpus_and_holds(system, scale):
    exercised: set[str] = set()
    for name, scenario in seed_corpus(system, scale).items():
        outcome = replay(ModelTarget(), scenario, load(system))
        assert outcome.finished, name
        assert (outcome.unmet, outcome.broken) == ([], []), name
        exercised |= set(outcome.exercised)
    checked = {rule.id for rule in load(system) if rule.checked}
    # Lockstep compares a target with the model: every run is one for it.
    assert checked - exercised - {LOCKSTEP} == {*RARE.get(f"{system} {scale}", "").split()}


def test_a_scale_may_have_no_seed_corpus():
    assert seed_corpus("spyre", "tight") == {}


def test_no_replay_takes_longer_than_the_longest():
    scenario = Scenario(
        system="spyre",
        revision="sound",
        config={"block_size": 4, "chunk_size": 8, "max_model_len": 64, "max_batch_tkv": 256},
        requests=tuple(
            Request(id=f"r{i}", arrival=3 * i, prompt=((f"r{i}", 20),), max_tokens=9)
            for i in range(5)
        ),
    )
    outcome = replay(ModelTarget(), scenario, load("spyre"))
    assert outcome.finished
    assert outcome.steps <= max_steps(scenario)


def test_a_built_in_scenario_is_found_by_its_name(tmp_path):
    named = scenario_named("late-arrivals-before-961")
    assert named == builtin_scenarios("spyre")["late-arrivals-before-961.json"]
    assert scenario_named("late-arrivals-before-961.json") == named
    written = write_scenario(named, tmp_path, "SPY-R07")
    read = scenario_named(str(written))
    assert read == replace(named, origin={**named.origin, "rule": "SPY-R07"})


def test_a_name_close_to_one_says_which(tmp_path):
    with pytest.raises(FileError, match="did you mean late-arrivals-before-961"):
        scenario_named("late-arrivals-before-96")
    with pytest.raises(FileError, match=r"none\.json: cannot be read"):
        scenario_named("none.json")
    with pytest.raises(FileError, match="cannot be read"):
        scenario_named(str(tmp_path / "late-arrivals-before-961"))
