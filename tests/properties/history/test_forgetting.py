"""A run that forgets what no block holds is judged as one that remembers everything."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.model.replies import read_started, read_step
from schedproof.model.scenario import Request, Segment
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.monitor import Monitor
from schedproof.properties.history.features import features_of
from schedproof.properties.rules.registry import observable, predicates_of
from schedproof.spec.catalogue import load

SMALL: dict[str, dict[str, Any]] = {
    "vllm": {
        "block_size": 4,
        "num_blocks": 12,
        "max_num_seqs": 3,
        "max_num_batched_tokens": 24,
        "max_model_len": 48,
    },
    "spyre": {
        "block_size": 4,
        "chunk_size": 8,
        "max_model_len": 64,
        "max_batch_tkv": 192,
        "max_num_seqs": 3,
        "num_blocks": 16,
        "prefix_caching": True,
    },
}
REVISIONS = {"vllm": "documented", "spyre": "sound"}
# What it says first, tokens of that, tokens of its own, tokens to generate, steps until the next.
LOADS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(1, 12),
        st.integers(0, 8),
        st.integers(1, 6),
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=14,
)


def judged(system, loads):
    """Two monitors of one run, the second of which forgets; both say the same of every step."""
    revision, config = REVISIONS[system], full_config(system, REVISIONS[system], SMALL[system])
    assert features_of(system).may_forget(config)
    target = ModelTarget()
    observes = read_started(target.start(system, revision, config)).observes
    rules = observable(load(system), revision, observes, config, system)
    monitors = [
        Monitor(rules, predicates_of(system), config, revision=revision, system=system)
        for _ in range(2)
    ]
    monitors[1].history.forgets = True
    for number, (first, shared, own, tokens, wait) in enumerate(loads):
        prompt: tuple[Segment, ...] = ((f"s{first}", shared), (f"r{number}", own))
        request = Request(
            id=f"r{number}",
            arrival=0,
            prompt=prompt if own else prompt[:1],
            max_tokens=tokens,
            output_len=tokens,
        )
        if target.add(request.for_target())["ok"]:
            for monitor in monitors:
                monitor.accept(request)
        for _ in range(wait if number + 1 < len(loads) else 60):
            seen = read_step(target.step(), observes)
            verdict, other = [monitor.observe(seen) for monitor in monitors]
            assert verdict == other == []
    return monitors


@pytest.mark.slow
@given(LOADS, st.sampled_from(["vllm", "spyre"]))
def test_forgetting_what_no_block_holds_changes_no_verdict(loads, system):
    remembers, forgets = judged(system, loads)
    assert forgets.history.requests.keys() <= remembers.history.requests.keys()
    assert forgets.history.arrived == remembers.history.arrived


@pytest.mark.slow
@pytest.mark.parametrize("system", ["vllm", "spyre"])
def test_of_a_long_run_no_more_is_remembered_than_blocks_can_hold(system):
    loads = [(number % 3, 1 + number % 12, number % 9, 1 + number % 6, 6) for number in range(150)]
    remembers, forgets = judged(system, loads)
    assert len(remembers.history.requests) == 150
    assert len(forgets.history.requests) < 30
    assert sum(forgets.exercised.values()) > 1000
    assert forgets.exercised["ALL-R08"] > 20


def test_a_cache_that_is_not_followed_lets_nothing_be_forgotten():
    config = full_config("vllm", "documented", SMALL["vllm"])
    monitor = Monitor([], {}, config, revision="documented", system="vllm")
    monitor.history.forgets = True
    assert monitor.history.shadow is None
    monitor.accept(Request(id="a", arrival=0, prompt=(("a", 4),), max_tokens=1))
    monitor.abort("a", inside=False)
    target = ModelTarget()
    started = read_started(target.start("vllm", "documented", config))
    monitor.observe(read_step(target.step(), started.observes))
    assert [*monitor.history.requests] == ["a"]
