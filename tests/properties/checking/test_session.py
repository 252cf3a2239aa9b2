"""A target under a monitor: the calls it gets, and how its faults are handled."""

from collections.abc import Mapping
from typing import Any

import pytest

from schedproof.model.faults import (
    ConfigRefused,
    TargetBroken,
    TargetCrashed,
    TargetDied,
    TargetHung,
)
from schedproof.model.scenario import Request, Scenario
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.properties.checking.session import CONTEXT_STEPS, Session
from schedproof.spec.catalogue import load

RULES = load("spyre")
SMALL = {"block_size": 4, "chunk_size": 8, "max_model_len": 32, "max_batch_tkv": 96}


def session(target, revision="sound", **changes):
    config = full_config("spyre", revision, SMALL | changes)
    return Session(target, "spyre", revision, config, RULES)


def request(name, prompt=5, max_tokens=4):
    return Request(id=name, arrival=0, prompt=((name, prompt),), max_tokens=max_tokens)


def run_out(run):
    broken = []
    while run.unfinished and not broken:
        broken = run.step()
    return broken


def test_a_run_of_the_sound_model_breaks_nothing():
    run = session(ModelTarget())
    assert run.add(request("a")) == []
    assert run.add(request("b", 9)) == []
    assert run_out(run) == []
    assert run.monitor.history.requests["b"].ended == "length"
    assert (run.started.name, run.started.version) == ("schedproof model of spyre", "sound")


class OneTokenMore(ModelTarget):
    """Emits a token of a request that has ended with an earlier one."""

    def step(self):
        reply = super().step()
        if reply["step"]["kind"] == "idle":
            reply["step"] |= {"emitted": {"a": 1}, "emitted_at": {"a": 1}}
        return reply


def test_a_run_goes_on_until_nothing_of_what_has_ended_is_in_flight():
    config = {"async_scheduling": True, "block_size": 4}
    early = Request(id="a", arrival=0, prompt=(("a", 5),), max_tokens=4, output_len=1)
    scenario = Scenario(system="vllm", config=config, requests=(early,))
    [broken] = replay(OneTokenMore(), scenario, load("vllm")).broken
    assert broken.message == "a emitted 1 although it has ended or was never accepted"


def test_a_request_that_is_rejected_is_no_part_of_the_run():
    run = session(ModelTarget())
    assert run.add(request("long", 100)) == []
    assert "exceeds max_model_len (32)" in run.rejected["long"]
    assert not run.unfinished


def test_only_the_last_steps_are_kept():
    run = session(ModelTarget())
    run.add(request("a", max_tokens=20))
    run_out(run)
    numbers = [number for number, _ in run.recent]
    last = run.monitor.history.step - 1
    assert numbers == list(range(last - CONTEXT_STEPS + 1, last + 1))


@pytest.mark.parametrize("op", ["add", "abort", "step"])
@pytest.mark.parametrize(
    ("fault", "rule", "details"),
    [
        (ValueError("no"), "ALL-R01", "Traceback"),
        (TargetCrashed("step", "no", "its traceback"), "ALL-R01", "its traceback"),
        (TargetDied("step", 7, "its stderr"), "ALL-R01", "its stderr"),
        (TargetHung("step", 1.0), "ALL-R02", ""),
    ],
    ids=["exception", "crash", "death", "hang"],
)
def test_a_crash_or_hang_in_any_operation_breaks_its_rule(op, fault, rule, details, monkeypatch):
    target = ModelTarget()
    run = session(target)
    run.add(request("a"))

    def fail(*_):
        raise fault

    monkeypatch.setattr(target, op, fail)
    operations = {
        "add": lambda: run.add(request("b")),
        "abort": lambda: run.abort("a", False),
        "step": run.step,
    }
    [broken] = operations[op]()
    assert (broken.rule, broken.step) == (rule, 0)
    assert run.details.startswith(details) if details else run.details == ""
    assert run.monitor.exercised[rule] == 1


def test_a_step_that_is_no_observation_is_a_fault_of_the_target():
    class Broken(ModelTarget):
        def step(self):
            return {"ok": True, "step": {"kind": "idle"}}

    run = session(Broken())
    with pytest.raises(TargetBroken, match="lacks the field scheduled, which every step has"):
        run.step()


class CrashesAtStart(ModelTarget):
    """Raises at `start` in the configurations that `crashes` chooses."""

    def __init__(self, crashes, fault=None):
        super().__init__()
        self.crashes = crashes
        self.fault = fault or ValueError("no")

    def start(self, system, revision, config):
        if self.crashes(config):
            raise self.fault
        return super().start(system, revision, config)


def one_slot(config):
    return config["max_num_seqs"] == 1


def test_a_target_that_never_starts_is_no_session_and_the_configuration_is_named():
    words = r"max_num_seqs=1 .* max_batch_tkv=96; to refuse it, answer with the error 'config'"
    with pytest.raises(TargetCrashed, match=words):
        session(CrashesAtStart(lambda config: True), max_num_seqs=1)


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        (ValueError("no"), "ALL-R01"),
        (TargetCrashed("start", "no", "its traceback"), "ALL-R01"),
        (TargetDied("start", 7, "its stderr"), "ALL-R01"),
        (TargetHung("start", 1.0), "ALL-R02"),
    ],
    ids=["exception", "crash", "death", "hang"],
)
def test_a_target_that_starts_by_default_breaks_a_rule_if_it_crashes_elsewhere(fault, rule):
    run = session(CrashesAtStart(one_slot, fault), max_num_seqs=1)
    [broken] = run.broken_at_start
    assert (broken.rule, broken.step) == (rule, 0)
    assert run.started.version == "sound"
    assert run.monitor.exercised[rule] == 1


def test_the_message_of_a_crash_at_the_start_says_how_to_refuse_a_configuration():
    [broken] = session(CrashesAtStart(one_slot), max_num_seqs=1).broken_at_start
    assert str(broken.message) == (
        "the scheduler raised at 'start': ValueError: no; to refuse a configuration, answer with "
        "the error 'config'"
    )


def test_a_crash_at_the_start_that_does_not_occur_again_is_a_broken_target():
    times = iter([True, False, False])
    with pytest.raises(TargetBroken, match="not when it was started again"):
        session(CrashesAtStart(lambda _: next(times)), max_num_seqs=1)


def test_a_replay_ends_with_a_crash_at_the_start():
    config = full_config("spyre", "sound", SMALL | {"max_num_seqs": 1})
    scenario = Scenario(system="spyre", revision="sound", config=config, requests=(request("a"),))
    outcome = replay(CrashesAtStart(one_slot), scenario, RULES)
    assert [broken.rule for broken in outcome.broken] == ["ALL-R01"]
    assert (outcome.steps, outcome.cut_short, outcome.finished) == (0, True, False)
    known = replay(CrashesAtStart(one_slot), scenario, RULES, new=lambda *_: [])
    assert (known.broken, known.cut_short, known.finished) == ([], True, False)


def test_a_refused_configuration_is_no_session():
    with pytest.raises(
        ConfigRefused, match="7 blocks cannot hold a request of max_model_len tokens"
    ):
        session(ModelTarget(), "2.5.2", num_blocks=7)
    assert session(ModelTarget(), "2.5.2", num_blocks=8).started.version == "2.5.2"


def test_a_target_that_cannot_abort_goes_on_without():
    class NoAbort(ModelTarget):
        def abort(self, id, inside=False):  # noqa: A002
            return {"ok": False, "error": "unsupported", "message": "cannot"}

    run = session(NoAbort())
    run.add(request("a"))
    run.add(request("b"))
    assert run.abort("a", False) == run.abort("b", True) == []
    assert run_out(run) == []
    assert {account.ended for account in run.monitor.history.requests.values()} == {"length"}


@pytest.mark.parametrize("inside", [False, True])
def test_an_abort_is_passed_on_and_must_be_reported(inside):
    run = session(ModelTarget())
    run.add(request("a"))
    run.add(request("b"))
    assert run.abort("a", inside) == []
    assert run.step() == []
    assert run.recent[-1][1].finished == {"a": "aborted"}


def test_lockstep_names_the_fields_that_differ_from_the_release():
    class SoundInstead(ModelTarget):
        def start(self, system, revision, config):
            return super().start(system, "sound", config)

    class Bends(ModelTarget):
        def step(self):
            reply = super().step()
            reply["step"]["computed"] = {}
            return reply

    same = session(type("Release", (ModelTarget,), {})(), "2.1.2")
    same.add(request("a"))
    assert run_out(same) == []
    other = session(Bends(), "2.1.2")
    other.add(request("a"))
    *_, broken = run_out(other)
    assert broken.rule == "ALL-R07"
    assert broken.message == "computed: target {}, model {'a': 5}"


@pytest.mark.parametrize("revision", ["2.1.2", "2.5.2"])
@pytest.mark.parametrize("hidden", ["tkv", "blocks", "slot_blocks", "waiting", "computed"])
def test_what_a_release_does_not_show_is_no_difference_from_its_model(hidden, revision):
    class Shy(ModelTarget):
        def start(self, system, revision, config):
            reply = super().start(system, revision, config)
            return reply | {"observes": [name for name in reply["observes"] if name != hidden]}

        def step(self):
            step = super().step()["step"]
            return {"ok": True, "step": {key: step[key] for key in step if key != hidden}}

    run = session(Shy(), revision)
    for name, prompt in (("a", 5), ("b", 9), ("c", 1)):
        run.add(request(name, prompt))
    assert run_out(run) == []
    assert run.monitor.exercised["ALL-R07"] == run.monitor.history.step


@pytest.mark.parametrize("revision", ["2.1.2", "2.5.2"])
def test_a_release_may_number_its_blocks_as_it_likes(revision):
    class Renumbers(ModelTarget):
        def step(self):
            step = super().step()["step"]
            for field in ("blocks", "slot_blocks"):
                step[field] = {
                    name: [block and 100 - block for block in own]
                    for name, own in step[field].items()
                }
            return {"ok": True, "step": step}

    run = session(Renumbers(), revision, prefix_caching=True)
    for name, prompt in (("a", 5), ("b", 9)):
        run.add(request(name, prompt))
    assert run_out(run) == []
    assert run.monitor.exercised["ALL-R07"] == run.monitor.history.step


def test_a_release_that_takes_a_request_beyond_a_limit_is_no_longer_compared():
    class TakesAll(ModelTarget):
        def add(self, request):
            return {"ok": True}

    run = session(TakesAll(), "2.1.2")
    assert run.add(request("long", 100)) == []
    # It is judged by what it does then: here it loses it.
    assert "ALL-R03" in {broken.rule for broken in run_out(run)}
    assert run.monitor.exercised["ALL-R07"] == 0


@pytest.mark.parametrize(("drafts", "expected"), [(0, False), (2, True)])
def test_only_a_target_with_drafts_is_told_how_many_are_right(drafts, expected):
    requests: list[Mapping[str, Any]] = []

    class Listens(ModelTarget):
        def add(self, request):
            requests.append(request)
            return super().add(request)

    config = full_config("vllm", "documented", {"num_speculative_tokens": drafts})
    run = Session(Listens(), "vllm", "documented", config, load("vllm"))
    run.add(Request(id="a", arrival=0, prompt=(("a", 3),), max_tokens=3, accepted=(1,)))
    assert [("accepted" in options) for options in requests] == [expected]
