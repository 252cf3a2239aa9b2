"""A proof about one call covers every call only if the code remembers nothing in between."""

from types import ModuleType

import pytest

from schedproof import model
from schedproof.gate.search import proofs
from schedproof.solver.smt import obligation
from schedproof.solver.smt.execution import UndecidedError
from schedproof.solver.smt.memory import PACKAGE, Memory
from schedproof.solver.smt.obligation import Obligation, discharge
from schedproof.solver.spyre.admission_sequences import ADMITS_BY, Setting
from schedproof.solver.spyre.proofs_by_rule import LIMIT, limit_lemmas
from schedproof.spec.systems import SYSTEMS

FORGETFUL = """
LIMITS = {"small": 4}

def call(number):
    own = {"number": number}
    own["more"] = number + LIMITS["small"]
    return own
"""
REMEMBERING = {
    "a dict": "KEPT = {}\ndef call(number): KEPT[number] = number",
    "a list in a tuple": "KEPT = ([],)\ndef call(number): KEPT[0].append(number)",
    "a set": "KEPT = set()\ndef call(number): KEPT.add(number)",
    "a global": "KEPT = None\ndef call(number):\n global KEPT\n KEPT = number",
    "a new global": "def call(number): globals()['KEPT'] = number",
    "a default": "def call(number, kept=[]): kept.append(number)",
    "an attribute of a function": "def call(number): call.kept = number",
    "an attribute of a class": "class Kept: pass\ndef call(number): Kept.number = number",
    "an object": "class Kept: pass\nKEPT = Kept()\ndef call(number): KEPT.number = number",
    "a closure": "def make(kept):\n return lambda number: kept.append(number)\ncall = make([])",
    "a method": "KEPT = [].append\ndef call(number): KEPT(number)",
    "a partial": "from functools import partial\ncall = partial(list.append, [])",
    "an iterator": "from itertools import count\nKEPT = count()\ndef call(number): next(KEPT)",
    "a cache": "from functools import cache\n@cache\ndef call(number): return number",
}


@pytest.fixture
def model_with(monkeypatch):
    """Return the function `call` of a module of the model with this text."""

    def make(text):
        name = f"{PACKAGE}.of_a_test"
        module = ModuleType(name)
        exec(text, vars(module))
        monkeypatch.setattr(model, "of_a_test", module, raising=False)
        return module.call

    return make


def test_code_that_changes_only_its_own_objects_remembers_nothing(model_with):
    call = model_with(FORGETFUL)
    memory = Memory()
    call(3)
    memory.check()


@pytest.mark.parametrize("kind", REMEMBERING)
def test_code_that_keeps_something_is_noticed(model_with, kind):
    call = model_with(REMEMBERING[kind])
    memory = Memory()
    call(3)
    with pytest.raises(UndecidedError, match="remembers something for later calls in of_a_test"):
        memory.check()


def test_a_lemma_on_code_that_remembers_is_not_proven(model_with):
    call = model_with(REMEMBERING["a dict"])

    def claim():
        call(3)
        return [False]

    [found] = discharge([Obligation("remembers", "It holds.", claim, lambda: [True])])
    assert (found.status, found.by) == ("unknown", "none")
    assert found.sentence == (
        "It holds. (undecided: the code remembers something for later calls in of_a_test.KEPT)"
    )


@pytest.mark.parametrize("of", ["SPY-R07", "SPY-R50"])
def test_all_models_are_imported_before_lemmas_are_made(monkeypatch, of):
    """One of them could change functions of another."""
    imported = []
    monkeypatch.setattr(obligation, "reference", imported.append)
    if of == LIMIT:
        limit_lemmas(LIMIT, Setting(ADMITS_BY["sound"], 0, 64, 512, revision="sound"), 64)
    else:
        proofs._discharge("spyre", of, 64, None)
    assert imported == [*SYSTEMS]
