"""The catalogue of nano-vLLM: every row of the deck, checked or with a reason."""

import pytest

from schedproof.properties.nano_vllm.predicates import PREDICATES
from schedproof.properties.rules.registry import predicates_of
from schedproof.spec import catalogue

ROWS = [f"NAN-R{number:02}" for number in range(1, 48)]
# What nothing else can show: a key, the model runner's, bytes, another system, a boundary.
NOTHING_STANDS_IN = ["NAN-R25", "NAN-R44", "NAN-R45", "NAN-R46", "NAN-R47"]
# Where the release, or what is older than it, does otherwise than the deck.
DIFFERS = {
    "0.2.0": ["R03", "R04", "R09", "R12", "R24", "R25", "R40", "R41"],
    "before 0.2.0": ["R08", "R35", "R36", "R37", "R38"],
    "all releases": ["R16", "R20", "R31", "R39", "R43", "R44", "R45", "R46"],
}


@pytest.fixture(scope="module")
def rules():
    return tuple(rule for rule in catalogue.load("nano_vllm") if not rule.id.startswith("ALL-"))


def test_every_row_of_the_deck_is_a_rule(rules):
    assert sorted(rule.id for rule in rules) == ROWS


def test_checked_rules_have_a_predicate_and_the_others_a_reason(rules):
    for rule in rules:
        assert rule.checked == (rule.id in PREDICATES), rule.id
        assert bool(rule.witness) == rule.checked == (not rule.unchecked), rule.id
    assert sum(rule.checked for rule in rules) == len(PREDICATES) == 23


def test_checked_rules_come_first_and_the_others_by_number(rules):
    unchecked = [rule.id for rule in rules if not rule.checked]
    assert [rule.id for rule in rules[23:]] == unchecked == sorted(unchecked)


def test_the_predicates_are_those_that_runs_are_judged_by():
    assert PREDICATES.items() <= predicates_of("nano_vllm").items()


def test_who_stands_in_for_a_rule_is_checked_or_leads_to_one_that_is(rules):
    by_id = {rule.id: rule for rule in catalogue.load("nano_vllm")}
    for rule in rules:
        for name in rule.stands_in:
            one = by_id[name]
            assert one.checked or all(by_id[other].checked for other in one.stands_in), rule.id
            assert one.checked or one.stands_in, rule.id
    alone = [rule.id for rule in rules if rule.unchecked and not rule.stands_in]
    assert alone == NOTHING_STANDS_IN


def test_the_sides_of_a_divergence_are_kept(rules):
    seen = {releases: [] for releases in DIFFERS}
    for rule in rules:
        for divergence in rule.divergences:
            seen[divergence.releases].append(rule.id.removeprefix("NAN-"))
    assert {releases: sorted(found) for releases, found in seen.items()} == DIFFERS


def test_only_the_memory_gate_of_the_deck_belongs_to_one_revision(rules):
    assert {rule.id: rule.revisions for rule in rules if rule.revisions != ("*",)} == {
        "NAN-R09": ("documented",)
    }


def test_lockstep_belongs_to_the_release_and_not_to_the_deck():
    [rule] = [rule for rule in catalogue.load("nano_vllm") if rule.id == "ALL-R07"]
    assert rule.revisions == ("0.2.0",)
