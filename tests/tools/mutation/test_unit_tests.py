"""The comparison of a gate with vLLM's unit tests, on a tiny package with tiny tests."""

import json
import sys
from types import SimpleNamespace

import pytest

from schedproof.gate.judging import verdict
from schedproof.gate.targets.releases import Prepared
from schedproof.tools.mutation import unit_tests
from schedproof.tools.mutation.unit_tests import GATE, UNIT_TESTS, Ledger, Result, UnitTests

SOURCE = "def longest(a, b):\n    return a if a > b else b\n"
TESTS = """import vllm.v1.core.block_pool as pool

def test_of_weights():
    raise OSError("no weights")

def test_first():
    assert pool.longest(1, 2) == 2

def test_second():
    assert pool.longest(3, 2) == 3
"""


@pytest.fixture
def core(tmp_path):
    """The code of a package like vLLM's, with one file whose decisions are changed."""
    core = tmp_path / "code" / unit_tests.CORE
    core.mkdir(parents=True)
    for folder in (core, core.parent, core.parent.parent):
        (folder / "__init__.py").touch()
    (core / "block_pool.py").write_text(SOURCE)
    return core


@pytest.fixture
def package(core, tmp_path):
    folder = tmp_path / "package"
    folder.mkdir()
    unit_tests.copy_package(tmp_path / "code", folder)
    return folder


@pytest.fixture
def unit(package, tmp_path):
    tests, scratch = tmp_path / "repository" / "tests" / "v1" / "core", tmp_path / "scratch"
    for folder in (tests, scratch):
        folder.mkdir(parents=True)
    (tests / "test_pool.py").write_text(TESTS)
    unit = UnitTests(Prepared([sys.executable], {}), tests, package, scratch)
    yield unit
    unit.end()


def test_changes_are_drawn_by_the_seed_and_none_comes_twice(core, monkeypatch):
    pytest.importorskip("cosmic_ray", reason="comes with the extra tools")
    monkeypatch.setattr(unit_tests, "FILES", ("block_pool.py",))
    drawn = [[*unit_tests.changes(core, seed)] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    texts = [text for _, text, _ in drawn[0]]
    assert len(texts) == len({*texts}) > 3
    words = "line 2: return a if a > b else b -> return a if a < b else b"
    assert words in {words for _, _, words in drawn[0]}


def test_only_the_core_of_a_package_is_copied(package):
    assert (package / "vllm" / "__init__.py").is_symlink()
    assert not (package / unit_tests.CORE / "block_pool.py").is_symlink()


def test_the_first_test_that_fails_finds_a_change(unit, package):
    pool = package / unit_tests.CORE / "block_pool.py"
    left_out, tests, seconds, killed = unit.run(30, [])
    assert left_out == ["tests/v1/core/test_pool.py::test_of_weights"]
    assert (tests, seconds > 0, killed) == (3, True, False)
    assert unit.judge(30, left_out).found == ""
    pool.write_text(SOURCE.replace(">", "<"))
    assert unit.judge(30, left_out).found == "tests/v1/core/test_pool.py::test_first"
    pool.write_text("import no_such_module\n")
    assert unit.judge(30, left_out).found == "tests/v1/core/test_pool.py"


def test_tests_that_take_too_long_find_a_hang(unit, package):
    pool = package / unit_tests.CORE / "block_pool.py"
    pool.write_text("def longest(a, b):\n    while True:\n        pass\n")
    found, seconds = unit.judge(1, ["tests/v1/core/test_pool.py::test_of_weights"])
    assert found == "hangs"
    assert seconds >= 1


def test_a_known_result_is_not_asked_for_again(tmp_path):
    path = tmp_path / "ledger.jsonl"
    assert Ledger(path).get("a change", GATE, lambda: Result("V1-R05", 2.5)) == ("V1-R05", 2.5)
    assert Ledger(path).get("a change", GATE, pytest.fail) == ["V1-R05", 2.5]
    assert Ledger(path).get("a change", UNIT_TESTS, lambda: Result("", 9.0)).seconds == 9


def test_a_damaged_ledger_is_refused(tmp_path):
    path = tmp_path / "ledger.jsonl"
    path.write_text(json.dumps({"change": "a", "side": GATE, "result": ["", 1]}) + "\n[1]\n")
    with pytest.raises(SystemExit, match="line 2: not a line that this tool has written"):
        Ledger(path)


@pytest.mark.parametrize(
    ("event", "found"),
    [
        (verdict.Notice("every configuration has …"), None),
        (verdict.Differed("decision (scheduled)", 3, "small", 1.0, "f.json"), "differs"),
        (verdict.Progress("search", 1, 60, 100), None),
        (verdict.Concluded(SimpleNamespace(findings=(), fault=None)), ""),
        (verdict.Concluded(SimpleNamespace(findings=(), fault="it crashed")), "it crashed"),
    ],
)
def test_an_event_of_a_gate_is_read(event, found):
    says = unit_tests.finding_in(event)
    assert says is None if found is None else says.startswith(found)


def test_changes_that_are_not_found_rank_last():
    of_gate = [Result("V1-R05", 3.0), Result("", 1.0), Result("", 50.0)]
    row = [*unit_tests.table({GATE: of_gate})][-1]
    assert row == "| gate | 3 | 1 | > 1.0 s | 54 s | 1.11 |"
