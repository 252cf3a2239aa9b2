"""What is said of a request that others pass by."""

from pathlib import Path

from schedproof.gate.files.scenario_file import read_scenario
from schedproof.model.scenario import Scenario
from schedproof.model.spyre.model import SpyreModel
from schedproof.model.systems import full_config, make_model
from schedproof.properties.spyre.explanations import explain_passed_by

FILE = Path(__file__).parents[2] / "corpus" / "a-refused-head-is-passed-by.json"


def model(scenario: Scenario, revision: str) -> SpyreModel:
    config = full_config("spyre", revision, {"block_size": 64, **scenario.config})
    made = make_model("spyre", revision, config)
    assert isinstance(made, SpyreModel)
    return made


def test_who_is_passed_by_and_by_whom_is_named() -> None:
    scenario = read_scenario(FILE)
    lines = explain_passed_by(model(scenario, "2.5.2"), scenario, 645)
    assert lines[0].startswith("r2 is refused by the volume of the batch while later requests fit")
    assert lines[0].endswith("passed by: r3,")
    assert lines[1].endswith("a refused request does not stop the queue")


def test_nothing_is_said_before_anyone_passed() -> None:
    scenario = read_scenario(FILE)
    assert explain_passed_by(model(scenario, "2.5.2"), scenario, 3) == []
