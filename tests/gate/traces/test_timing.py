"""A record of a server says when decisions complete: whenever that is, it is no fault."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.gate.traces.judge import TraceJudge
from schedproof.gate.traces.run_events import Added, Begun, Stepped
from schedproof.model.members import completing
from schedproof.model.observation import Step
from schedproof.model.replies import Started
from schedproof.model.scenario import Request
from schedproof.model.systems import full_config, make_model
from schedproof.model.vllm import scheduler

SMALL = {"block_size": 4, "num_blocks": 6, "max_num_seqs": 3, "max_num_batched_tokens": 8}
SEVERAL = ({"async_scheduling": True}, {"pipeline_parallel_size": 3})


def recorded(keys, prompts, early):
    """What a server with the model's scheduler would record, its worker as fast as `early` says,
    over and over."""
    config = full_config("vllm", "documented", {**SMALL, "max_model_len": 24, **keys})
    model: Any = make_model("vllm", "documented", config)
    started = Started("server", "1", frozenset((*model.observes, "completes")))
    yield Begun(1, "vllm", "documented", config, started)
    state = model.initial()
    for number, prompt in enumerate(prompts):
        name = f"r{number}"
        request = Request(id=name, arrival=0, prompt=((name, prompt),), max_tokens=6)
        state = model.arrive(state, request)
        yield Added(2, request, False)
    for number in range(200):
        decided = bool(scheduler.schedule(model.config, state).scheduled)
        full = len(state.in_flight) + decided >= model.config.depth
        completes = not decided or full or early[number % len(early)]
        state, seen = model.step(completing(state, completes))
        yield Stepped(3, msgspec.convert({**seen, "completes": completes}, Step))
        if not (state.waiting or state.running or state.in_flight):
            break


def judged(events, explain=True):
    """The rules that a run breaks first, and the revisions whose model decides as recorded."""
    broken: list[str] = []
    same: list[str] = []

    def over(run):
        broken.extend(failure.rule for failure in run.broken)
        if run.explainer is not None:
            same.extend(
                candidate.revision
                for candidate in run.explainer.matches
                if candidate.departed is None
            )

    judge = TraceJudge("t", [], explain, lambda run: None, over, lambda words: None)
    judge.follow(events)
    return broken, same


@pytest.mark.slow
@given(
    keys=st.sampled_from(SEVERAL),
    prompts=st.lists(st.integers(1, 14), min_size=1, max_size=4),
    early=st.lists(st.booleans(), min_size=1, max_size=7),
)
def test_whenever_decisions_complete_no_rule_breaks_and_the_model_decides_as_recorded(
    keys, prompts, early
):
    broken, alike = judged(recorded(keys, prompts, early))
    assert (broken, "documented" in alike) == ([], True)


def test_a_token_that_comes_although_none_completes_breaks_a_rule():
    def told_otherwise():
        for event in recorded(SEVERAL[0], [6, 6], [True]):
            if isinstance(event, Stepped) and event.step.emitted:
                event = event._replace(step=msgspec.structs.replace(event.step, completes=False))
            yield event

    broken, _ = judged(told_otherwise(), explain=False)
    assert broken


def test_a_token_that_does_not_come_although_one_completes_breaks_a_rule():
    def told_otherwise():
        for event in recorded(SEVERAL[0], [6, 6], [False]):
            if isinstance(event, Stepped) and event.step.completes is False:
                event = event._replace(step=msgspec.structs.replace(event.step, completes=True))
            yield event

    broken, _ = judged(told_otherwise(), explain=False)
    assert broken
