"""The GitHub Action and the pre-commit hooks: they call what there is, and inputs are data."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from schedproof.gate.cli.app import main

ROOT = Path(__file__).resolve().parents[1]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
EXAMPLES = ROOT / "examples"


# Python imports it when it starts.
FEW_RUNS = """
from schedproof.gate.judging.profiles import PROFILES, Profile
from schedproof.gate.targets import probe
PROFILES["quick"], probe.SCALES = Profile(4, 4, 8, 2_000), ("small",)
"""


def step(name):
    [found] = [each for each in ACTION["runs"]["steps"] if each.get("name") == name]
    return found


def gated(folder, **inputs):
    """The script of the gate's step, with these inputs; exit code and output."""
    defaults = {
        name: str(declared.get("default", "")) for name, declared in ACTION["inputs"].items()
    }
    assert inputs.keys() <= defaults.keys()
    given = defaults | {"python": sys.executable} | inputs
    env = {
        name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: given[found[1]], value)
        for name, value in step("Gate")["env"].items()
    }
    outputs = {"GITHUB_OUTPUT": str(folder / "output"), "GITHUB_STEP_SUMMARY": str(folder / "sum")}
    (folder / "python").mkdir(exist_ok=True)
    (folder / "python" / "sitecustomize.py").write_text(FEW_RUNS)
    outputs["PYTHONPATH"] = str(folder / "python")
    ran = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", step("Gate")["run"]],
        cwd=folder,
        env={**os.environ, **env, **outputs, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.returncode, ran.stdout + ran.stderr


def test_no_input_is_ever_part_of_a_script():
    for each in ACTION["runs"]["steps"]:
        assert "${{" not in each.get("run", "")


def test_what_runs_is_pinned():
    for each in ACTION["runs"]["steps"]:
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", each.get("uses", "a/b@" + "0" * 40))
    locked, own = [
        line for line in step("Install schedproof")["run"].splitlines() if "pip " in line
    ]
    assert "--require-hashes --requirement" in locked
    assert "--no-deps" in own
    lock = (ROOT / "requirements.lock").read_text()
    for dependency in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "dependencies"
    ]:
        assert re.search(rf"^{re.split('[>=<]', dependency)[0]}==", lock, re.MULTILINE)


def test_every_input_is_used():
    text = (ROOT / "action.yml").read_text()
    for name in ACTION["inputs"]:
        assert f"inputs.{name} " in text


def test_the_page_of_a_gate_is_in_the_artifact():
    kept = step("Keep what was found")
    assert kept["with"]["path"] == "${{ inputs.out }}"
    assert '--html "$OUT/' in step("Gate")["run"]


@pytest.mark.slow
def test_a_gate_of_the_model_writes_its_reports_and_names_them(tmp_path):
    code, out = gated(tmp_path, target="model")
    assert (code, "conforms" in out) == (0, True), out
    named = dict(line.split("=") for line in (tmp_path / "output").read_text().splitlines())
    assert json.loads((tmp_path / named["verdict"]).read_text())["exit_code"] == 0
    assert json.loads((tmp_path / named["sarif"]).read_text())["version"] == "2.1.0"
    assert "<h1>" in (tmp_path / named["page"]).read_text()
    assert (tmp_path / named["comment"]).read_text().startswith("## schedproof: ")
    assert "conforms" in (tmp_path / "sum").read_text()


@pytest.mark.slow
def test_a_gate_that_refuses_leaves_no_report_of_an_earlier_one(tmp_path):
    reports = tmp_path / "schedproof-out" / "reports"
    reports.mkdir(parents=True)  # from a cache
    for name in ("verdict.json", "verdict.sarif", "verdict.xml", "report.html", "comment.md"):
        (reports / name).write_text("conforms")
    code, out = gated(tmp_path, target="no target")
    assert code == 2, out
    assert "conforms" not in [file.read_text() for file in reports.iterdir()]


@pytest.mark.slow
@pytest.mark.parametrize(
    "target", ["$(touch hacked)", "x; touch hacked", "--help", "`touch hacked`"]
)
def test_a_hostile_target_is_a_word_and_nothing_else(tmp_path, target):
    code, out = gated(tmp_path, target=target)
    assert code == 2, out
    assert not (tmp_path / "hacked").exists()


@pytest.mark.parametrize("out", ["x\nverdict=/etc/passwd", "", "--help"])
def test_a_folder_that_would_forge_an_output_or_is_none_is_refused(tmp_path, out):
    assert gated(tmp_path, out=out) == (2, "schedproof: out: valid: the name of a folder\n")
    assert not (tmp_path / "output").exists()


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: str(hook["id"]))
def test_a_hook_calls_a_command_that_there_is(hook, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [*hook["entry"].split(), "--help"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert "Usage: schedproof" in capsys.readouterr().out


@pytest.mark.slow
def test_what_a_red_night_found_is_replayed_first_in_the_next(tmp_path):
    (tmp_path / "schedproof-out").mkdir()  # an empty repository: no corpus, no deviations
    night = {"target": "model", "system": "spyre", "revision": "documented", "rule": "SPY-R07"}
    code, out = gated(tmp_path, **night, corpus="schedproof-out")
    assert code == 1, out
    found = [*(tmp_path / "schedproof-out").glob("SPY-R07-*.json")]
    assert found
    code, out = gated(tmp_path, **night, corpus="schedproof-out", seed="2")
    assert code == 1, out
    data = json.loads((tmp_path / "schedproof-out/reports/verdict.json").read_text())
    first = data["engines"][0]
    assert (first["name"], first["runs"]) == ("own corpus", len(found))


@pytest.mark.slow
def test_every_input_reaches_the_gate(tmp_path):
    (tmp_path / "ours.py").write_text("RULES = 3\n")
    given = {"target": "model", "system": "generic", "jobs": "2", "step-limit": "5"}
    code, out = gated(
        tmp_path, **given, rule="GEN-*", exclude="GEN-R04", path="", **{"extra-rules": ""}
    )
    assert code == 0, out
    assert "excluded       GEN-R04" in out
    code, out = gated(tmp_path, **given | {"extra-rules": "ours.py"})
    assert code == 2
    assert "ours.py: RULES is 3" in out
    code, out = gated(tmp_path, **given, config="\nnum_blocks=a b\n", base="model")
    assert "--config: $.config.num_blocks: 'a b'" in out
    code, out = gated(tmp_path, **given, base="nothing")
    assert "TARGET 'nothing'" in out
    code, out = gated(tmp_path, **given, **{"time-limit": "0"})
    assert "--time-limit: 0; valid" in out
    code, out = gated(tmp_path, **given, **{"scheduler-cls": "x"})
    assert "--scheduler-cls" in out
    code, out = gated(tmp_path, **given | {"memory-limit": "1"})
    assert "--memory-limit: 1; valid" in out


def test_the_cache_goes_by_the_version_of_the_action_and_the_target(tmp_path):
    script = step("Install schedproof")["run"].splitlines()
    (tmp_path / "gate" / "targets").mkdir(parents=True)
    digests = []
    asked = (("1", "vllm==0.28.0"), ("2", "vllm==0.28.0"), ("2", "vllm==0.28.0"), ("2", "cmd:a, b"))
    for version, target in asked:
        (tmp_path / "pyproject.toml").write_text(version)
        (tmp_path / "gate" / "targets" / "packages.txt").write_text("a==1\n")
        output = tmp_path / "output"
        output.unlink(missing_ok=True)
        ran = subprocess.run(
            ["bash", "-e", "-c", "\n".join(line for line in script if "pip install" not in line)],
            env={
                **os.environ,
                **{"SOURCE": str(tmp_path), "GITHUB_OUTPUT": str(output), "TARGET": target},
            },
            check=False,
        )
        assert ran.returncode == 0
        digests.append(output.read_text())
    assert digests[0] != digests[1] == digests[2] != digests[3]
    assert re.fullmatch(r"digest=[0-9a-f]{16}\n", digests[3])
    [cache] = [each for each in ACTION["runs"]["steps"] if "actions/cache" in each.get("uses", "")]
    assert "steps.install.outputs.digest" in cache["with"]["key"]
    assert "inputs." not in cache["with"]["key"]  # a comma is not valid there


def test_the_examples_use_inputs_and_hooks_that_there_are():
    text = (EXAMPLES / "github" / "schedproof.yml").read_text()
    workflow = yaml.safe_load(text)
    assert "@main" not in text
    steps = [
        each for each in workflow["jobs"]["gate"]["steps"] if "/schedproof@" in each.get("uses", "")
    ]
    assert len(steps) == 2
    for taken in steps:
        assert taken["with"].keys() <= ACTION["inputs"].keys()
    config = yaml.safe_load((EXAMPLES / "pre-commit-config.yaml").read_text())
    [repository] = config["repos"]
    assert {hook["id"] for hook in repository["hooks"]} <= {hook["id"] for hook in HOOKS}
