"""Without another cause, the last event of each request that the message names is shown."""

from types import SimpleNamespace

import pytest

from schedproof.model.observation import Step
from schedproof.model.scenario import Request
from schedproof.properties.explanations.turns import last_events

SCENARIO = SimpleNamespace(
    requests=(
        Request(id="early", arrival=0, prompt=(("early", 9),), max_tokens=2),
        Request(id="late", arrival=2, prompt=(("late", 3),), max_tokens=4),
        Request(id="new", arrival=4, prompt=(("new", 3),), max_tokens=4),
    )
)


def account(prompt, **more):
    values = {"ended": None, "ended_at": None, "between_turns": False, "content": (), "emitted": 0}
    return SimpleNamespace(prompt=prompt, **values | more)


def step(scheduled, **more):
    return Step(kind="prefill", scheduled=scheduled, **more)


def failure(steps, named, accounts=None, hits=None):
    """The message is about the step after `steps`."""
    accounts = accounts or {"early": account(9), "late": account(3), "new": account(3)}
    return SimpleNamespace(
        scenario=SCENARIO,
        history=SimpleNamespace(requests=accounts, kin=lambda _: accounts.values()),
        last=step({}, prefix_hit=hits or {}),
        steps=steps,
        first=SimpleNamespace(step=4),
        names=lambda name: name in named,
    )


def test_a_chunk_is_shown_with_how_much_of_the_prompt_it_reached():
    steps = [step({}), step({"early": 4}, computed={"early": 4}), step({}), step({})]
    expected = ["step 1: early computes 4 tokens, and has computed 4 of its prompt's 9 tokens"]
    assert last_events(failure(steps, {"early"})) == expected


def test_the_events_are_in_the_order_of_the_steps():
    steps = [step({}), step({}), step({}), step({"early": 1}, computed={"early": 10})]
    assert last_events(failure(steps, {"early", "late"})) == [
        "step 2: late arrives: prompt 3, max_tokens 4",
        "step 3: early computes 1 token, and has computed 10",
    ]


@pytest.mark.parametrize(
    ("steps", "more", "event"),
    [
        ([step({"early": 9}), step({}, preempted=("early",))], {}, "step 1: early is preempted"),
        ([step({"early": 9})], {"ended": "eos", "ended_at": 3}, "step 3: early ends (eos)"),
        ([step({"early": 9})], {}, "step 0: early computes 9 tokens"),
    ],
)
def test_a_preemption_or_an_end_is_shown_if_it_came_last(steps, more, event):
    assert last_events(failure(steps, {"early"}, {"early": account(9, **more)})) == [event]


def test_the_failing_step_itself_explains_nothing():
    """`new` arrives in it, and `early` ends in it."""
    steps = [step({"early": 9})] + [step({}) for _ in range(3)] + [step({"early": 1})]
    ended = {"early": account(9, ended="length", ended_at=4), "new": account(3)}
    expected = ["step 0: early computes 9 tokens"]
    assert last_events(failure(steps, {"early", "new"}, ended)) == expected


def test_who_computed_the_tokens_of_a_hit_is_shown():
    doc = (("doc", 4),)
    source = account(4, id="early", content=doc, began=1, ended="eos", ended_at=2)
    accounts = {"early": source, "late": account(4, id="late", content=doc)}
    assert last_events(failure([step({})] * 4, {"late"}, accounts, hits={"late": 4})) == [
        "step 1: early begins, and computes the 4 tokens that late finds, and has left (eos)",
        "step 2: late arrives: prompt 3, max_tokens 4",
    ]
