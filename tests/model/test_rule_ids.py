"""The id of each checked rule stands at the model code that implements it."""

from pathlib import Path

import pytest

import schedproof
from schedproof.spec.catalogue import load
from schedproof.spec.systems import SYSTEMS

MODEL = Path(schedproof.__path__[0]) / "model"
OF_EVERY_SYSTEM = "ALL-"
OF_A_PROCESS = {"ALL-R02"}  # the time limit of a step: a model has no clock


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_model_names_each_rule_that_it_implements(system: str) -> None:
    code = "\n".join(path.read_text("utf-8") for path in (MODEL / system).glob("*.py"))
    rules = [rule.id for rule in load(system) if rule.checked]
    own = [rule for rule in rules if not rule.startswith(OF_EVERY_SYSTEM)]
    assert own
    assert [rule for rule in own if rule not in code] == []


def test_the_kernel_and_the_first_model_name_each_rule_of_every_system() -> None:
    paths = [*MODEL.glob("*.py"), *(MODEL / "spyre").glob("*.py")]
    code = "\n".join(path.read_text("utf-8") for path in paths)
    common = [rule.id for rule in load("spyre") if rule.id.startswith(OF_EVERY_SYSTEM)]
    assert common
    assert {rule for rule in common if rule not in code} == OF_A_PROCESS
