"""The catalogue of vLLM: every row of both documents, checked or with a reason."""

import pytest

from schedproof.properties.rules.registry import predicates_of
from schedproof.spec import catalogue
from schedproof.spec.systems import SYSTEMS

SHEET = [f"V1-R{number:02}" for number in range(1, 35)]
INVARIANTS = [f"V1-I{number}" for number in range(1, 6)]
CHAPTER = [f"V1CP-R{number:02}" for number in range(1, 36)]
PROMISES = ["V1-P01"]
# What nothing else can show: line numbers, and a claim that is refuted.
NOTHING_STANDS_IN = ["V1-R18", "V1CP-R32"]


@pytest.fixture(scope="module")
def rules():
    return tuple(rule for rule in catalogue.load("vllm") if not rule.id.startswith("ALL-"))


def test_every_row_of_both_documents_and_every_promise_is_a_rule(rules):
    rows = SHEET + INVARIANTS + CHAPTER + PROMISES
    assert sorted(rule.id for rule in rules) == sorted(rows)


def test_checked_rules_have_a_predicate_and_the_others_a_reason(rules):
    for rule in rules:
        assert rule.checked == (rule.id in predicates_of("vllm")), rule.id
        assert bool(rule.witness) == rule.checked == (not rule.unchecked), rule.id
    assert sum(rule.checked for rule in rules) == 53


def test_the_five_invariants_are_checked(rules):
    checked = [rule.id for rule in rules if rule.checked and rule.id in INVARIANTS]
    assert sorted(checked) == INVARIANTS


def test_who_stands_in_for_a_rule_is_checked(rules):
    checked = {rule.id for rule in catalogue.load("vllm") if rule.checked}
    for rule in rules:
        assert checked.issuperset(rule.stands_in), rule.id
    alone = [rule.id for rule in rules if rule.unchecked and not rule.stands_in]
    assert alone == NOTHING_STANDS_IN


def test_lockstep_belongs_to_releases_and_to_what_vllm_documents():
    by_system = {
        system: rule.revisions
        for system in SYSTEMS
        for rule in catalogue.load(system)
        if rule.id == "ALL-R07"
    }
    assert by_system == {
        "spyre": ("2.1.2", "2.5.2"),
        "vllm": ("documented",),
        "nano_vllm": ("0.2.0",),
        "llmservingsim": ("head",),
    }
