"""The changes that are written by hand are changes of the model as it is."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from schedproof.spec.systems import SYSTEMS

HERE = Path(__file__).parent


@pytest.fixture
def changes() -> ModuleType:
    spec = importlib.util.spec_from_file_location("changes", HERE / "changes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("system", ["spyre", "vllm", "nano_vllm", "llmservingsim"])
def test_a_system_has_at_least_sixty_changes_by_hand_and_each_can_be_made(
    system: str, changes: ModuleType
) -> None:
    assert system in SYSTEMS
    model = HERE.parents[1] / "model"
    made = [*changes.by_hand(model, system)]
    for mutant in made:
        compile(mutant.text, mutant.change.file, "exec")
        assert mutant.text != (model / mutant.change.file).read_text(encoding="utf-8")
    assert len({mutant.change for mutant in made}) == len(made) >= 60
    assert len({mutant.change[:2] for mutant in made}) == len(made)
