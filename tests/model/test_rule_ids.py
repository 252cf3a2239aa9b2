"""The id of each checked rule stands at the model code that implements it."""

from pathlib import Path

import pytest

import schedproof
from schedproof.spec.catalogue import load
from schedproof.spec.systems import SYSTEMS

MODEL = Path(schedproof.__path__[0]) / "model"
OF_EVERY_SYSTEM = "ALL-"  # these rules are about targets, not about one document's decisions


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_model_names_each_rule_that_it_implements(system: str) -> None:
    code = "\n".join(path.read_text("utf-8") for path in (MODEL / system).glob("*.py"))
    rules = [rule.id for rule in load(system) if rule.checked]
    own = [rule for rule in rules if not rule.startswith(OF_EVERY_SYSTEM)]
    assert own
    assert [rule for rule in own if rule not in code] == []
