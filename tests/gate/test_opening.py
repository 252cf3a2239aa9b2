"""From the word on the command line to a revision."""

import sys
from pathlib import Path

import pytest

from schedproof.gate.targets.opening import default_revision, default_system, opened
from schedproof.gate.targets.pipe import AHEAD
from schedproof.model.systems import full_config
from schedproof.model.target import ask_ahead


@pytest.mark.parametrize(
    ("spec", "revision"),
    [
        ("sendnn-inference==2.1.2", "2.1.2"),
        ("sendnn-inference==2.1.1", "2.1.2"),
        ("sendnn-inference==2.5.2", "2.5.2"),
        ("sendnn-inference==2.6.3", "2.5.2"),
        ("sendnn-inference==2.0.1", "documented"),
        ("vllm-spyre==1.10.0", "documented"),
        ("vllm==0.28.0", "documented"),
        ("model", None),
        ("toys:Toy", None),
        ("cmd:python toy.py", None),
    ],
)
def test_a_release_is_held_to_the_model_that_decides_as_it_does(
    spec: str, revision: str | None
) -> None:
    assert default_revision(spec) == revision


@pytest.mark.parametrize(
    ("spec", "system"),
    [
        ("vllm==0.28.0", "vllm"),
        ("vllm-spyre==1.10.0", "spyre"),
        ("sendnn-inference==2.6.3", "spyre"),
        ("model", "spyre"),
        ("toys:Toy", "spyre"),
    ],
)
def test_a_release_says_which_system_is_meant(spec: str, system: str) -> None:
    assert default_system(spec) == system


FACTORY = """
from schedproof.model.target import ModelTarget
def make(): return ModelTarget()
"""


@pytest.mark.parametrize(
    ("spec", "ahead"),
    [
        ("toy_to_open:make", AHEAD),
        (f"cmd:{sys.executable} -m schedproof serve toy_to_open:make", 1),
        ("model", 1),
    ],
)
def test_only_a_process_of_ours_is_asked_for_several_steps_at_once(
    spec: str, ahead: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "toy_to_open.py").write_text(FACTORY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with opened(spec, step_limit=60.0, offline=True, report=lambda _: None) as there:
        target = there.target
        assert target.start("spyre", "sound", full_config("spyre", "sound", {}))["ok"]
        target.add({"id": "a", "prompt": [["a", 5]], "max_tokens": 30, "output_len": 30})
        assert ask_ahead(target, 100) == ahead
        emitted = [target.step()["step"]["emitted"] for _ in range(40)]
        assert emitted == [{"a": 1}] * 30 + [{}] * 10
