"""The GitHub Action and the pre-commit hooks: they call what there is, and inputs are data."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from schedproof.gate.cli.app import main

ROOT = Path(__file__).resolve().parents[1]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
EXAMPLES = ROOT / "examples"


def step(name: str) -> dict[str, Any]:
    [found] = [one for one in ACTION["runs"]["steps"] if one.get("name") == name]
    return found


def gated(folder: Path, **inputs: str) -> tuple[int, str]:
    """The script of the gate's step, with these inputs; exit code and output."""
    defaults = {name: str(one.get("default", "")) for name, one in ACTION["inputs"].items()}
    given = defaults | {"python": sys.executable} | inputs
    env = {
        name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda found: given[found[1]], value)
        for name, value in step("Gate")["env"].items()
    }
    outputs = {"GITHUB_OUTPUT": str(folder / "output"), "GITHUB_STEP_SUMMARY": str(folder / "sum")}
    ran = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", step("Gate")["run"]],
        cwd=folder,
        env={**os.environ, **env, **outputs},
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.returncode, ran.stdout + ran.stderr


def test_no_input_is_ever_part_of_a_script() -> None:
    for one in ACTION["runs"]["steps"]:
        assert "${{" not in one.get("run", "")


def test_every_input_is_used() -> None:
    text = (ROOT / "action.yml").read_text()
    for name in ACTION["inputs"]:
        assert f"inputs.{name} " in text


@pytest.mark.slow
def test_a_gate_of_the_model_writes_its_reports_and_names_them(tmp_path: Path) -> None:
    code, out = gated(tmp_path, target="model")
    assert (code, "conforms" in out) == (0, True), out
    named = dict(line.split("=") for line in (tmp_path / "output").read_text().splitlines())
    assert json.loads((tmp_path / named["verdict"]).read_text())["exit_code"] == 0
    assert json.loads((tmp_path / named["sarif"]).read_text())["version"] == "2.1.0"
    assert "conforms" in (tmp_path / "sum").read_text()


@pytest.mark.parametrize(
    "target", ["$(touch hacked)", "x; touch hacked", "--help", "`touch hacked`"]
)
def test_a_hostile_target_is_a_word_and_nothing_else(tmp_path: Path, target: str) -> None:
    code, out = gated(tmp_path, target=target)
    assert code == 2, out
    assert not (tmp_path / "hacked").exists()


@pytest.mark.parametrize("hook", HOOKS, ids=lambda one: str(one["id"]))
def test_a_hook_calls_a_command_that_there_is(
    hook: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [*hook["entry"].split(), "--help"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert "Usage: schedproof" in capsys.readouterr().out


def test_the_examples_use_inputs_and_hooks_that_there_are() -> None:
    workflow = yaml.safe_load((EXAMPLES / "github" / "schedproof.yml").read_text())
    steps = [
        one for one in workflow["jobs"]["gate"]["steps"] if "/schedproof@" in one.get("uses", "")
    ]
    assert len(steps) == 2
    for one in steps:
        assert one["with"].keys() <= ACTION["inputs"].keys()
    config = yaml.safe_load((EXAMPLES / "pre-commit-config.yaml").read_text())
    [repository] = config["repos"]
    assert {one["id"] for one in repository["hooks"]} <= {one["id"] for one in HOOKS}
