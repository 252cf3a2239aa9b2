"""A Ctrl-C that something swallows ends a run all the same, with what it has."""

import signal
from contextlib import suppress

import pytest

from schedproof.gate.console import interrupts
from schedproof.gate.judging import engines
from schedproof.gate.judging.judge import judge

from ..build import Toy


@pytest.fixture(autouse=True)
def _nothing_pressed(monkeypatch):
    monkeypatch.setattr(interrupts, "_pressed", False)


def test_what_was_pressed_is_raised_again_until_the_process_ends():
    interrupts.check()
    with pytest.raises(KeyboardInterrupt):
        interrupts.press()
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()


def test_handlers_are_installed_but_where_a_signal_is_ignored(monkeypatch):
    there = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_IGN,
    }
    monkeypatch.setattr(signal, "getsignal", there.get)
    monkeypatch.setattr(signal, "signal", there.__setitem__)
    interrupts.install()
    assert there[signal.SIGINT] is there[signal.SIGTERM] is interrupts.press
    assert there[signal.SIGHUP] is signal.SIG_IGN


@pytest.mark.parametrize("steps", [1, 400])
def test_a_gate_whose_ctrl_c_is_swallowed_is_interrupted_before_the_next_run(steps, gate):
    class Swallows(Toy):
        taken = 0

        def bend(self, step):
            type(self).taken += 1
            if self.taken == steps:
                with suppress(KeyboardInterrupt):
                    interrupts.press()

    verdict = judge(gate(Swallows(), "ALL-R03"))
    assert verdict.interrupted
    assert Swallows.taken < steps + 400


def test_an_error_that_ctrl_c_led_to_is_ctrl_c():
    with pytest.raises(AssertionError), interrupts.instead():
        raise AssertionError
    with suppress(KeyboardInterrupt):
        interrupts.press()
    with pytest.raises(KeyboardInterrupt), interrupts.instead():
        raise AssertionError


def test_a_gate_whose_search_fails_by_ctrl_c_is_interrupted(gate, monkeypatch):
    def fails(*_):
        with suppress(KeyboardInterrupt):
            interrupts.press()
        raise AssertionError

    monkeypatch.setattr(engines, "run_search", fails)
    assert judge(gate(Toy(), "ALL-R03")).interrupted


def test_a_time_limit_ends_a_run_as_ctrl_c_does_and_says_so():
    assert interrupts.why() == "interrupted"
    interrupts.limit(0.01)
    with pytest.raises(KeyboardInterrupt):
        signal.pause()
    with pytest.raises(KeyboardInterrupt):
        interrupts.check()
    assert interrupts.why() == "the time limit of 0.01 s is over"
    interrupts.no_limit()
    interrupts.check()
    assert interrupts.why() == "interrupted"
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_run_that_ends_in_time_leaves_no_timer():
    interrupts.limit(60)
    interrupts.no_limit()
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
