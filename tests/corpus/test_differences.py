"""The differences that the findings tell of: the models of the two systems show them, too."""

from pathlib import Path

import pytest

from schedproof.gate.files.scenario_file import read_scenario
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.differential_target import DifferentialTarget, Side
from schedproof.properties.checking.replay import replay

FOLDER = Path(__file__).parent
FINDINGS = (FOLDER.parents[1] / "docs" / "findings" / "llmservingsim.md").read_text(
    encoding="utf-8"
)
FILES = sorted((FOLDER / "differences").glob("*.json"))
EXPECTED = {
    "newest-copy-is-shared": (1, "scheduled: c 1 only on B"),
    "newest-copy-takes-the-index-along": (3, "scheduled: c 1 on A and 2 on B"),
}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_vllm_and_the_simulator_after_it_differ_as_the_findings_say(file):
    sides = (
        Side(ModelTarget(), "vllm", "documented"),
        Side(ModelTarget(), "llmservingsim", "head"),
    )
    pair = DifferentialTarget(*sides)
    replay(pair, read_scenario(file), ())
    assert pair.difference is not None
    step, words = EXPECTED[file.stem]
    assert (pair.difference.kind, pair.difference.step) == ("decision", step)
    assert words in pair.difference.words


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_difference_is_named_by_its_file_and_told_in_the_findings(file):
    assert read_scenario(file).name == file.stem
    assert f"differences/{file.name}" in FINDINGS
