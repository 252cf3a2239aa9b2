"""What the search draws for a scheduler of the user's own."""

import pytest
from hypothesis import find, settings
from hypothesis.errors import NoSuchExample

from schedproof.model.systems import full_config
from schedproof.properties.generic import strategies


def priorities(order):
    config = full_config("generic", "documented", {"order": order})
    return strategies.shapes(config).map(lambda shape: shape.priority)


def test_a_scheduler_that_takes_any_order_gets_priorities():
    assert find(priorities("any"), lambda priority: priority != 0) != 0


def test_a_scheduler_in_order_of_arrival_gets_none():
    with pytest.raises(NoSuchExample):
        find(priorities("fcfs"), lambda priority: priority != 0, settings=settings(max_examples=50))
