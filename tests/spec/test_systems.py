"""The catalogues of the systems: every row of their documents, checked or with a reason."""

import pytest

from schedproof.model.systems import config_keys, revisions_of
from schedproof.properties.rules.registry import applies, predicates_of
from schedproof.spec import catalogue
from schedproof.spec import catalogue as shared
from schedproof.spec.systems import SYSTEMS


def numbered(prefix, last, width=2):
    return [f"{prefix}{number:0{width}}" for number in range(1, last + 1)]


ROWS = {
    "vllm": [
        *numbered("V1-R", 69),
        *(
            *numbered("V1-R", 75)[69:],
            *numbered("V1-R", 88)[85:],
            *numbered("V1-R", 99)[89:],
        ),
        *(*numbered("V1-I", 5, 1), *numbered("V1CP-R", 38), "V1CP-R40", "V1-P01"),
    ],
    "nano_vllm": numbered("NAN-R", 48),
    "llmservingsim": [*numbered("LSS-R", 37), "LSS-P01", "LSS-P03"],
}
CHECKED = {"vllm": 108, "nano_vllm": 25, "llmservingsim": 30}
# What nothing else can show: line numbers, a refuted claim; a key, the model runner's, bytes,
# another system, a boundary; the pipeline's traces.
NOTHING_STANDS_IN = {
    "vllm": {"V1CP-R32"},
    "nano_vllm": {"NAN-R25", "NAN-R44", "NAN-R45", "NAN-R46", "NAN-R47"},
    "llmservingsim": {"LSS-R29"},
}
# Where the release of nano-vLLM, or what is older than it, does otherwise than the deck.
DIFFERS = {
    "0.2.0": ["R03", "R04", "R09", "R12", "R24", "R25", "R40", "R41"],
    "before 0.2.0": ["R04", "R08", "R24", "R29", "R35", "R36", "R37", "R38", "R40"],
    "all releases": ["R16", "R20", "R31", "R39", "R43", "R44", "R45", "R46"],
}
PAGE_ALONE = {"LSS-R18", "LSS-R08", "LSS-P01", "LSS-R09", "LSS-R23"}
HEAD_ALONE = {"LSS-R30", "LSS-R31", "LSS-R33", "LSS-R34"}
# Where page and code disagree, or agree only under a condition.
DIVERGING = {
    *("LSS-R02", "LSS-R04", "LSS-R05", "LSS-R06", "LSS-R07", "LSS-R08", "LSS-R09", "LSS-R14"),
    *(
        "LSS-R15",
        "LSS-R16",
        "LSS-R18",
        "LSS-R20",
        "LSS-R21",
        "LSS-R22",
        "LSS-R23",
        "LSS-R25",
        "LSS-R27",
    ),
    *(
        "LSS-R36",
        "LSS-R37",
        "LSS-R11",
        "LSS-R17",
        "LSS-R19",
        "LSS-R29",
        "LSS-R32",
        "LSS-R33",
        "LSS-P01",
        "LSS-P03",
    ),
}
each_system = pytest.mark.parametrize("system", ROWS)


def own_rules(system):
    return tuple(rule for rule in catalogue.load(system) if not rule.id.startswith("ALL-"))


@each_system
def test_every_row_of_the_documents_and_every_promise_is_a_rule(system):
    assert sorted(rule.id for rule in own_rules(system)) == sorted(ROWS[system])


@each_system
def test_checked_rules_have_a_predicate_and_the_others_a_reason(system):
    for rule in own_rules(system):
        assert rule.checked == (rule.id in predicates_of(system)), rule.id
        assert bool(rule.witness) == rule.checked == (not rule.unchecked), rule.id
    assert sum(rule.checked for rule in own_rules(system)) == CHECKED[system]


@pytest.mark.parametrize("system", ["nano_vllm", "llmservingsim"])
def test_checked_rules_come_first_and_the_others_by_number(system):
    checked = [rule.checked for rule in own_rules(system)]
    assert checked == sorted(checked, reverse=True)
    others = [rule.id for rule in own_rules(system) if not rule.checked]
    assert others == sorted(others)


@each_system
def test_who_stands_in_for_a_rule_is_checked_or_leads_to_one_that_is(system):
    by_id = {rule.id: rule for rule in catalogue.load(system)}
    for rule in own_rules(system):
        for name in rule.stands_in:
            stand_in = by_id[name]
            leads = stand_in.stands_in and all(by_id[other].checked for other in stand_in.stands_in)
            assert stand_in.checked or (leads and system == "nano_vllm"), rule.id
    alone = {rule.id for rule in own_rules(system) if rule.unchecked and not rule.stands_in}
    assert alone == NOTHING_STANDS_IN[system]


def test_the_five_invariants_of_vllm_are_checked():
    assert all(rule.checked for rule in own_rules("vllm") if rule.id.startswith("V1-I"))


def test_the_sides_of_a_divergence_of_nano_vllm_are_kept():
    seen = {releases: [] for releases in DIFFERS}
    for rule in own_rules("nano_vllm"):
        for divergence in rule.divergences:
            seen[divergence.releases].append(rule.id.removeprefix("NAN-"))
    assert {releases: sorted(ids) for releases, ids in seen.items()} == DIFFERS


def test_only_the_memory_gate_of_the_deck_belongs_to_one_revision():
    rules = own_rules("nano_vllm")
    limited = {rule.id: rule.revisions for rule in rules if rule.revisions != ("*",)}
    assert limited == {"NAN-R09": ("documented",)}


def test_the_page_and_the_code_have_rules_of_their_own():
    rules = own_rules("llmservingsim")
    page = {rule.id for rule in rules if not applies(rule, "head")}
    head = {rule.id for rule in rules if not applies(rule, "documented")}
    assert (page, head) == (PAGE_ALONE, HEAD_ALONE)


def test_divergences_are_known_of_exactly_these_rules_and_say_something_else():
    rules = own_rules("llmservingsim")
    assert {rule.id for rule in rules if rule.divergences} == DIVERGING
    for rule in rules:
        assert all(
            row.statement.endswith(".") and row.statement != rule.statement
            for row in rule.divergences
        )


def test_a_divergence_of_what_is_no_release_yet_is_known_of_it():
    [rule] = catalogue.select(own_rules("llmservingsim"), ["LSS-R09"])
    first = rule.divergences[:1]
    assert rule.divergences_of("after 1.1.0") == rule.divergences_of("1.1.0") == first
    assert rule.divergences_of("after 1.0.0") == ()
    [rule] = catalogue.select(own_rules("llmservingsim"), ["LSS-R29"])
    assert rule.divergences_of("1.1.0") == ()
    assert rule.divergences_of("after 1.1.0") == rule.divergences[:1]


def test_no_title_and_no_sentence_stands_for_two_rules():
    every = catalogue.load("llmservingsim")
    for words in ([rule.statement for rule in every], [rule.title for rule in every]):
        assert len(set(words)) == len(words)


def test_lockstep_belongs_to_releases_and_to_what_vllm_documents():
    by_system = {
        system: rule.revisions
        for system in SYSTEMS
        for rule in catalogue.load(system)
        if rule.id == "ALL-R07"
    }
    assert by_system == {
        **{"spyre": ("2.1.2", "2.5.2"), "nano_vllm": ("0.2.0",)},
        "vllm": ("documented", "0.25", "0.30", "0.31", "0.33"),
        "llmservingsim": ("head",),
    }


@pytest.mark.parametrize("topic", shared.topics(), ids=lambda topic: topic.title)
def test_a_topic_names_rules_of_two_systems_or_more_and_where_they_differ(topic):
    assert len(topic.rules) > 1
    assert topic.differs.endswith(".")
    for system, ids in topic.rules.items():
        known = {rule.id: rule for rule in catalogue.load(system)}
        assert known.keys() >= set(ids), (system, ids)
        assert any(known[rule].checked for rule in ids), (system, ids)


def test_conservation_order_and_budget_are_among_the_topics():
    by_title = {topic.title: topic for topic in shared.topics()}
    assert len(by_title) == len(shared.topics())
    for title in ("no request lost", "first come, first served", "limit of a step"):
        assert by_title[title].rules.keys() == set(SYSTEMS)


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_difference_needs_only_keys_that_its_system_has(system):
    named = {
        key for rule in catalogue.load(system) for row in rule.divergences for key in row.only_with
    }
    assert named <= {
        key for revision in revisions_of(system) for key in config_keys(system, revision)
    }
