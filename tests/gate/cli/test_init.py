"""`schedproof init`: what it writes works as it is written, and nothing that is there is lost."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from schedproof.gate.cli.init import texts
from schedproof.gate.judging.profiles import PROFILES, Profile
from schedproof.gate.targets import probe as probing
from schedproof.model.scenario import Request, Scenario
from schedproof.model.systems import full_config
from schedproof.properties.checking.replay import replay
from schedproof.spec.catalogue import load, select
from schedproof.spec.systems import SYSTEMS

from ...command_line import runner

WRITTEN = [
    "schedproof_adapter.py",
    "pyproject.toml",
    "schedproof-known.toml",
    "schedproof-corpus/README.md",
    ".github/workflows/schedproof.yml",
    ".pre-commit-config.yaml",
]
ADAPTER, PROJECT, *_, HOOK = WRITTEN


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(probing, "SCALES", ("small",))
    for name in ("quick", "ci"):
        monkeypatch.setitem(PROFILES, name, Profile(10, 20, 20, corpus_steps=0))
    return runner(monkeypatch, capfd)


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_adapter_of_each_system_is_sound_and_conforms(run, system):
    result = run("init", "--system", system)
    assert result.code == 0, result
    assert [line.split()[1] for line in result.out.splitlines()[:6]] == WRITTEN
    examined = run("doctor")
    assert "nothing wrong" in examined.out, examined
    # The page docs/tutorials/own-scheduler.md runs the default profile.
    judged = run("gate", "--profile", "quick")
    assert judged.code == 0, judged
    assert "my scheduler 0 against" in judged.out
    assert run("corpus", "list").out == "0 entries\n"


@pytest.mark.slow
def test_a_fault_in_the_scheduler_that_it_writes_is_found(run, tmp_path):
    run("init")
    file = tmp_path / "schedproof_adapter.py"
    text = file.read_text(encoding="utf-8")
    seats = "len(self.running) < self.max_num_seqs"
    assert seats in text
    file.write_text(text.replace(seats, seats.replace("<", "<=")), encoding="utf-8")
    found = run("gate")
    assert found.code == 1
    assert "BROKEN         GEN-R02  sequence cap" in found.out
    kept = run("corpus", "add", *map(str, Path("schedproof-out").glob("GEN-R02-*.json")))
    assert kept.code == 0, kept
    assert "GEN-R02" in run("corpus", "list").out


def test_what_is_there_is_kept(run, tmp_path):
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "mine"\n', encoding="utf-8")
    (tmp_path / ".pre-commit-config.yaml").write_text("repos: []\n", encoding="utf-8")
    result = run("init")
    assert "kept    .pre-commit-config.yaml" in result.out
    assert (tmp_path / ".pre-commit-config.yaml").read_text() == "repos: []\n"
    assert (tmp_path / "pyproject.toml").read_text().startswith('[project]\nname = "mine"\n\n[tool')
    again = run("init")
    assert (again.code, again.out) == (2, "")
    assert "pyproject.toml already has [tool.schedproof]" in again.err


def linked(path, to):
    path.symlink_to(to)


@pytest.mark.parametrize(
    ("name", "make", "says"),
    [
        (ADAPTER, lambda path: linked(path, path.name), f"{ADAPTER}: not a regular file"),
        (ADAPTER, lambda path: linked(path, "nowhere"), f"{ADAPTER}: not a regular file"),
        (ADAPTER, Path.mkdir, f"{ADAPTER}: not a regular file"),
        (HOOK, os.mkfifo, f"{HOOK}: not a regular file; remove"),
        (PROJECT, lambda path: path.write_text("tool = 3"), f"{PROJECT}: [tool.schedproof] cannot"),
        (PROJECT, lambda path: path.write_text("tool = {other = 1}"), f"{PROJECT}: [tool.schedp"),
        (PROJECT, os.mkfifo, f"{PROJECT}: not a regular file"),
        (PROJECT, lambda path: path.write_bytes(b"\xff"), f"{PROJECT}: byte 0 is not UTF-8"),
    ],
)
def test_what_cannot_be_kept_or_extended_is_one_line_and_nothing_is_written(
    run, tmp_path, name, make, says
):
    make(tmp_path / name)
    result = run("init")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"schedproof: {says}")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_file_that_is_kept_is_not_read_and_one_that_is_extended_keeps_its_lines(run, tmp_path):
    (tmp_path / ADAPTER).write_bytes(b"\xff\xfe")
    (tmp_path / PROJECT).write_bytes(b'[project]\r\nname = "mine"\r\n')
    (tmp_path / PROJECT).chmod(0o640)
    (tmp_path / "elsewhere").write_text("repos: []\n")
    linked(tmp_path / HOOK, "elsewhere")
    result = run("init")
    assert f"kept    {ADAPTER}" in result.out
    assert f"kept    {HOOK}" in result.out
    text = (tmp_path / PROJECT).read_bytes()
    assert text.startswith(b'[project]\r\nname = "mine"\r\n\r\n[tool.schedproof]\r\n')
    assert b"\n" not in text.replace(b"\r\n", b"")
    assert (tmp_path / PROJECT).stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--system", "vlm"], "--system: 'vlm' is not a system"),
        (["--revision", "9"], "--revision: '9' is not a revision of generic"),
        (["--system", "spyre", "--revision", "9"], "--revision: '9' is not a revision of spyre"),
    ],
)
def test_a_wrong_option_writes_nothing(run, tmp_path, words, says):
    result = run("init", *words)
    assert result.code == 2
    assert says in result.err
    assert [*tmp_path.iterdir()] == []


def test_a_file_in_the_place_of_a_folder_is_named(run, tmp_path):
    (tmp_path / "schedproof-corpus").write_text("")
    result = run("init")
    assert result.code == 2
    assert "schedproof-corpus: cannot be created" in result.err


@pytest.mark.slow
def test_the_workflow_runs_commands_that_there_are(tmp_path):
    workflow = yaml.safe_load(texts("generic", "documented")[".github/workflows/schedproof.yml"])
    steps = workflow["jobs"]["gate"]["steps"]
    assert [step for step in steps if step.get("uses", "").startswith("actions/cache/save")]
    lines = [line for step in steps for line in step.get("run", "").splitlines()]
    gates = [line.replace("${{ github.run_number }}", "3") for line in lines if "gate" in line]
    assert len(gates) == 2
    for line in gates:
        words = [sys.executable, "-m", *line.split(), "--help"]
        assert subprocess.run(words, cwd=tmp_path, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("url", ["https://example.org/schedproof", "file:///wheels", None])
def test_the_workflow_installs_no_package_of_this_name_from_an_index(monkeypatch, url):
    version = {"url": url, "vcs_info": {"commit_id": "abc"}}
    installed = SimpleNamespace(read_text=lambda _: json.dumps(version) if url else None)
    monkeypatch.setattr("importlib.metadata.distribution", lambda _: installed)
    workflow = yaml.safe_load(texts("generic", "documented")[".github/workflows/schedproof.yml"])
    [install] = [step["run"] for step in workflow["jobs"]["gate"]["steps"] if "run" in step][:1]
    if url and url.startswith("https"):
        assert install == f'pip install "git+{url}@abc"'
    else:
        assert "pip" not in install
        assert subprocess.run(["bash", "-c", install], capture_output=True, check=False).returncode


def test_a_nightly_gate_replays_the_corpus_and_what_earlier_nights_found(tmp_path):
    for folder, name in (("schedproof-corpus", "a"), ("schedproof-out", "b")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.json").write_text("{}")
    program = tmp_path / "schedproof"
    program.write_text('#!/bin/bash\nls "${@: -1}"\n')
    program.chmod(0o755)
    workflow = yaml.safe_load(texts("generic", "documented")[".github/workflows/schedproof.yml"])
    nightly = [step["run"] for step in workflow["jobs"]["gate"]["steps"] if "nightly" in str(step)]
    script = nightly[0].replace("${{ github.run_number }}", "3")
    path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for _ in range(2):
        ran = subprocess.run(
            ["bash", "-e", "-c", script], cwd=tmp_path, env=path, capture_output=True, check=True
        )
        assert ran.stdout.split() == [b"a.json", b"b.json"]


def test_the_hook_calls_a_command_that_there_is():
    [hook] = yaml.safe_load(texts("generic", "documented")[".pre-commit-config.yaml"])["repos"][0][
        "hooks"
    ]
    assert hook["entry"] == "schedproof gate"
    assert hook["pass_filenames"] is False


def test_the_adapter_names_a_step_rightly_when_a_scheduler_preempts():
    names: dict[str, Any] = {"__name__": "adapter"}
    exec(texts("generic", "documented")["schedproof_adapter.py"], names)

    class Preempts(names["Scheduler"]):
        """Takes everything from the last request in its fifth step."""

        steps, preempted = 0, ()

        def schedule(self):
            self.steps += 1
            self.preempted = ()
            if self.steps != 5:
                return super().schedule()
            victim = self.running.pop()
            victim.computed, self.preempted = 0, (victim.id,)
            self.waiting.insert(0, victim)
            return {sequence: sequence.length - sequence.computed for sequence in self.running}

    class Target(names["Target"]):
        def start(self, system, revision, config):
            reply = super().start(system, revision, config)
            self.scheduler = Preempts(8, 64)
            return reply

        def step(self):
            reply = super().step()
            reply["step"]["preempted"] = [*self.scheduler.preempted]
            return reply

    config = full_config("generic", "documented", {"enable_prefix_caching": False})
    requests = tuple(
        Request(id=name, arrival=0, prompt=((name, 6),), max_tokens=9) for name in ("a", "b")
    )
    scenario = Scenario(system="generic", revision="documented", config=config, requests=requests)
    kinds: list[str] = []
    outcome = replay(
        Target(), scenario, select(load("generic"), ["ALL-R13"]), lambda _, s: kinds.append(s.kind)
    )
    assert outcome.broken == []
    assert kinds[:7] == ["prefill", *["decode"] * 4, "mixed", "decode"]
