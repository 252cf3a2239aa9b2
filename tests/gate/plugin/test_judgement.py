"""One gate answers all tests, on the workers of pytest-xdist, too."""

import pytest

from .project import SILENT, write_project

pytest_plugins = ["pytester"]


@pytest.mark.slow
def test_the_workers_of_a_run_share_one_gate(pytester):
    write_project(pytester.path, SILENT)
    adapter = pytester.path / "adapter.py"
    adapter.write_text("open('processes', 'a').write('x')\n" + adapter.read_text())
    words = ("-p", "no:randomly", "-k", "SPY-R22 or SPY-R02 or SPY-R09 or SPY-R35")
    result = pytester.runpytest_subprocess(*words, "-n", "2")
    result.assert_outcomes(passed=3, failed=1)
    assert (pytester.path / "processes").read_text() == "x"
    out = result.stdout.str()
    assert "BROKEN SPY-R22" in out
    assert out.count("schedproof: schedproof model of spyre") == 1
