"""Explaining: which model a recorded run matches, how far, and what it would have done."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schedproof.model.observation import Step
from schedproof.model.replies import read_started, read_step
from schedproof.model.scenario import Request
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget
from schedproof.properties.explanations.lockstep import AHEAD, MAX_BRANCHES, Explainer

from ..build import SMALL


def request(name, prompt=12, tokens=6, **changes):
    values = {"prompt": ((name, prompt),), "max_tokens": tokens, "arrival": 0} | changes
    return Request(id=name, **values)


class Recording:
    """A model and an explainer that follows it; `change` falsifies what the explainer sees."""

    def __init__(
        self,
        revision="sound",
        held_to="sound",
        system="spyre",
        change=lambda number, step: step,
        **config,
    ):
        small = SMALL if system == "spyre" else {}
        values = full_config(system, revision, small | config)
        self.target = ModelTarget()
        self.started = read_started(self.target.start(system, revision, values))
        self.explainer = Explainer(system, held_to, values, self.started.observes)
        self.change = change
        self.number = 0

    def add(self, added, *, open_ended=False):
        assert self.target.add(added.for_target())["ok"]
        reported = replace(added, output_len=None) if open_ended else added
        self.explainer.accept(reported, open_ended=open_ended)

    def abort(self, name, inside, *, message=None):
        self.target.abort(name, inside)
        self.explainer.abort(name, inside if message is None else message)

    def steps(self, count):
        for _ in range(count):
            seen = read_step(self.target.step(), self.started.observes)
            self.explainer.observe(self.change(self.number, seen))
            self.number += 1

    def matched(self):
        return {match.revision: match.matched for match in self.explainer.matches}


def three_requests(recording, *, open_ended=False):
    recording.add(request("a", 12, 6), open_ended=open_ended)
    recording.steps(1)
    recording.add(request("b", 5, 9, output_len=3), open_ended=open_ended)
    recording.steps(2)
    recording.add(request("c", 20, 9, output_len=2), open_ended=open_ended)
    recording.steps(20)


@pytest.mark.parametrize("open_ended", [False, True])
@pytest.mark.parametrize(
    ("system", "revision"),
    [
        *(("spyre", "sound"), ("spyre", "2.1.2"), ("spyre", "2.5.2"), ("vllm", "documented")),
        *(("nano_vllm", "0.2.0"), ("llmservingsim", "head")),
    ],
)
def test_a_run_of_a_model_matches_it_whole_even_if_nobody_says_where_requests_end(
    system, revision, open_ended
):
    recording = Recording(revision, revision, system)
    three_requests(recording, open_ended=open_ended)
    match = recording.explainer.match_of(revision)
    assert match is not None
    assert (match.matched, match.departed) == (23, None)


def test_the_revision_that_decides_so_is_recognised():
    recording = Recording("2.5.2", "sound", max_batch_tkv=64)
    for name in "abcd":
        recording.add(request(name, 12, 30))
    recording.steps(60)
    best = recording.explainer.best
    assert best is not None
    assert (best.revision, best.matched, best.departed) == ("2.5.2", 60, None)
    assert max(n for revision, n in recording.matched().items() if revision != "2.5.2") < 60
    assert recording.explainer.matches[0].revision == "sound"


def test_where_a_number_is_wrong_the_match_ends_with_what_the_model_would_have_done():
    def bend(number, step):
        return replace(step, tkv=(step.tkv or 0) + 1) if number == 4 else step

    recording, right = Recording(change=bend), Recording()
    for values in (recording, right):
        three_requests(values)
    match = recording.explainer.match_of("sound")
    assert match is not None
    assert match.departed is not None
    assert match.matched == match.departed.step == 4
    assert match.departed.differences == ("tkv: target 15, model 14",)
    assert [number for number, _ in match.departed.ahead] == [*range(4, 4 + AHEAD)]
    assert match.departed.ahead[0][1].tkv == 14
    assert recording.explainer.over
    assert not right.explainer.over


def test_a_request_that_the_model_refuses_ends_the_match():
    recording = Recording()
    recording.steps(2)
    recording.explainer.accept(request("long", 90))
    match = recording.explainer.match_of("sound")
    assert match is not None
    assert match.departed is not None
    [why] = match.departed.differences
    assert why.startswith(
        "long is accepted, but the model refuses it: prompt + max_tokens - 1 = 95"
    )


def test_a_model_that_ends_where_the_run_goes_on_ends_the_match():
    recording = Recording("2.1.2", "2.1.2", num_blocks=12)
    for name in "abcd":
        recording.add(request(name, 8, 20))
    recording.steps(8)
    recording.explainer.observe(Step(kind="idle", scheduled={}))
    match = recording.explainer.match_of("2.1.2")
    assert match is not None
    assert match.departed is not None
    assert match.departed.differences == ("the model ends: no block is free for token 13 of a",)
    assert match.departed.ahead == ()


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("message", [False, True])
def test_an_abort_may_have_been_inside_the_step_or_before_it(inside, message):
    recording = Recording()
    for name in "abc":
        recording.add(request(name))
    recording.steps(4)
    recording.abort("a", inside, message=message)
    recording.steps(1)
    recording.abort("c", inside, message=message)
    recording.steps(12)
    match = recording.explainer.match_of("sound")
    assert match is not None
    assert (match.matched, match.departed) == (17, None)
    assert len(match.branches) == 1


def test_an_abort_of_who_has_ended_is_no_branch_and_many_aborts_are_not_too_many():
    recording = Recording(max_num_seqs=32)
    recording.abort("none_there", False)
    match = recording.explainer.match_of("sound")
    assert match is not None
    assert len(match.branches) == 1
    for number in range(20):
        recording.add(request(f"r{number}"))
    for number in range(20):
        recording.abort(f"r{number}", False)
    assert len(match.branches) <= MAX_BRANCHES
    recording.steps(3)
    assert (match.matched, match.departed) == (3, None)


def test_the_last_token_that_is_allowed_may_be_an_eos():
    def say_eos(number, step):
        return replace(step, finished=dict.fromkeys(step.finished or {}, "eos"))

    known, unknown = Recording(change=say_eos), Recording(change=say_eos)
    for recording, open_ended in ((known, False), (unknown, True)):
        recording.add(request("a", 5, 3), open_ended=open_ended)
        recording.steps(4)
    assert (known.matched()["sound"], unknown.matched()["sound"]) == (2, 4)


def test_a_revision_without_the_configuration_is_named_with_the_reason():
    recording = Recording("2.5.2", "2.5.2", long_output_priority=True)
    assert recording.matched() == {"2.5.2": 0}
    assert recording.explainer.unfit.keys() == {"sound", "documented", "2.1.2"}
    assert "long_output_priority" in recording.explainer.unfit["sound"]


@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(1, 9), st.integers(0, 3)), max_size=6),
    st.sampled_from(["sound", "documented", "2.1.2", "2.5.2"]),
    st.integers(0, 30),
    st.booleans(),
)
def test_every_run_of_a_model_matches_it_whole(shapes, revision, gives_up, inside):
    recording = Recording(revision, "sound", max_batch_tkv=96)
    for number, (prompt, tokens, wait) in enumerate(shapes):
        recording.add(request(f"r{number}", prompt, tokens), open_ended=bool(number % 2))
        recording.steps(wait)
    recording.abort(f"r{gives_up % 6}", inside, message=False)
    recording.steps(gives_up)
    match = recording.explainer.match_of(revision)
    assert match is not None
    assert match.departed is None
    best = recording.explainer.best
    assert best is not None
    assert best.matched == recording.number
