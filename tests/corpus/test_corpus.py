"""Every scenario of FINDINGS.md breaks, on the model of its release, the rule that it is for."""

from pathlib import Path

import pytest

from schedproof.gate.scenario_file import read_scenario
from schedproof.model.target import ModelTarget
from schedproof.properties.replay import replay
from schedproof.spec.catalogue import load

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("*.json"))
FINDINGS = (FOLDER / "FINDINGS.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_finding_breaks_the_rule_that_it_is_for_first(file: Path) -> None:
    scenario = read_scenario(file)
    assert scenario.expect is not None
    assert scenario.expect.violates
    outcome = replay(ModelTarget(), scenario, load(scenario.system))
    assert outcome.unmet == []
    assert outcome.broken[0].rule == scenario.expect.violates[0]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_scenario_is_named_by_its_file_and_told_in_the_findings(file: Path) -> None:
    assert read_scenario(file).name == file.stem
    assert f"tests/corpus/{file.name}" in FINDINGS
