"""An answer is kept as long as it holds."""

from collections.abc import Callable

import pytest

from schedproof.model.observation import Step
from schedproof.model.scenario import Request
from schedproof.model.systems import full_config
from schedproof.properties.ledger import Ledger
from schedproof.properties.once import once

CONFIG = full_config("vllm", "documented", {})
IDLE = Step(kind="idle", scheduled={})


def book() -> Ledger:
    ledger = Ledger(CONFIG, "documented", "vllm")
    for name in ("a", "b"):
        ledger.accept(request(name))
    return ledger


def request(name: str) -> Request:
    return Request(id=name, arrival=0, prompt=((name, 5),), max_tokens=3)


@once
def live(ledger: Ledger) -> list[str]:
    return list(ledger.live)


@once
def kind(ledger: Ledger, step: Step) -> str:
    return f"{step.kind} after {ledger.step}"


def test_an_answer_is_worked_out_once_between_two_changes() -> None:
    ledger = book()
    assert live(ledger) == ["a", "b"]
    assert live(ledger) is live(ledger)


@pytest.mark.parametrize(
    "change",
    [
        lambda ledger: ledger.accept(request("c")),
        lambda ledger: ledger.abort("a", False),
        lambda ledger: ledger.abort("a", True),
        lambda ledger: ledger.observe(IDLE),
    ],
    ids=["arrival", "abort", "abort inside", "step"],
)
def test_whatever_is_booked_ends_it(change: Callable[[Ledger], None]) -> None:
    ledger = book()
    before = live(ledger)
    change(ledger)
    assert live(ledger) is not before
    assert live(ledger) == list(ledger.live)


def test_of_another_step_the_answer_is_another() -> None:
    ledger = book()
    assert kind(ledger, IDLE) == "idle after 0"
    decode = Step(kind="decode", scheduled={"a": 1})
    assert kind(ledger, decode) == "decode after 0"
    ledger.observe(decode)
    assert kind(ledger, decode) == "decode after 1"


def test_two_ledgers_have_answers_of_their_own() -> None:
    first, second = book(), book()
    live(first)
    second.accept(request("c"))
    assert live(second) == ["a", "b", "c"]
    assert live(first) == ["a", "b"]


def test_nothing_but_the_answer_is_kept_of_an_error() -> None:
    @once
    def fails(ledger: Ledger) -> None:
        raise KeyError(ledger.step)

    ledger = book()
    for _ in range(2):
        with pytest.raises(KeyError):
            fails(ledger)
    assert ledger.answers == {}


def test_with_another_configuration_the_answer_is_another() -> None:
    ledger = book()
    before = live(ledger)
    ledger.config = {**CONFIG}
    assert live(ledger) is not before
