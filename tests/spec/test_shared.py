"""The topics that systems share name rules that there are, each in its own system."""

import pytest

from schedproof.spec import catalogue, shared
from schedproof.spec.systems import SYSTEMS


@pytest.mark.parametrize("topic", shared.topics(), ids=lambda topic: topic.title)
def test_a_topic_names_rules_of_two_systems_or_more_and_where_they_differ(topic):
    assert len(topic.rules) > 1
    assert topic.differs.endswith(".")
    for system, ids in topic.rules.items():
        known = {rule.id: rule for rule in catalogue.load(system)}
        assert known.keys() >= set(ids), (system, ids)
        assert any(known[rule].checked for rule in ids), (system, ids)


def test_conservation_order_and_budget_are_among_them():
    titles = [topic.title for topic in shared.topics()]
    assert len(set(titles)) == len(titles)
    assert {"no request lost", "first come, first served", "bound of a step"} <= set(titles)
    for topic in shared.topics():
        if topic.title in {"no request lost", "first come, first served", "bound of a step"}:
            assert topic.rules.keys() == set(SYSTEMS)
