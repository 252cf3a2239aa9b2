"""What the connector offers to a real release, and how long it loads and sends."""

from types import SimpleNamespace

import pytest

from schedproof.gate.targets.vllm.loads import Loads, Offer, Report


def test_a_load_takes_its_steps_and_is_offered_once():
    loads = Loads()
    loads.offers["a"] = Offer(8, 2)
    one = SimpleNamespace(request_id="a", num_tokens=10)
    assert loads.offered(one, 0, 4) == 8
    loads.begin("a", 8, 8)
    nothing = Report({}, set())
    reports = [loads.step() for _ in range(4)]
    assert reports == [nothing, nothing, Report({"a": 8}, set()), nothing]
    assert loads.offered(one, 0, 4) == 0


@pytest.mark.parametrize(
    ("tokens", "computed", "offered"), [(9, 0, 8), (9, 4, 4), (10, 0, 10), (3, 0, 0), (4, 8, 0)]
)
def test_whole_blocks_are_offered_or_all(tokens, computed, offered):
    loads = Loads()
    loads.offers["a"] = Offer(tokens, 0)
    assert loads.offered(SimpleNamespace(request_id="a", num_tokens=10), computed, 4) == offered


@pytest.mark.parametrize(("fails_at", "right"), [(None, 12), (0, 4), (6, 6), (20, 12)])
def test_of_a_load_that_fails_what_was_there_before_is_right(fails_at, right):
    """Twelve tokens are covered, of which eight are loaded behind four from the prefix cache."""
    loads = Loads()
    loads.offers["a"] = Offer(12, 0, fails_at)
    loads.begin("a", 12, 8)
    assert loads.step().landed == {"a": right}


def test_an_answer_is_deferred_so_many_times():
    loads = Loads()
    loads.deferrals["a"] = 2
    assert [loads.defers("a") for _ in range(4)] == [True, True, False, False]
    assert not loads.defers("b")


def test_blocks_are_sent_unless_the_client_gave_up_or_the_load_has_failed():
    loads = Loads()
    loads.send_steps = {"a": 1, "b": 1}
    assert loads.ended("a", "FINISHED_LENGTH_CAPPED")
    assert not loads.ended("b", "FINISHED_ABORTED")
    loads.send_steps["d"] = 1
    assert not loads.ended("d", "FINISHED_ERROR")
    assert not loads.ended("c", "FINISHED_STOPPED")
    assert [loads.step().sent for _ in range(3)] == [set(), {"a"}, set()]
