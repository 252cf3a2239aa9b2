"""The scenarios that come along: in order, complete, and they break what they say."""

from pathlib import Path

import pytest

from schedproof.gate import builtin
from schedproof.gate.builtin import builtin_scenarios, longest
from schedproof.model.scenario import Request, Scenario
from schedproof.model.target import ModelTarget
from schedproof.properties.replay import replay
from schedproof.spec.catalogue import SYSTEMS, load


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_file_is_there_under_its_own_name_in_order(system: str) -> None:
    folder = Path(builtin.__file__).parent / "corpus" / system
    found = builtin_scenarios(system)
    assert list(found) == sorted(path.name for path in folder.glob("*"))
    assert [f"{scenario.name}.json" for scenario in found.values()] == list(found)


@pytest.mark.parametrize(("system", "least"), [("spyre", 3), ("nano_vllm", 3)])
def test_the_model_of_its_revision_breaks_what_a_scenario_expects(system: str, least: int) -> None:
    expecting = {
        name: scenario
        for name, scenario in builtin_scenarios(system).items()
        if scenario.expect is not None
    }
    assert len(expecting) >= least
    for name, scenario in expecting.items():
        outcome = replay(ModelTarget(), scenario, load(system))
        assert outcome.unmet == [], name
        assert [one.rule for one in outcome.broken] == [*(scenario.expect.violates or ())], name


def test_no_replay_takes_longer_than_the_longest() -> None:
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
    assert outcome.steps <= longest(scenario)
