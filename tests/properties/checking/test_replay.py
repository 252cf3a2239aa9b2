"""Replay: the order of events, where a run ends, and what was expected of it."""

from typing import Any

import msgspec
import pytest

from schedproof.model.errors import InputError
from schedproof.model.observation import Step
from schedproof.model.scenario import Expectation, Request, Scenario
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.properties.checking.session import STUCK
from schedproof.spec.catalogue import load, select

RULES = load("spyre")
SMALL = {"block_size": 4, "chunk_size": 8, "max_model_len": 32, "max_batch_tkv": 96}


def request(name, arrival=0, **changes):
    values: dict[str, Any] = {"prompt": ((name, 5),), "max_tokens": 4} | changes
    return Request(id=name, arrival=arrival, **values)


def scenario(*requests, **expect):
    return Scenario(
        system="spyre",
        revision="sound",
        config=SMALL,
        requests=requests or (request("a"),),
        expect=Expectation(**expect) if expect else None,
    )


class Recorder(ModelTarget):
    """The model, and the calls it gets."""

    def __init__(self):
        super().__init__()
        self.calls: list[str] = []

    def add(self, request):
        self.calls.append(f"add {request['id']}")
        return super().add(request)

    def abort(self, id, inside=False):  # noqa: A002
        self.calls.append(f"abort {id}{' inside' * inside}")
        return super().abort(id, inside)

    def step(self):
        self.calls.append("step")
        return super().step()


class Ghost(ModelTarget):
    """Shows a request that no request sent, once three tokens are computed in a step's decode."""

    def step(self):
        reply = super().step()
        if reply["step"]["kind"] == "decode":
            reply["step"]["waiting"] = ["ghost"]
        return reply


def run(*requests, target=None, **expect):
    return replay(target or ModelTarget(), scenario(*requests, **expect), RULES)


def test_arrivals_come_in_list_order_before_aborts_and_both_before_the_step():
    target = Recorder()
    outcome = run(
        request("b", 1, abort_at=2, abort_inside=True),
        request("a"),
        request("c", 1, abort_at=1),
        target=target,
    )
    assert outcome.finished
    assert target.calls[:8] == [
        *("add a", "step", "add b", "add c", "abort c", "step", "abort b inside", "step")
    ]


def test_a_request_that_is_rejected_is_not_aborted():
    target = Recorder()
    long = request("long", prompt=(("long", 99),), abort_at=1)
    assert run(request("a"), long, target=target).finished
    assert not any(word.startswith("abort") for word in target.calls)


def test_a_run_goes_on_to_the_last_event_though_nobody_is_there():
    outcome = run(request("a", 4))
    assert outcome.finished
    assert outcome.steps > 4
    assert outcome.exercised["ALL-R01"] == outcome.steps - 4


def test_every_step_is_shown_in_order():
    seen: list[tuple[int, Step]] = []
    outcome = replay(ModelTarget(), scenario(), RULES, lambda number, s: seen.append((number, s)))
    assert [number for number, _ in seen] == list(range(outcome.steps))


def test_the_first_broken_step_ends_a_run():
    outcome = run(target=Ghost())
    assert outcome.broken[0].rule == "ALL-R03"
    assert outcome.broken[0].step == outcome.steps - 1 == 1
    assert not outcome.finished


def but_lockstep(broken, _):
    return [failure for failure in broken if failure.rule != "ALL-R07"]


def test_a_run_that_departs_from_its_model_as_known_is_judged_by_the_other_rules():
    class Departs(ModelTarget):
        number = -1

        def step(self):
            reply = super().step()
            self.number += 1
            reply["step"]["tkv"] += self.number == 1
            reply["step"]["waiting"] = ["ghost"] * (self.number == 2)
            return reply

    beside = msgspec.structs.replace(*select(RULES, ["ALL-R07"]), revisions=("*",), beside="sound")
    outcome = replay(Departs(), scenario(), [beside, *select(RULES, ["ALL-R03"])], new=but_lockstep)
    [failure] = outcome.broken
    assert (failure.rule, failure.step) == ("ALL-R03", 2)


def test_a_refusal_that_is_known_does_not_repeat_what_clients_do():
    class Strict(Recorder):
        def add(self, request):
            self.calls.append(f"add {request['id']}")
            if request["id"] == "a":
                return {"ok": False, "error": "rejected", "message": "no"}
            return ModelTarget.add(self, request)

    target = Strict()
    requests = (request("a"), request("b", abort_at=0), request("c", 1))
    outcome = replay(target, scenario(*requests), RULES, new=lambda broken, _: [])
    assert target.calls[:4] == ["add a", "add b", "abort b", "step"]
    assert outcome.finished


def test_a_run_is_cut_after_the_last_step_asked_for():
    outcome = replay(ModelTarget(), scenario(), RULES, last_step=1)
    assert (outcome.steps, outcome.finished, outcome.broken) == (2, False, [])


def test_a_target_that_never_ends_is_left_though_no_rule_is_checked():
    class Idler(ModelTarget):
        def step(self):
            reply = ModelTarget.step(self)
            empty = {"kind": "idle", "scheduled": {}, "emitted": {}, "finished": {}}
            return {"ok": True, "step": reply["step"] | empty}

    outcome = replay(Idler(), scenario(), select(RULES, ["SPY-R20"]))
    assert not outcome.finished
    assert not outcome.broken


def test_a_run_without_progress_ends_soon_unless_its_end_is_judged():
    class Stuck(ModelTarget):
        def step(self):
            idle = {"kind": "idle", "scheduled": {}, "emitted": {}, "finished": {}}
            return {"ok": True, "step": ModelTarget.step(self)["step"] | idle}

    config = SMALL | {"max_model_len": 4096, "max_batch_tkv": 8192}
    run = msgspec.structs.replace(scenario(request("a", max_tokens=4000)), config=config)
    assert replay(Stuck(), run, select(RULES, ["SPY-R20"])).steps == STUCK
    late = msgspec.structs.replace(run, requests=(*run.requests, request("b", arrival=STUCK + 50)))
    assert replay(Stuck(), late, select(RULES, ["SPY-R20"])).steps == STUCK + 51
    [broken] = replay(Stuck(), run, select(RULES, ["ALL-R06"])).broken
    assert broken.step > STUCK


@pytest.mark.parametrize(
    ("broken", "expect", "unmet"),
    [
        (False, {}, []),
        (False, {"holds": True}, []),
        (True, {"holds": True}, ["the run breaks ALL-R03; expected that every rule holds"]),
        (True, {"violates": ("ALL-R03",)}, []),
        (False, {"violates": ("ALL-R03",)}, ["the run breaks no rule; expected ALL-R03"]),
        (True, {"violates": ("SPY-R07",)}, ["the run breaks ALL-R03; expected SPY-R07"]),
        (
            True,
            {"violates": ("ALL-R03", "SPY-R07")},
            ["the run breaks ALL-R03; expected ALL-R03, SPY-R07"],
        ),
    ],
)
def test_exactly_the_rules_named_must_break_first(broken, expect, unmet):
    assert run(target=Ghost() if broken else ModelTarget(), **expect).unmet == unmet


def test_an_expected_rule_that_is_not_checked_is_not_missed():
    expected = scenario(violates=("SPY-R07",))
    assert replay(ModelTarget(), expected, select(RULES, ["ALL-R03"])).unmet == []


def test_listed_steps_are_compared_on_the_fields_that_they_give():
    steps = (
        {"step": 0, "kind": "prefill", "blocks": {"a": [1, 2]}, "running": ["a"]},
        {"step": 1, "kind": "prefill", "running": [], "paused": ["a"]},
        {"step": 9, "kind": "idle", "scheduled": {}},
    )
    outcome = run(steps=steps)
    assert outcome.steps == 10
    assert outcome.unmet == [
        'step 1: kind is "decode", expected "prefill"',
        'step 1: running is ["a"], expected []',
        'step 1: paused is null, expected ["a"]',
    ]


def test_a_field_that_no_step_has_is_refused_before_anything_runs():
    target = Recorder()
    with pytest.raises(InputError, match=r"^\$\.expect\.steps\[0\]\.tkvs: unknown field; valid"):
        run(target=target, steps=({"step": 0, "tkvs": 1},))
    assert target.calls == []


FAR = {
    "spyre": "documented",
    "vllm": "documented",
    "nano_vllm": "documented",
    "llmservingsim": "head",
    "generic": "documented",
}


@pytest.mark.parametrize("system", FAR)
def test_idle_steps_that_are_left_out_change_nothing(system):
    requests = (request("a"), request("b", 40), request("c", 41, abort_at=90), request("d", 120))
    run = Scenario(
        system=system,
        revision=FAR[system],
        config={},
        requests=requests,
        expect=Expectation(steps=({"step": 100, "kind": "idle"},)),
    )
    seen: tuple[dict[int, Step], ...] = ({}, {})
    gaps: list[tuple[int, int]] = []

    def skipped(first, last):
        gaps.append((first, last))

    whole = replay(ModelTarget(), run, load(system), seen[0].__setitem__)
    short = replay(ModelTarget(), run, load(system), seen[1].__setitem__, skipped=skipped)
    left_out = [number for first, last in gaps for number in range(first, last + 1)]
    assert len(left_out) > 70
    assert all(seen[0][number].kind == "idle" for number in left_out)
    assert {**seen[1], **{number: seen[0][number] for number in left_out}} == seen[0]
    assert (short.steps, short.finished, short.broken) == (whole.steps, True, whole.broken)
    assert short.unmet == whole.unmet == []
    busy = [rule for rule in whole.exercised if short.exercised[rule]]
    assert {*busy} == {rule for rule, times in whole.exercised.items() if times}


def test_no_step_is_left_out_after_the_last_event():
    sent = request("a", abort_at=0, send_steps=9, send_aborted=True)
    config = {"kv_connector": True}
    run = Scenario(system="vllm", revision="documented", config=config, requests=(sent,))
    outcome = replay(ModelTarget(), run, load("vllm"), skipped=pytest.fail)
    assert (outcome.finished, outcome.broken) == (True, [])


def test_no_step_of_a_target_that_is_no_model_is_left_out():
    run = scenario(request("a"), request("b", 40))
    assert replay(Recorder(), run, RULES, skipped=pytest.fail).steps > 40
