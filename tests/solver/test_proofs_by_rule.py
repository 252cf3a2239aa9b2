"""Every rule with a decision is in the catalogue, and what it claims is what is shown."""

import pytest

from schedproof.solver.smt.obligation import Obligation
from schedproof.solver.spyre.proofs_by_rule import PROOFS as SPYRE
from schedproof.solver.vllm.proofs_by_rule import PROOFS as VLLM
from schedproof.spec.catalogue import load

PROOFS = {"spyre": (SPYRE, 64), "vllm": (VLLM, 16)}


@pytest.mark.parametrize("system", PROOFS)
def test_every_rule_is_in_the_catalogue(system):
    assert PROOFS[system][0].keys() <= {rule.id for rule in load(system)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("system", "rule"), [(system, rule) for system in PROOFS for rule in PROOFS[system][0]]
)
def test_a_decision_has_lemmas_with_names_and_sentences_and_counterexamples_to_replay(system, rule):
    proofs, size = PROOFS[system]
    for block in (None, size):
        found = proofs[rule].obligations(block)
        assert found or system == "spyre"
        assert all(isinstance(lemma, Obligation) for lemma in found)
        assert len({lemma.name for lemma in found}) == len(found)
        assert all(lemma.sentence.endswith(".") for lemma in found)
    for make in proofs[rule].counterexamples.values():
        assert make() is not None
