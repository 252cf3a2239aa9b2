"""The first in line of revision sound waits no longer than its rank; in 2.5.2 it is passed by."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.model.scenario import Request
from schedproof.model.spyre.model import SpyreModel
from schedproof.model.spyre.release_2_5_2 import RELEASE_2_5_2
from schedproof.model.spyre.sound import SOUND
from schedproof.model.systems import make_model
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.solver.smt.obligation import discharge
from schedproof.solver.spyre.progress_lemmas import obligations, passed_by, rank
from schedproof.spec.catalogue import load, select

WAITS = select(load("spyre"), ["ALL-R05"])


def statuses(revision):
    return {lemma.name: lemma.status for lemma in discharge(obligations(64, revision))}


@pytest.mark.slow
def test_every_lemma_is_proven_and_guarded():
    found = statuses(SOUND)
    assert found == dict.fromkeys(found, "proven")
    assert len(found) == 14


@pytest.mark.slow
def test_of_2_5_2_all_but_the_turn_is_proven():
    found = statuses(RELEASE_2_5_2)
    assert {name for name, status in found.items() if status != "proven"} == {
        "only_first_in_line_starts"
    }


@pytest.mark.parametrize(
    ("planted", "refuted"),
    [
        (
            lambda *_: None,
            {"waiting_request_prevents_idling", "first_in_line_starts_at_rank_zero"},
        ),  # no chunk ever runs
        (
            lambda config, revision, state: [None, *state.waiting][-1],
            {
                "only_first_in_line_starts",
                "waiting_request_prevents_idling",
                "first_in_line_starts_at_rank_zero",
            },
        ),
    ],
)
def test_an_admission_that_stops_or_turns_the_queue_is_refuted(planted, refuted):
    """The second takes the last in line, and ignores the ongoing prefill."""
    revision = replace(SOUND, candidate=planted)
    asked = [
        lemma
        for lemma in obligations(revision=revision)
        if lemma.name
        in (
            "waiting_request_prevents_idling",
            "only_first_in_line_starts",
            "first_in_line_starts_at_rank_zero",
        )
    ]
    assert {lemma.name for lemma in discharge(asked) if lemma.status == "refuted"} == refuted


REQUESTS = st.lists(
    st.tuples(st.integers(0, 12), st.integers(1, 12), st.integers(1, 8), st.integers(1, 8)),
    min_size=1,
    max_size=7,
)


@given(REQUESTS, st.booleans(), st.booleans(), st.sampled_from([20, 28, 48]), st.booleans())
def test_the_rank_falls_in_each_step_until_the_first_in_line_starts(
    asked, interleave, caching, limit, bounded
):
    config = {
        "block_size": 4,
        "chunk_size": 8,
        "max_num_seqs": 3,
        "max_model_len": 20,
        "max_batch_tkv": limit,
        "interleave": interleave,
        "prefix_caching": caching,
        "num_blocks": 9 if bounded else None,
    }
    model: SpyreModel = make_model("spyre", "sound", config)
    arriving = sorted(enumerate(asked), key=lambda each: each[1][0])
    state, number = model.initial(), 0
    while arriving or state.waiting or state.running:
        while arriving and arriving[0][1][0] <= number:
            name, (_, prompt, tokens, wanted) = arriving.pop(0)
            request = Request(
                id=f"r{name}",
                arrival=number,
                prompt=(("shared", prompt),),
                max_tokens=tokens,
                output_len=min(tokens, wanted),
            )
            state = model.arrive(state, request)
        first = state.waiting[0].id if state.waiting else None
        before = rank(model.config, state)
        state, seen = model.step(state)
        started = first is None or first in seen["scheduled"]
        assert started or rank(model.config, state) < before
        number += 1


def test_a_refused_request_is_passed_by_in_2_5_2_and_not_in_sound():
    scenario = passed_by()
    assert [violation.rule for violation in replay(ModelTarget(), scenario, WAITS).broken] == [
        "ALL-R05"
    ]
    config = {key: value for key, value in scenario.config.items() if key != "pausing"}
    sound = msgspec.structs.replace(scenario, revision="sound", config=config)
    assert not replay(ModelTarget(), sound, WAITS).broken
