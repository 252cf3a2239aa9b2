"""Every rule with a decision is in the catalogue, and what it claims is what is shown."""

import pytest

from schedproof.solver.smt.obligation import Obligation
from schedproof.solver.spyre.proofs_by_rule import PROOFS
from schedproof.spec.catalogue import load


def test_every_rule_is_in_the_catalogue():
    assert PROOFS.keys() <= {rule.id for rule in load("spyre")}


@pytest.mark.slow
@pytest.mark.parametrize("rule", PROOFS)
def test_a_decision_has_lemmas_with_names_and_sentences_and_counterexamples_to_replay(rule):
    proof = PROOFS[rule]
    for block in (None, 64):
        found = proof.obligations(block)
        assert all(isinstance(one, Obligation) for one in found)
        assert len({one.name for one in found}) == len(found)
        assert all(one.sentence.endswith(".") for one in found)
    for make in proof.counterexamples.values():
        assert make() is not None
