"""The catalogue of LLMServingSim: every row of its page and its code, checked or with a reason."""

import pytest

from schedproof.properties.rules.registry import applies, predicates_of
from schedproof.spec import catalogue
from schedproof.spec.catalogue import Rule

ROWS = [f"LSS-R{number:02}" for number in range(1, 35)]
PROMISES = [f"LSS-P{number:02}" for number in range(1, 4)]
PAGE_ALONE = {"LSS-R18", "LSS-R08", "LSS-P01", "LSS-P02", "LSS-R09", "LSS-R23"}
HEAD_ALONE = {"LSS-R30", "LSS-R31", "LSS-R34"}
# What no step shows: the command line, the main loop, the pipeline, other instances.
NOTHING_STANDS_IN = {*("LSS-R15", "LSS-R19", "LSS-R20", "LSS-R21", "LSS-R26", "LSS-R29")}
# Where page and code disagree, or agree only under a condition.
DIVERGING = {
    *("LSS-R02", "LSS-R04", "LSS-R05", "LSS-R06", "LSS-R07", "LSS-R08", "LSS-R09", "LSS-R14"),
    *("LSS-R15", "LSS-R16", "LSS-R18", "LSS-R20", "LSS-R22", "LSS-R23", "LSS-R25", "LSS-R27"),
    *("LSS-R29", "LSS-R32", "LSS-R33", "LSS-P01", "LSS-P03"),
}


@pytest.fixture(scope="module")
def rules() -> tuple[Rule, ...]:
    return tuple(rule for rule in catalogue.load("llmservingsim") if rule.id.startswith("LSS-"))


def test_every_row_and_every_promise_is_a_rule(rules):
    assert sorted(rule.id for rule in rules) == sorted(ROWS + PROMISES)


def test_checked_rules_have_a_predicate_and_the_others_a_reason(rules):
    for rule in rules:
        assert rule.checked == (rule.id in predicates_of("llmservingsim")), rule.id
        assert bool(rule.witness) == rule.checked == (not rule.unchecked), rule.id
    assert sum(rule.checked for rule in rules) == 24


def test_rules_without_a_predicate_come_last_and_by_number(rules):
    checked = [rule.checked for rule in rules]
    assert checked == sorted(checked, reverse=True)
    others = [rule.id for rule in rules if not rule.checked]
    assert others == sorted(others)


def test_the_page_and_the_code_have_rules_of_their_own(rules):
    page = {rule.id for rule in rules if not applies(rule, "head")}
    head = {rule.id for rule in rules if not applies(rule, "documented")}
    assert (page, head) == (PAGE_ALONE, HEAD_ALONE)


def test_who_stands_in_for_a_rule_is_checked(rules):
    checked = {rule.id for rule in catalogue.load("llmservingsim") if rule.checked}
    for rule in rules:
        assert checked.issuperset(rule.stands_in), rule.id
    alone = {rule.id for rule in rules if rule.unchecked and not rule.stands_in}
    assert alone == NOTHING_STANDS_IN


def test_divergences_are_known_of_exactly_these_rules_and_say_something_else(rules):
    assert {rule.id for rule in rules if rule.divergences} == DIVERGING
    for rule in rules:
        assert all(row.says.endswith(".") and row.says != rule.says for row in rule.divergences)


def test_a_divergence_of_what_is_no_release_yet_is_known_of_it(rules):
    [rule] = catalogue.select(rules, ["LSS-R09"])
    assert rule.divergence_of("after 1.1.0") is rule.divergence_of("1.1.0") is rule.divergences[0]
    assert rule.divergence_of("after 1.0.0") is None
    [rule] = catalogue.select(rules, ["LSS-R33"])
    assert rule.divergence_of("1.1.0") is None
    assert rule.divergence_of("after 1.1.0") is rule.divergences[0]


def test_no_title_and_no_sentence_stands_for_two_rules():
    every = catalogue.load("llmservingsim")
    for words in ([rule.says for rule in every], [rule.title for rule in every]):
        assert len(set(words)) == len(words)
