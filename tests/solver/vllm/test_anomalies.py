"""Each knob against preemption has a case in which it leads to more of it, and the case is
small."""

import pytest
from msgspec.structs import replace

from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.properties.shrinking.shrink import simpler_requests
from schedproof.solver.vllm.anomalies import KNOBS, Lengths, anomaly, shares

CASES = {
    "max_num_seqs": (((1, 1), (1, 3), (1, 2)), 4, (3, 2)),
    "max_num_batched_tokens": (((1, 2), (2, 1)), 3, (3, 2)),
    "watermark": (((2, 1), (1, 2), (1, 2)), 3, (0.0, 0.375)),
}


@pytest.fixture(scope="module", params=KNOBS)
def found(request):
    return request.param, anomaly(request.param)


def preemptions(scenario):
    """How often a request is preempted in a run that ends, seen by the requests' client."""
    outcome = replay(ModelTarget(), scenario, ())
    assert outcome.finished
    assert not outcome.session.rejected
    return sum(one.preemptions for one in outcome.session.monitor.history.requests.values())


def test_the_knob_alone_differs_and_the_second_run_preempts_more(found):
    knob, (few, more) = found
    asked, blocks, values = CASES[knob]
    assert few.requests == more.requests
    assert tuple((one.prompt_len, one.max_tokens) for one in few.requests) == asked
    assert [one.config[knob] for one in (few, more)] == list(values)
    assert few.config == {**more.config, knob: few.config[knob], "num_blocks": blocks}
    assert (preemptions(few), preemptions(more)) == (0, 1)


def test_nothing_simpler_shows_the_same(found):
    _, pair = found
    requests = pair.few.requests
    candidates = [requests[:n] + requests[n + 1 :] for n in range(len(requests))]
    for n, request in enumerate(requests):
        for plainer in simpler_requests(request, 1):
            candidates.append((*requests[:n], plainer, *requests[n + 1 :]))
    for simpler in candidates:
        counts = [preemptions(replace(one, requests=simpler)) for one in pair if simpler]
        assert counts[0] >= counts[1]


def test_every_way_to_share_tokens_comes_once():
    ways = list(shares(5, 2))
    assert len(set(ways)) == len(ways) == 4
    assert all(sum(map(sum, way)) == 5 for way in ways)
    assert list(shares(3, 1)) == [(Lengths(1, 2),), (Lengths(2, 1),)]
    assert list(shares(3, 2)) == []
