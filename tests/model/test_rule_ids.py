"""The id of each checked rule stands at the model code that keeps it."""

from pathlib import Path

import pytest

import schedproof
from schedproof.spec.catalogue import load
from schedproof.spec.systems import SYSTEMS

MODEL = Path(schedproof.__path__[0]) / "model"
OF_EVERY_SYSTEM = "ALL-"


def unnamed(system, *, of_every_system):
    """The checked rules of a system that no file of its model names."""
    code = "\n".join(path.read_text("utf-8") for path in (MODEL / system).glob("*.py"))
    rules = [rule.id for rule in load(system) if rule.checked]
    rules = [rule for rule in rules if rule.startswith(OF_EVERY_SYSTEM) == of_every_system]
    assert rules
    return [rule for rule in rules if rule not in code]


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_model_names_each_rule_of_its_document(system):
    assert unnamed(system, of_every_system=False) == []


@pytest.mark.parametrize("system", ["spyre", "vllm", "nano_vllm", "llmservingsim"])
def test_the_model_names_each_rule_of_every_system(system):
    assert unnamed(system, of_every_system=True) == []
