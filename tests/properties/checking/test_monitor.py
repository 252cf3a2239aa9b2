"""The judge of one run: which rules a step breaks, in which order, and what was exercised."""

from typing import Any

import pytest

from schedproof.model.faults import TargetCrashed, TargetDied, TargetHung, TargetTooLarge
from schedproof.model.observation import Step
from schedproof.model.scenario import Request, Scenario
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.differential_target import DifferentialTarget, Side
from schedproof.properties.checking.monitor import Monitor
from schedproof.properties.checking.recording import Recorded, Recorder, RecordError
from schedproof.properties.checking.replay import replay
from schedproof.properties.rules.predicate import Broken, Predicate
from schedproof.spec.catalogue import Rule, load, select

RULES = load("spyre")
CONFIG = full_config("spyre", "sound", {"block_size": 4, "chunk_size": 8})
OF: dict[str, Any] = {"revision": "sound", "system": "spyre"}
IDLE = Step(kind="idle", scheduled={})


def rule(name):
    return Rule(name, name, name, "", "safety", ("*",), ())


def monitor(**predicates):
    return Monitor([rule(name) for name in predicates], predicates, CONFIG, **OF)


def breaks(message):
    return Predicate(lambda history, step: message, lambda history, step: False)


HOLDS = Predicate(lambda history, step: None, lambda history, step: True)
IDLES = Predicate(lambda history, step: None, lambda history, step: False)


def accepted(judge, name, prompt=5):
    judge.accept(Request(id=name, arrival=0, prompt=((name, prompt),), max_tokens=3))


def test_broken_rules_are_named_in_catalogue_order_with_the_step():
    judge = monitor(A=HOLDS, B=breaks("b"), C=breaks("c"))
    assert judge.observe(IDLE) == [Broken("B", 0, "b"), Broken("C", 0, "c")]
    assert judge.observe(IDLE)[0].step == 1


def test_a_rule_is_at_stake_where_its_witness_occurs_or_it_breaks():
    judge = monitor(A=HOLDS, B=breaks("b"), C=IDLES)
    judge.observe(IDLE)
    judge.observe(IDLE)
    assert [judge.exercised[name] for name in "ABC"] == [2, 2, 0]


def test_a_predicate_reads_the_history_as_it_was_before_the_step():
    seen = []

    def look(history, step):
        seen.append((history.step, history.requests["a"].computed))
        return

    judge = monitor(A=Predicate(look, lambda history, step: False))
    accepted(judge, "a")
    judge.observe(Step(kind="prefill", scheduled={"a": 5}, emitted={"a": 1}))
    judge.observe(Step(kind="decode", scheduled={"a": 1}, emitted={"a": 1}))
    assert seen == [(0, 0), (1, 5)]


@pytest.mark.parametrize(("members", "evaluated"), [("prefill", 1), ("decode", 1), ("any", 3)])
def test_a_rule_is_asked_only_about_steps_with_its_members(members, evaluated):
    judge = monitor(A=HOLDS._replace(members=members))
    accepted(judge, "a")
    judge.observe(Step(kind="prefill", scheduled={"a": 5}))
    judge.observe(Step(kind="decode", scheduled={"a": 1}))
    judge.observe(IDLE)
    assert judge.exercised["A"] == evaluated


def test_never_crashes_and_never_hangs_are_at_stake_only_while_someone_is_unfinished():
    judge = Monitor(select(RULES, ["ALL-R01", "ALL-R02"]), {}, CONFIG, **OF)
    judge.observe(IDLE)
    assert judge.exercised.total() == 0
    accepted(judge, "a")
    judge.observe(Step(kind="prefill", scheduled={"a": 5}, finished={"a": "eos"}))
    judge.observe(IDLE)
    assert judge.exercised == {"ALL-R01": 1, "ALL-R02": 1}


def test_a_crash_and_a_hang_are_broken_rules_of_the_coming_step():
    judge = monitor()
    judge.observe(IDLE)
    assert judge.crashed("why") == [Broken("ALL-R01", 1, "why")]
    assert judge.hung("long") == [Broken("ALL-R02", 1, "long")]


def test_lockstep_comes_last_and_only_where_the_rule_is_checked():
    differs = ["kind: target idle, model prefill", "scheduled: target [], model [('a', 5)]"]
    with_rule = Monitor([rule("A"), *select(RULES, ["ALL-R07"])], {"A": breaks("a")}, CONFIG, **OF)
    assert [finding.rule for finding in with_rule.observe(IDLE)] == ["A"]
    assert [finding.rule for finding in with_rule.observe(IDLE, [])] == ["A"]
    broken = with_rule.observe(IDLE, differs)
    assert [finding.rule for finding in broken] == ["A", "ALL-R07"]
    assert broken[1].message == "; ".join(differs)
    assert monitor(A=HOLDS).observe(IDLE, differs) == []


SMALL = {"block_size": 4, "chunk_size": 8, "max_model_len": 32, "max_batch_tkv": 96}


class Fails(ModelTarget):
    """Does not take a second step."""

    def __init__(self, fault):
        super().__init__()
        self._fault = fault
        self._steps = 0

    def step(self):
        self._steps += 1
        if self._steps > 1:
            raise self._fault
        return super().step()


class NeverAborts(ModelTarget):
    def abort(self, id, inside=False):  # noqa: A002
        return {"ok": False, "error": "unsupported", "message": "no aborts"}


def scenario(**changes):
    requests = tuple(
        Request(id=name, arrival=at, prompt=((name, length),), max_tokens=4, **changes)
        for name, at, length in (("a", 0, 9), ("b", 2, 3), ("long", 2, 300))
    )
    config = full_config("spyre", "sound", SMALL)
    return Scenario(system="spyre", revision="sound", config=config, requests=requests)


def recorded(target, **changes):
    recorder = Recorder(target)
    replay(recorder, scenario(**changes), ())
    return recorder.answers


def beside(answers, target, **changes):
    sides = (Side(Recorded(answers), "spyre", "sound"), Side(target, "spyre", "sound"))
    pair = DifferentialTarget(*sides)
    replay(pair, scenario(**changes), ())
    return pair


@pytest.mark.parametrize("changes", [{}, {"abort_at": 3}, {"abort_at": 3, "abort_inside": True}])
def test_a_recorded_target_stands_in_for_itself(changes):
    answers = recorded(ModelTarget(), **changes)
    pair = beside(answers, ModelTarget(), **changes)
    assert pair.difference is None
    assert pair.coverage.steps == sum(op == "step" for op, _ in answers)


def test_what_decides_otherwise_later_is_seen():
    answers = recorded(ModelTarget())
    answers[-1][1]["step"]["scheduled"] = {"b": 2}
    difference = beside(answers, ModelTarget()).difference
    assert difference is not None
    assert difference.shape == "decision: how many are scheduled"


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (TargetCrashed("step", "broke"), "crash"),
        (TargetDied("step", 3, ""), "crash"),
        (TargetTooLarge("step", 200, 100), "crash"),
        (TargetHung("step", 3.0), "hang"),
    ],
)
def test_crashes_and_hangs_are_recorded_too(fault, kind):
    answers = recorded(Fails(fault))
    difference = beside(answers, ModelTarget()).difference
    assert difference is not None
    assert (difference.kind, difference.step) == (kind, 1)
    assert difference.message.startswith("A: ")
    assert beside(answers, Fails(fault)).difference is None


def test_one_that_could_not_abort_is_compared_without_aborts():
    answers = recorded(NeverAborts(), abort_at=3)
    pair = beside(answers, ModelTarget(), abort_at=3)
    assert pair.difference is None
    assert pair.coverage.cannot_abort[False] == "A: no aborts"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda answers: answers.pop(), "'nothing'; the scenario asks for 'step'"),
        (lambda answers: answers.insert(1, ("step", {})), "'step'; the scenario asks for 'add'"),
        (lambda answers: answers[1][1].clear(), "$.answers[1]: ok is None"),
        (lambda answers: answers[0][1].pop("observes"), "$.answers[0]: observes is None"),
        (
            lambda answers: answers[-1][1]["step"].pop("kind"),
            "the step lacks the field kind, which every step has",
        ),
    ],
)
def test_answers_that_do_not_fit_are_an_error_with_their_place(damage, message):
    answers = recorded(ModelTarget())
    damage(answers)
    with pytest.raises(RecordError) as error:
        beside(answers, ModelTarget())
    assert message in str(error.value)


def test_a_rule_is_left_out_of_configurations_without_its_feature():
    judge = monitor(
        A=breaks("a")._replace(only_with=lambda config: config["block_size"] > 4),
        B=breaks("b")._replace(only_with=lambda config: config["block_size"]),
    )
    assert judge.observe(IDLE) == [Broken("B", 0, "b")]
    assert not judge.exercised["A"]
