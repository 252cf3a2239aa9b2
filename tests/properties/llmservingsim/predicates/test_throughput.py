"""What a step reports of its work, by example."""

import pytest

from schedproof.properties.llmservingsim.predicates import throughput

from .build import book, ran, request


@pytest.mark.parametrize(("reported", "right"), [(8, True), (6, False), (2, False)])
def test_a_hit_counts_with_the_chunk_that_ends_the_prompt(reported, right):
    waits = book(request("a", 8))
    whole = ran({"a": 2}, "a", emitted={"a": 1}, prompt_throughput=reported)
    assert (throughput.prompt_miscounted(waits, whole) is None) == right
    assert throughput.hit_counted(waits, whole)


def test_a_chunk_that_does_not_end_the_prompt_counts_by_itself():
    waits = book(request("a", 8))
    first = ran({"a": 5}, "a", emitted={}, prompt_throughput=6)
    assert throughput.prompt_miscounted(waits, first) == (
        "6 prompt tokens reported, expected 5 (a 5)"
    )
    assert not throughput.hit_counted(waits, first)
    goes_on = book(request("a", 8, 5), running="a")
    last = ran({"a": 3}, "a", emitted={"a": 1}, prompt_throughput=3)
    assert throughput.prompt_miscounted(goes_on, last) is None


def test_what_a_request_generates_is_no_prompt():
    decodes = book(request("a", 8, 8, 1), running="a")
    step = ran({"a": 1}, "a", emitted={"a": 1}, prompt_throughput=1, decode_throughput=1)
    assert throughput.prompt_miscounted(decodes, step) == (
        "1 prompt tokens reported, expected 0 (none)"
    )
    assert throughput.generated_miscounted(decodes, step) is None


def test_the_first_token_counts_as_generated():
    both = book(request("a", 8, 8, 1), request("b", 4), running="a")
    step = ran({"a": 1, "b": 4}, "ab", emitted={"a": 1, "b": 1}, decode_throughput=1)
    assert throughput.generated_miscounted(both, step) == (
        "1 generated tokens reported, 2 were emitted"
    )
    assert throughput.first_beside_another(both, step)
    assert not throughput.first_beside_another(both, ran({"a": 1}, "a", emitted={"a": 1}))
