"""What a state and its requests say of themselves."""

import pytest

from schedproof.model.members import find, without
from schedproof.model.pool import Pool
from schedproof.model.vllm.state import Sequence, State

from .build import decoding, ids, waiting


def test_a_request_that_arrives_holds_and_has_done_nothing() -> None:
    one = Sequence("a", 5, 3, 2)
    assert (one.id, one.prompt, one.max_tokens, one.output_len) == ("a", 5, 3, 2)
    assert (one.priority, one.arrival, one.content) == (0, 0, ())
    assert (one.computed, one.generated, one.prefix_hit) == (0, 0, 0)
    assert (one.blocks, one.published) == ((), 0)


def test_a_state_begins_empty() -> None:
    assert State() == State((), (), Pool(None, (), 1, (), {}), 0, ())


@pytest.mark.parametrize(
    ("computed", "generated", "behind", "decodes"),
    [
        (0, 0, 5, False),
        (4, 0, 1, False),  # the last token of a prompt is no decode
        (5, 1, 1, True),
        (6, 2, 1, True),
        (4, 2, 3, False),  # begun again after a preemption
        (6, 1, 0, False),
    ],
)
def test_a_request_decodes_when_one_token_is_left_and_it_was_one_that_it_generated(
    computed: int, generated: int, behind: int, decodes: bool
) -> None:
    one = waiting(5, computed=computed, generated=generated)
    assert (one.num_tokens, one.num_uncomputed_tokens, one.decodes) == (
        5 + generated,
        behind,
        decodes,
    )


def test_what_is_known_of_a_request_grows_with_what_it_generates() -> None:
    one = waiting(5, name="a")
    assert one.known == (("a", 5),)
    assert one._replace(generated=1).known == (("a", 5), ("out:a", 1))
    assert one._replace(generated=3).known == (("a", 5), ("out:a", 3))


def test_rewound_a_request_keeps_what_it_generated_and_nothing_that_it_held() -> None:
    one = decoding("a", 9, 1, 2, 3, prefix_hit=4, published=2, priority=2, arrival=7)
    kept = waiting(9, 9, "a", generated=1, priority=2, arrival=7)
    assert one.rewound() == kept


def test_a_request_is_found_in_a_queue_and_taken_out_of_it_by_its_id() -> None:
    queue = tuple(waiting(5, name=name) for name in "abc")
    assert find(queue, "b") is queue[1]
    assert find(queue, "d") is None
    assert ids(without(queue, "b")) == ["a", "c"]
    assert without(queue, "d") == queue
