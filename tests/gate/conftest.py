import io
import os
import shlex
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from schedproof.gate.console import output
from schedproof.gate.judging.context import GateContext, GateOptions
from schedproof.gate.judging.profiles import PROFILES, Profile
from schedproof.gate.judging.verdict import Event
from schedproof.gate.targets import probe
from schedproof.gate.targets.target_spec import TargetSpec
from schedproof.spec.catalogue import load, select

from ..command_line import runner
from .toys import TOYS

RULES = load("spyre")


@pytest.fixture
def run(monkeypatch, capfd):
    """The command line in this process."""
    return runner(monkeypatch, capfd)


@pytest.fixture
def gate(tmp_path, monkeypatch):
    """A gate with a small budget; its events are in `events`."""

    def make(
        target: Any, rules: str = "", *, examples: int = 12, corpus_steps: int = 0, **changes: Any
    ) -> GateContext:
        monkeypatch.setitem(PROFILES, "quick", Profile(examples, 30, 60, corpus_steps))
        asked: dict[str, Any] = {
            "spec": TargetSpec("toy", "factory", module="toy", factory="make"),
            "system": "spyre",
            "revision": "sound",
            "rules": select(RULES, rules.split()) if rules else RULES,
            "chosen": bool(rules),
            "profile_name": "quick",
            "out": tmp_path / "out",
        }
        names = {field.name for field in fields(GateOptions)}
        asked |= {name: changes.pop(name) for name in names & changes.keys()}
        report = changes.pop("report", events.append)
        return GateContext(GateOptions(**asked), target, report, **changes)

    events: list[Event] = []
    make.events = events  # type: ignore[attr-defined]
    return make


@pytest.fixture
def console(monkeypatch):
    """The console of every command, as an environment makes it; `reported.printed` reads it."""

    def make(encoding: str = "utf-8", **environment: str) -> Console:
        for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE", "COLORTERM"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        made = output.make_console()
        made.file = io.TextIOWrapper(
            io.BytesIO(), encoding, errors="backslashreplace", write_through=True
        )
        return made

    return make


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working folder, an empty cache, and so little to run that a gate takes a moment."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("SCHEDPROOF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HYPOTHESIS_STORAGE_DIRECTORY", str(tmp_path / "hypothesis"))
    monkeypatch.setenv(
        "PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    )
    monkeypatch.setattr(probe, "SCALES", ("small",))
    monkeypatch.setitem(PROFILES, "quick", Profile(4, 4, 8, corpus_steps=200))
    return here


@pytest.fixture
def toy(folder):
    """The TARGET word for a misbehaving target."""
    (folder / "toys.py").write_text(TOYS, encoding="utf-8")
    return lambda name: f"cmd:{shlex.quote(sys.executable)} toys.py {name}"
