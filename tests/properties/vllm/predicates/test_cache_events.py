"""The rules about events that tell routers what is cached, by example."""

from schedproof.model.observation import CacheEvent, CacheEvents
from schedproof.properties.vllm.predicates import cache_events

from .build import book, ran, request

KEYS = {"kv_cache_events": "incremental"}


def stored(*blocks, tokens=None, size=4):
    whole = len(blocks) * size if tokens is None else tokens
    return CacheEvent(kind="stored", blocks=blocks, tokens=whole, block_size=size)


def removed(*blocks):
    return CacheEvent(kind="removed", blocks=blocks)


def step(*events, entered=(), left=()):
    changes = CacheEvents(events=events, entered=tuple(entered), left=tuple(left))
    return ran({"a": 1}, "a", cache_events=changes)


def history(*steps):
    run = book(request("a"), **KEYS)
    for earlier in steps:
        run.observe(earlier)
    return run


def test_events_that_replay_to_the_cache_break_nothing():
    first = step(stored("x", "y"), entered="xy")
    second = step(removed("x"), stored("z"), entered="z", left="x")
    cleared = step(CacheEvent(kind="cleared"), left="yz")
    for run, now in (
        (history(), first),
        (history(first), second),
        (history(first, second), cleared),
    ):
        for predicate in cache_events.PREDICATES.values():
            assert predicate.broken(run, now) is None


def test_a_block_is_promised_in_vain():
    run = history(step(stored("x"), entered="x"))
    assert cache_events.believed_in_vain(run, step(left="x")) == (
        "events say that block x can be found, but the prefix cache has no such block"
    )
    assert cache_events.believed_in_vain(history(), step(stored(*"abcd"))) == (
        "events say that blocks a, b, c and 1 more can be found, but the prefix cache has no such "
        "block"
    )


def test_a_promise_in_vain_is_reported_in_later_steps_too():
    run = history(step(stored("x")))
    assert cache_events.believed_in_vain(run, step()) is not None


def test_a_block_can_be_found_unannounced():
    assert cache_events.found_unannounced(history(), step(entered="x")) == (
        "block x can be found, but no event says so"
    )
    run = history(step(stored("x"), entered="x"))
    assert cache_events.found_unannounced(run, step(removed("x"))) == (
        "an event removes block x, of which a copy can still be found"
    )


def test_an_event_lists_other_tokens():
    assert cache_events.tokens_differ(history(), step(stored("x", tokens=8), entered="x")) == (
        "an event lists 8 tokens, but its blocks hold 4 (1 x 4)"
    )


def test_the_rules_concern_only_configurations_with_events():
    for predicate in cache_events.PREDICATES.values():
        assert predicate.concerns(KEYS)
        assert not predicate.concerns({"kv_cache_events": "none"})
        assert not predicate.concerns({})


def test_what_exercises_the_rules():
    enters, leaves = step(stored("x"), entered="x"), step(removed("x"), left="x")
    assert cache_events.something_enters_the_cache(history(), enters)
    assert not cache_events.something_enters_the_cache(history(), leaves)
    assert cache_events.something_leaves_the_cache(history(enters), leaves)
    assert not cache_events.something_leaves_the_cache(history(), enters)
