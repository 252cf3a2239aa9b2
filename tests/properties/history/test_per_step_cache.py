"""An answer is kept as long as it holds."""

import pytest

from schedproof.model.observation import Step
from schedproof.model.scenario import Request
from schedproof.model.systems import full_config
from schedproof.properties.history.per_step_cache import once
from schedproof.properties.history.run_history import RunHistory

CONFIG = full_config("vllm", "documented", {})
IDLE = Step(kind="idle", scheduled={})


def book():
    history = RunHistory(CONFIG, "documented", "vllm")
    for name in ("a", "b"):
        history.accept(request(name))
    return history


def request(name):
    return Request(id=name, arrival=0, prompt=((name, 5),), max_tokens=3)


@once
def live(history):
    return list(history.live)


@once
def kind(history, step):
    return f"{step.kind} after {history.step}"


def test_an_answer_is_worked_out_once_between_two_changes():
    history = book()
    assert live(history) == ["a", "b"]
    assert live(history) is live(history)


@pytest.mark.parametrize(
    "change",
    [
        lambda history: history.accept(request("c")),
        lambda history: history.abort("a", False),
        lambda history: history.abort("a", True),
        lambda history: history.observe(IDLE),
    ],
    ids=["arrival", "abort", "abort inside", "step"],
)
def test_whatever_is_booked_ends_it(change):
    history = book()
    before = live(history)
    change(history)
    assert live(history) is not before
    assert live(history) == list(history.live)


def test_of_another_step_the_answer_is_another():
    history = book()
    assert kind(history, IDLE) == "idle after 0"
    decode = Step(kind="decode", scheduled={"a": 1})
    assert kind(history, decode) == "decode after 0"
    history.observe(decode)
    assert kind(history, decode) == "decode after 1"


def test_two_histories_have_answers_of_their_own():
    first, second = book(), book()
    live(first)
    second.accept(request("c"))
    assert live(second) == ["a", "b", "c"]
    assert live(first) == ["a", "b"]


def test_nothing_but_the_answer_is_kept_of_an_error():
    @once
    def fails(history):
        raise KeyError(history.step)

    history = book()
    for _ in range(2):
        with pytest.raises(KeyError):
            fails(history)
    assert history.answers == {}


def test_with_another_configuration_the_answer_is_another():
    history = book()
    before = live(history)
    history.config = {**CONFIG}
    assert live(history) is not before
