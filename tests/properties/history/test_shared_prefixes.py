"""Ended requests are kept by what they can still decide, not one by one."""

from hypothesis import given
from hypothesis import strategies as st

from schedproof.properties.history.content import in_common, surely_shared
from schedproof.properties.history.request_history import RequestHistory
from schedproof.properties.history.shared_prefixes import SharedPrefixes

BLOCK = 4
SEGMENTS = st.tuples(st.sampled_from(("a", "b", "out:r0")), st.integers(1, 9))


@st.composite
def accounts(draw, name):
    content = tuple(draw(st.lists(SEGMENTS, min_size=1, max_size=3)))
    prompt = sum(length for _, length in content)
    emitted = draw(st.integers(0, 4))
    computed = draw(st.integers(0, prompt + emitted))
    return RequestHistory(
        name,
        prompt,
        8,
        8,
        content,
        computed=computed,
        emitted=emitted,
        prefix_hit=draw(st.integers(0, computed)) // BLOCK * BLOCK,
        preemptions=draw(st.sampled_from((0, 0, 1))),
        recompute_from=draw(st.sampled_from((0, 0, prompt))),
    )


def answers(request, others):
    """All that predicates ask of the requests that can share tokens with one."""
    others = [other for other in others if other is not request]
    return (
        max((min(in_common(request, o), o.max_computed) for o in others), default=0),
        max((in_common(request, o) for o in others if o.max_computed), default=0),
        max((in_common(request, o) for o in others if o.started), default=0),
        max(
            (
                surely_shared(request, [holder], [*others, request], BLOCK, of_prompts=True)
                for holder in others
                if holder.ended is None
            ),
            default=0,
        ),
    )


@given(st.data())
def test_the_requests_that_are_kept_answer_as_all_of_them_do(data):
    requests = [data.draw(accounts(f"r{number}")) for number in range(6)]
    kept = SharedPrefixes(requests, BLOCK)
    for request in requests[:4]:
        request.ended = "length"
        kept.end(request)
    for request in requests[4:]:
        assert answers(request, kept.of(request)) == answers(request, requests)
        assert any(other is request for other in kept.of(request))


def test_a_request_is_compared_with_no_more_requests_in_a_longer_run():
    def compared(ended):
        kept = SharedPrefixes([], BLOCK)
        for number in range(ended):
            content = (("system", 64), (f"r{number}", 20))
            request = RequestHistory(f"r{number}", 84, 4, 4, content, computed=87, emitted=4)
            kept.add(request)
            kept.end(request)
        return len(kept.of(RequestHistory("new", 84, 4, 4, (("system", 64), ("new", 20)))))

    assert compared(50) == compared(100) <= 3


def test_what_ended_before_it_was_computed_can_share_nothing():
    kept = SharedPrefixes([RequestHistory("r0", 4, 1, 1, (("a", 4),))], BLOCK)
    [request] = kept.of(RequestHistory("r1", 4, 1, 1, (("a", 4),)))
    kept.end(request)
    assert not kept.of(RequestHistory("r1", 4, 1, 1, (("a", 4),)))
