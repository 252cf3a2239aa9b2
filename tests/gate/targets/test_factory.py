"""The process of a target: what it inherits from the command that judges it."""

import pytest

from schedproof.gate.targets.factory import opened
from schedproof.gate.targets.target_spec import parse_target
from schedproof.model.faults import TargetCrashed
from schedproof.model.systems import full_config
from schedproof.properties.checking.session import Session

ASSERTS = """
from schedproof.model.target import ModelTarget

class Target(ModelTarget):
    def start(self, system, revision, config):
        assert system != "generic", "an invariant of the engine"
        return super().start(system, revision, config)
"""


def test_assertions_of_a_target_are_on_although_the_environment_turns_them_off(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("PYTHONOPTIMIZE", "1")
    (tmp_path / "mine.py").write_text(ASSERTS)
    config = full_config("generic", "documented", {})
    with (
        opened(parse_target("mine:Target"), folder=tmp_path, imports=[str(tmp_path)]) as there,
        pytest.raises(TargetCrashed, match="an invariant of the engine"),
    ):
        Session(there.target, "generic", "documented", config, [])
