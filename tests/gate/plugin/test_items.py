"""The tests that the plugin collects: how each verdict ends, and the corpus."""

import pytest
from msgspec.structs import replace

from schedproof.gate.files.scenario_file import write_scenario
from schedproof.gate.judging.context import BreakOff
from schedproof.gate.judging.profiles import PROFILES, Profile
from schedproof.gate.plugin import items
from schedproof.gate.plugin.judgement import BrokenOff
from schedproof.model.scenario import Expectation, Request, Scenario
from schedproof.model.systems import full_config

from .project import LOSES, SILENT, write_project

pytest_plugins = ["pytester"]

SMALL = {"block_size": 4, "chunk_size": 8, "max_model_len": 32, "max_batch_tkv": 64}
TWO = Scenario(
    system="spyre",
    revision="sound",
    config=full_config("spyre", "sound", SMALL),
    requests=tuple(
        Request(id=name, arrival=0, prompt=((name, 3),), max_tokens=4) for name in ("r0", "r1")
    ),
)


@pytest.fixture(autouse=True)
def _small_budget(monkeypatch):
    monkeypatch.setitem(PROFILES, "quick", Profile(8, 20, 40, 0))


def outcomes(pytester, *words):
    return pytester.runpytest_inprocess("-p", "no:randomly", "-rA", *words).parseoutcomes()


def corpus(pytester, scenario, rule="ALL-R03"):
    kept = replace(scenario, origin={"rule": rule})
    return write_scenario(kept, pytester.path / "schedproof-corpus", rule)


@pytest.mark.slow
def test_a_scenario_of_the_corpus_is_a_test(pytester):
    path = corpus(pytester, TWO)
    write_project(pytester.path)
    assert outcomes(pytester, f"pyproject.toml::{path.stem}") == {"passed": 1}
    write_project(pytester.path, LOSES)
    assert outcomes(pytester, "-k", path.stem)["failed"] == 1


@pytest.mark.slow
def test_a_scenario_that_is_to_break_a_rule_fails_where_it_does_not(pytester):
    path = corpus(pytester, replace(TWO, expect=Expectation(violates=("ALL-R03",))))
    write_project(pytester.path, LOSES)
    assert outcomes(pytester, f"pyproject.toml::{path.stem}") == {"passed": 1}
    write_project(pytester.path)
    assert outcomes(pytester, f"pyproject.toml::{path.stem}") == {"failed": 1}


def test_a_scenario_that_is_to_break_a_rule_of_another_revision_is_skipped(pytester):
    path = corpus(pytester, replace(TWO, expect=Expectation(violates=("SPY-R52",))))
    write_project(pytester.path)
    assert outcomes(pytester, f"pyproject.toml::{path.stem}") == {"skipped": 1}


def test_a_scenario_of_another_system_is_skipped(pytester):
    path = corpus(pytester, replace(TWO, system="vllm", revision=None, config={}))
    write_project(pytester.path)
    assert outcomes(pytester, f"pyproject.toml::{path.stem}") == {"skipped": 1}


def test_a_scenario_that_does_not_exercise_its_own_rule_is_skipped(pytester):
    path = corpus(pytester, TWO, "ALL-R08")
    write_project(pytester.path)
    result = pytester.runpytest_inprocess("-rs", f"pyproject.toml::{path.stem}")
    assert result.parseoutcomes() == {"skipped": 1}
    assert "ALL-R08 is never exercised on this target" in result.stdout.str()


def test_a_scenario_whose_rule_is_unknown_fails(pytester):
    path = corpus(pytester, TWO, "OUR-R01")
    write_project(pytester.path)
    result = pytester.runpytest_inprocess("-rf", f"pyproject.toml::{path.stem}")
    assert result.parseoutcomes() == {"failed": 1}
    assert "$.origin.rule: 'OUR-R01' is not a rule of spyre" in result.stdout.str()


def test_a_scenario_of_an_excluded_rule_is_skipped(pytester):
    path = corpus(pytester, TWO)
    write_project(pytester.path, LOSES, exclude="ALL-R03")
    result = pytester.runpytest_inprocess("-rs", f"pyproject.toml::{path.stem}")
    assert result.parseoutcomes() == {"skipped": 1}
    assert "excluded: excluded" in result.stdout.str()


def test_the_output_of_a_target_cannot_control_the_terminal(pytester, monkeypatch):
    def breaks_off(*_):
        raise BrokenOff(BreakOff("it ended", "\x1b[31mRED\n::error::pwned"))

    path = corpus(pytester, TWO)
    write_project(pytester.path)
    monkeypatch.setattr(items, "run_replay", breaks_off)
    result = pytester.runpytest_inprocess(f"pyproject.toml::{path.stem}")
    assert result.parseoutcomes() == {"failed": 1}
    lines = result.stdout.str().splitlines()
    assert "  |  [31mRED" in lines
    assert "  | ::error::pwned" in lines


def test_the_name_of_a_file_cannot_control_the_terminal(pytester):
    path = corpus(pytester, TWO)
    path.rename(path.with_name("a\x1b[31m\n::error::pwned.json"))
    write_project(pytester.path)
    result = pytester.runpytest_inprocess("--collect-only", "-q", "-k", "pwned")
    assert "pyproject.toml::a [31m ::error::pwned" in result.stdout.str().splitlines()


def test_a_scenario_named_after_a_rule_is_a_test_of_its_own(pytester):
    path = corpus(pytester, TWO)
    path.rename(path.with_name("ALL-R03.json"))
    path.with_name("folder.json").mkdir()
    write_project(pytester.path)
    result = pytester.runpytest_inprocess("--collect-only", "-q", "-k", "ALL-R03 or folder")
    collected = sorted(line for line in result.stdout.str().splitlines() if "::" in line)
    assert collected == ["pyproject.toml::ALL-R03", "pyproject.toml::ALL-R03.json"]


def test_a_damaged_scenario_is_one_line_that_names_it(pytester):
    corpus(pytester, TWO).write_text("{")
    write_project(pytester.path)
    result = pytester.runpytest_inprocess("-k", "ALL-R03-")
    assert "not JSON" in result.stdout.str()
    assert "Traceback" not in result.stdout.str()
    assert result.parseoutcomes()["failed"] == 1


@pytest.mark.slow
def test_a_target_that_takes_no_request_fails_the_run(pytester):
    write_project(pytester.path)
    adapter = pytester.path / "adapter.py"
    adapter.write_text(adapter.read_text() + REFUSES_ALL)
    result = pytester.runpytest_inprocess("-p", "no:randomly", "-k", "ALL-R0")
    assert result.parseoutcomes()["failed"] == 1
    assert "the target accepted no request, so nothing was judged" in result.stdout.str()


REFUSES_ALL = """
    def add(self, request):
        return {"ok": False, "error": "rejected", "message": "no"}
"""


@pytest.mark.slow
def test_what_was_never_at_stake_or_is_not_shown_is_skipped_with_the_reason(pytester):
    hides = "reply['step'].pop('emitted')"
    write_project(pytester.path, hides)
    adapter = pytester.path / "adapter.py"
    adapter.write_text(
        adapter.read_text()
        + """
    def start(self, system, revision, config):
        reply = super().start(system, revision, config)
        reply["observes"] = [one for one in reply["observes"] if one != "emitted"]
        return reply
"""
    )
    result = pytester.runpytest_inprocess("-rs", "-k", "SPY-R22 or SPY-R02")
    assert result.parseoutcomes()["skipped"] == 1
    assert "the target does not show emitted" in result.stdout.str()


@pytest.mark.slow
def test_a_known_failure_is_expected_to_fail_and_the_list_is_a_test_of_its_own(pytester):
    write_project(pytester.path, LOSES, deviations="known.toml")
    entry = '[[known]]\nrule = "ALL-R03"\nversion = "sound"\nreason = "later"\nuntil = 2999-01-01\n'
    (pytester.path / "known.toml").write_text(entry)
    found = outcomes(pytester, "-k", "ALL-R03 or deviations")
    assert (found.get("xfailed"), found.get("passed"), found.get("failed")) == (1, 1, None)
    (pytester.path / "adapter.py").write_text(
        "from schedproof.model.target import ModelTarget as Target"
    )
    found = outcomes(pytester, "-k", "ALL-R03 or deviations")
    assert (found.get("passed"), found.get("failed")) == (2, None)  # not met: a longer search may


@pytest.mark.slow
def test_only_what_failed_is_asked_again(pytester):
    write_project(pytester.path, SILENT)
    first = outcomes(pytester, "-k", "SPY-R22 or ALL-R05")
    assert (first.get("passed"), first.get("failed")) == (1, 1)
    again = outcomes(pytester, "--last-failed", "-k", "SPY-R22 or ALL-R05")
    assert (again.get("passed"), again.get("failed")) == (None, 1)


@pytest.mark.slow
def test_a_scenario_that_breaks_what_is_known_is_expected_to_fail_by_itself(pytester):
    path = corpus(pytester, TWO)
    write_project(pytester.path, LOSES, deviations="known.toml")
    given = f'scenario = "schedproof-corpus/{path.name}"\nreason = "later"\nuntil = 2999-01-01\n'
    (pytester.path / "known.toml").write_text(f'[[known]]\nrule = "ALL-R03"\n{given}')
    assert outcomes(pytester, f"pyproject.toml::{path.stem}") == {"xfailed": 1}
