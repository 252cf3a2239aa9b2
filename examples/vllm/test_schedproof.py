"""Judge the scheduler of this checkout of vLLM: copy this file into its `tests/v1/core`.

The test fails if the checkout breaks a rule that its base keeps. The base is `origin/main`, or the
revision in $SCHEDPROOF_BASE. Each failure is then written beside this file as a test in vLLM's own
style, which needs no schedproof. The test is skipped if the search does not end in time.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
BASE = os.environ.get("SCHEDPROOF_BASE", "origin/main")
SECONDS = 150

pytestmark = pytest.mark.cpu_test


def schedproof(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "schedproof", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_scheduler_keeps_the_rules_that_its_base_keeps(tmp_path: Path) -> None:
    found, corpus = tmp_path / "found", tmp_path / "corpus"
    target = ("--path", ROOT)
    gate = schedproof(
        *("gate", "vllm", *target, "--base", BASE, "--out", found),
        *("--profile", "quick", "--jobs", 2, "--time-limit", SECONDS),
    )
    report = gate.stdout + gate.stderr
    if gate.returncode == 1:
        files = sorted(file for file in found.glob("*.json") if not file.name.startswith("diff-"))
        kept = ("--corpus", corpus, "--no-shrink")
        schedproof("corpus", "add", *files, "--target", "vllm", *target, *kept)
        exported = HERE / "test_schedproof_findings.py"
        as_tests = ("--as", "upstream", "--corpus", corpus, "-o", exported)
        report += schedproof("corpus", "export", *as_tests).stderr
    if gate.returncode == 3:
        pytest.skip(f"inconclusive: {report}")
    assert gate.returncode == 0, report
