"""HEAD's running list, its tail and its line, by example."""

import pytest

from schedproof.properties.llmservingsim.predicates import tail

from ...rules.tables import with_tables
from .build import book, ran, request


def three(**changes):
    """Two that decode, and one that waits."""
    return book(
        *(request(name, 8, 8, 1) for name in "ab"),
        request("c"),
        **{"running": "ab", "revision": "head", "free": 0, **changes},
    )


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (ran({"a": 1}, "a", "bc", preempted=("b",)), None),
        (ran({"b": 1}, "b", "ac", preempted=("a",)), "a preempted; of a, b the last 1 are b"),
        (
            ran({"a": 1, "c": 6}, "ac", "b", preempted=("b",)),
            "c admitted in the step that preempted b",
        ),
        (
            ran({"a": 1}, "a", "bc", preempted=("b",), blocks={"b": [4]}),
            "b was preempted and holds 1 blocks",
        ),
        (ran({"b": 1, "a": 1}, "ab", "c"), "scheduled in the order b, a; a, b were running"),
        (ran({"c": 6, "a": 1, "b": 1}, "abc"), "scheduled in the order c, a, b; a, b were running"),
        (ran({"a": 1, "b": 1, "c": 6}, "abc"), None),
    ],
)
def test_running_first_then_the_tail_gives_way_alone_and_with_everything(step, said):
    assert tail.not_as_vllm(three(), step) == said


def test_nobody_gives_way_while_blocks_are_enough():
    reported = tail.not_as_vllm(with_tables(three(), 2), ran({"a": 1}, "a", "bc", preempted=("b",)))
    assert reported == (
        "b preempted, although without b 2 blocks were free and requests that run need at most 2"
    )


def test_who_waits_is_listed_and_admitted_by_arrival():
    history = three()
    assert tail.not_by_arrival(history, ran({"a": 1}, "a", "bc", preempted=("b",))) is None
    assert tail.not_by_arrival(history, ran({"a": 1}, "a", "cb", preempted=("b",))) == (
        "c, b wait in this order, they came in the order b, c"
    )
    history = book(*(request(name) for name in "abc"), revision="head")
    assert tail.not_by_arrival(history, ran({"b": 6}, "b", "ac")) == (
        "b is admitted, a came before it and waits"
    )
    assert tail.not_by_arrival(history, ran({"b": 6, "a": 4}, "ba", "c")) == (
        "b, a are admitted in this order, which is not that of their arrival"
    )
    assert tail.line_moves(history, ran({"a": 6}, "a", "bc"))
    assert not tail.line_moves(history, ran({"a": 6}, "a"))
