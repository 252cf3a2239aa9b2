"""What a request finds in the cache, by example."""

from schedproof.properties.llmservingsim.predicates import memory as prefix

from .build import book, ran, request

OFF = {"enable_prefix_caching": False}


def test_without_a_cache_a_request_is_computed_from_its_first_token():
    history = book(request("a", 8, 8, 1), request("b", content=(("a", 6),)), running="a", **OFF)
    assert prefix.starts_late(history, ran({"b": 6}, "ab", computed={"b": 6})) is None
    assert prefix.starts_late(history, ran({"b": 2}, "ab", computed={"b": 6})) == (
        "b starts with 2 tokens and has 6 computed, although nothing is cached"
    )
    assert prefix.said_before(history, ran({"b": 6}, "ab"))
    assert prefix.starts_late(book(request("b")), ran({"b": 2}, "b", computed={"b": 6})) is None


def test_what_was_said_before_is_at_stake_only_without_a_cache():
    history = book(request("a", 8, 8, 1), request("b", content=(("a", 6),)), running="a")
    assert not prefix.said_before(history, ran({"b": 2}, "ab"))
    history = book(request("a", 8, 8, 1), request("b"), running="a", **OFF)
    assert not prefix.said_before(history, ran({"b": 6}, "ab"))
