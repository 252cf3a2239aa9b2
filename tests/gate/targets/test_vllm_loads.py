"""What the connector offers to a real release, and how long it loads."""

from types import SimpleNamespace

import pytest

from schedproof.gate.targets.vllm_loads import Loads


def test_a_load_takes_its_steps_and_is_offered_once() -> None:
    loads = Loads()
    loads.offers["a"] = (8, 2)
    one = SimpleNamespace(request_id="a", num_tokens=10)
    assert loads.offered(one, 0, 4) == 8
    loads.begin("a")
    assert [loads.step() for _ in range(4)] == [set(), set(), {"a"}, set()]
    assert loads.offered(one, 0, 4) == 0


@pytest.mark.parametrize(
    ("tokens", "computed", "offered"), [(9, 0, 8), (9, 4, 4), (10, 0, 10), (3, 0, 0), (4, 8, 0)]
)
def test_whole_blocks_are_offered_or_all(tokens: int, computed: int, offered: int) -> None:
    loads = Loads()
    loads.offers["a"] = (tokens, 0)
    assert loads.offered(SimpleNamespace(request_id="a", num_tokens=10), computed, 4) == offered
