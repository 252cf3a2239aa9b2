"""The plugin in a user's repository: what is collected, selected and said."""

from pathlib import Path

import pytest

from schedproof.gate.judging.profiles import PROFILES, Profile
from schedproof.properties.rules.registry import applies
from schedproof.spec.catalogue import load

from .project import LOSES, SILENT, write_project

pytest_plugins = ["pytester"]


@pytest.fixture
def running(pytester, monkeypatch):
    """Pytest in this process, in a repository of its own, with a small budget."""
    monkeypatch.setitem(PROFILES, "quick", Profile(8, 20, 40, 0))

    def run(*words):
        return pytester.runpytest_inprocess("-p", "no:randomly", "-p", "no:cacheprovider", *words)

    return run


def counts(result):
    """Passed, failed, deselected."""
    found = result.parseoutcomes()
    return found.get("passed", 0), found.get("failed", 0), found.get("deselected", 0)


def test_without_a_target_nothing_is_collected_and_nothing_is_said(pytester, running):
    pytester.makepyfile("def test_own(): pass")
    result = running()
    assert counts(result) == (1, 0, 0)
    assert "schedproof:" not in result.stdout.str()


def test_each_checked_rule_is_a_test(pytester, running):
    write_project(pytester.path)
    listed = running("--collect-only", "-q").stdout.str()
    rules = [rule.id for rule in load("spyre") if rule.checked and applies(rule, "sound")]
    assert [f"pyproject.toml::{name}" for name in rules] == [
        line for line in listed.splitlines() if line.startswith("pyproject.toml::")
    ]


OUR_RULES = """
from schedproof import OwnRule
OUR = OwnRule(
    id="OUR-R01", title="t", statement="s", witness="w",
    broken=lambda history, step: "always", exercised=lambda history, step: True,
)
RULES = [OUR]
"""


def test_a_rule_of_the_user_is_a_test(pytester, running):
    write_project(pytester.path)
    with pytester.path.joinpath("pyproject.toml").open("a") as file:
        file.write('[tool.schedproof]\nextra_rules = "ours.py"\n')
    missing = running()
    assert missing.ret == pytest.ExitCode.USAGE_ERROR
    pytester.path.joinpath("ours.py").write_text(OUR_RULES)
    result = running("-k", "OUR-R01")
    assert counts(result)[:2] == (0, 1)
    assert "BROKEN OUR-R01" in result.stdout.str()
    assert "--extra-rules ours.py" in result.stdout.str()
    assert all(rule.id != "OUR-R01" for rule in load("spyre"))  # only while pytest runs


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [("pyproject.toml::SPY-R22",), ("-k", "SPY-R22"), ("-m", "schedproof", "-k", "SPY-R22")],
)
def test_a_rule_is_selected_by_its_id(pytester, running, words):
    write_project(pytester.path)
    result = running(*words)
    assert counts(result)[:2] == (1, 0)
    assert "conforms (1 held, 0 broken" in result.stdout.str()


@pytest.mark.slow
def test_the_tests_stand_beside_those_of_testpaths(pytester, running):
    write_project(pytester.path)
    file = pytester.path / "pyproject.toml"
    file.write_text(file.read_text() + 'testpaths = ["tests"]\n')
    pytester.mkdir("tests").joinpath("test_own.py").write_text("def test_own(): pass")
    assert counts(running("-k", "SPY-R22 or own"))[:2] == (2, 0)
    assert counts(running("tests"))[:2] == (1, 0)  # a folder was asked for, nothing else


def test_a_run_of_named_tests_says_that_nothing_is_judged(pytester, running):
    write_project(pytester.path)
    pytester.mkdir("tests").joinpath("test_own.py").write_text("def test_own(): pass")
    result = running("tests")
    assert counts(result)[:2] == (1, 0)
    line = "schedproof: adapter:Target is not judged; to judge it, add pyproject.toml to the "
    line += "arguments"
    assert line in result.stdout.lines
    assert line not in running("tests", "pyproject.toml", "--collect-only").stdout.lines


@pytest.mark.parametrize("more", [(), ("pyproject.toml::SPY-R22",)])
def test_a_target_on_the_command_line_is_judged_beside_the_named_tests(pytester, running, more):
    (pytester.path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    pytester.mkdir("tests").joinpath("test_own.py").write_text("def test_own(): pass")
    result = running("--schedproof-target", "model", "tests", *more, "--collect-only", "-q")
    listed = [line for line in result.stdout.lines if line.startswith("pyproject.toml::")]
    assert "pyproject.toml::SPY-R22" in listed
    assert (len(listed) == 1) is bool(more)
    assert "not judged" not in result.stdout.str()


def test_without_schedproof_the_users_own_tests_are_left(pytester, running):
    write_project(pytester.path)
    pytester.makepyfile("def test_own(): pass")
    assert counts(running("-m", "not schedproof"))[:2] == (1, 0)


@pytest.mark.slow
def test_a_broken_rule_reads_as_in_a_gate(pytester, running):
    write_project(pytester.path, LOSES)
    result = running("-k", "ALL-R03")
    assert counts(result)[:2] == (0, 1)
    out = result.stdout.str()
    for part in ("BROKEN ALL-R03", "  source:", "  config:", "  replay:   schedproof replay "):
        assert part in out
    assert "Traceback" not in out
    assert [*Path(pytester.path, "schedproof-out").glob("ALL-R03-*.json")]


@pytest.mark.slow
def test_the_target_can_be_named_on_the_command_line(pytester, running):
    (pytester.path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    result = running("--schedproof-target", "model", "-k", "SPY-R22")
    assert counts(result)[:2] == (1, 0)


def test_a_target_without_a_configuration_file_is_one_line(pytester, running):
    result = running("--schedproof-target", "model")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "valid: a pyproject.toml" in result.stderr.str()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"profile": "fast"}, "schedproof_profile: 'fast'; valid: quick, ci, nightly"),
        ({"system": "sglang"}, "schedproof_system: 'sglang' is not a system"),
        ({"revision": "9"}, "schedproof_revision: "),
        ({"seed": "-1"}, "schedproof_seed: '-1'; valid: a number, 0 or more"),
        ({"corpus": "nix"}, "schedproof_corpus: "),
        ({"deviations": "nix.toml"}, "nix.toml: cannot be read"),
    ],
)
def test_an_option_that_means_nothing_is_one_line(pytester, running, options, says):
    write_project(pytester.path, **options)
    result = running()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    [line] = [text for text in result.stderr.lines if "schedproof" in text]
    assert says in line


def test_a_target_that_cannot_be_imported_is_reported_once(pytester, running):
    write_project(pytester.path, target="nix:Target")
    result = running("-k", "SPY-R2")
    outcomes = result.parseoutcomes()
    assert outcomes["failed"] == 1
    assert outcomes["skipped"] > 1
    assert result.stdout.str().count("cannot import 'nix'") <= 2  # and in pytest's summary
    assert "Traceback" not in result.stdout.str()


@pytest.mark.slow
def test_the_workers_of_a_run_share_one_gate(pytester):
    write_project(pytester.path, SILENT)
    adapter = pytester.path / "adapter.py"
    adapter.write_text("open('processes', 'a').write('x')\n" + adapter.read_text())
    pytester.makeconftest(
        "from schedproof.gate.judging.profiles import PROFILES, Profile\n"
        "PROFILES['quick'] = Profile(8, 20, 40, 0)\n"
    )
    words = ("-p", "no:randomly", "-k", "SPY-R22 or SPY-R02")
    result = pytester.runpytest_subprocess(*words, "-n", "2")
    result.assert_outcomes(passed=1, failed=1)
    assert (pytester.path / "processes").read_text() == "x"
    out = result.stdout.str()
    assert "BROKEN SPY-R22" in out
    assert out.count("schedproof: schedproof model of spyre") == 1
