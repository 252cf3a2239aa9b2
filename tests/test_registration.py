"""A fifth system is registered once, and then gated, explored and searched like the others."""

import pytest

import schedproof
from schedproof.gate.judging.profiles import PROFILES, Profile
from schedproof.model.target import ModelTarget
from schedproof.solver.exploration.exploration import Exploration, ExploreOptions
from schedproof.spec import systems
from schedproof.spec.catalogue import load

from .command_line import runner
from .toy_system import SCOPES, TOY, TOY_SYSTEM

CHECKED = ["TOY-R01", "TOY-R02", "TOY-R03"]


@pytest.fixture(autouse=True)
def _registered(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(PROFILES, "quick", Profile(20, 60, 60, 0))
    systems.register(TOY_SYSTEM)
    yield
    systems.unregister("toy")


@pytest.mark.slow
def test_a_gate_judges_it_by_its_rules_and_those_of_every_system():
    verdict = schedproof.judge(ModelTarget(), system="toy")
    statuses = {rule.id: rule.status for rule in verdict.rules}
    assert [statuses[rule] for rule in CHECKED] == ["held"] * 3
    assert statuses["ALL-R04"] == "held"
    assert verdict.exit_code == 0
    assert all(rule.exercised for rule in verdict.rules if rule.id in CHECKED)


@pytest.mark.slow
def test_a_gate_finds_and_shrinks_what_breaks_its_rules():
    verdict = schedproof.judge(ModelTarget(), system="toy", revision="one too many", seed=1)
    finding = next(found for found in verdict.findings if found.rule == "TOY-R01")
    assert (verdict.exit_code, finding.requests) == (1, 2)
    scenario = schedproof.read_scenario(finding.scenario)
    assert [failure.rule for failure in schedproof.replay(scenario).broken] == ["TOY-R01"]


@pytest.mark.slow
def test_the_command_line_knows_it(monkeypatch, capfd):
    run = runner(monkeypatch, capfd)
    assert "TOY-R02" in run("rules", "--system", "toy").out
    result = run("gate", "model", "--system", "toy", "--profile", "quick", "--verbose")
    assert result.code == 0, result
    assert "TOY-R01" in result.out


@pytest.mark.parametrize(
    ("revision", "broken"), [("documented", []), ("one too many", [CHECKED[0]])]
)
def test_its_scope_is_explored_to_the_end(revision, broken):
    rules = [rule for rule in load("toy") if rule.checked]
    run = Exploration(ExploreOptions(revision, SCOPES[0]), rules)
    for _ in run.search.run():
        pass
    explored = run.result()
    assert explored.complete
    assert sorted({counterexample.rule for counterexample in explored.counterexamples}) == broken
    assert explored.exercised["TOY-R01"] == (1, 2)


@pytest.mark.slow
def test_a_search_finds_its_counterexample():
    found = schedproof.search("TOY-R01", system="toy", revision="one too many")
    assert found is not None
    assert [failure.rule for failure in found.broken] == ["TOY-R01"]
    assert schedproof.search("TOY-R01", system="toy", examples=50) is None


def test_a_name_is_registered_once(tmp_path):
    with pytest.raises(ValueError, match="a system named 'toy' is registered already"):
        systems.register(TOY)
