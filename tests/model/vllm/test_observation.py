"""What is seen of a step. Block 4, budget 16."""

import pytest

from schedproof.model.pool import Pool
from schedproof.model.vllm import scheduler
from schedproof.model.vllm.state import State

from .build import config, decoding, pool, waiting


@pytest.mark.parametrize(
    ("members", "kind"),
    [
        ((), "idle"),
        ((decoding("a", 5, 1, 2),), "decode"),
        ((waiting(5, name="a", computed=4, blocks=(1,)),), "prefill"),
        ((decoding("a", 5, 1, 2), waiting(5, name="b", computed=4, blocks=(3,))), "mixed"),
        # Not served, it does not count.
        ((waiting(40, name="a", computed=4, blocks=(1,)), decoding("b", 5, 2, 3)), "prefill"),
    ],
)
def test_a_step_is_of_the_kind_of_those_who_compute(members, kind):
    state = State(running=members, pool=pool(None, 3))
    assert scheduler.step(config(), state)[1]["kind"] == kind


def test_a_step_shows_the_state_after_it():
    limits = config(enable_prefix_caching=True, num_blocks=20, max_num_seqs=3)
    a = decoding("a", 5, 1, 2, content=(("s", 5),), published=1)
    b = decoding("b", 5, 1, 3, content=(("s", 5),), published=1, prefix_hit=4)
    state = State(
        (waiting(20, name="c"), waiting(3, name="d")),
        (a, b),
        Pool(20, (), 4, (), {(("s", 4),): (1,)}),
        aborted=("x",),
    )
    assert scheduler.step(limits, state)[1] == {
        "kind": "mixed",
        "scheduled": {"a": 1, "b": 1, "c": 14},
        "emitted": {"a": 1, "b": 1},
        "waiting": ["d"],
        "running": ["a", "b", "c"],
        "prefilling": ["c"],
        "preempted": [],
        "finished": {"x": "aborted"},
        "computed": {"a": 6, "b": 6, "c": 14},
        "blocks": {"a": [1, 2], "b": [1, 3], "c": [4, 5, 6, 7]},
        "prefix_hit": {"a": 0, "b": 4, "c": 0},
        "free_blocks": 13,
    }


def test_an_idle_step_shows_nothing():
    seen = scheduler.step(config(), State())[1]
    assert seen["kind"] == "idle"
    assert not any(seen[key] for key in seen.keys() - {"kind"})
