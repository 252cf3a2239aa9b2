"""What a target answered, given again."""

import pytest

from schedproof.model.faults import TargetCrashed, TargetDied, TargetHung, TargetTooLarge
from schedproof.model.scenario import Request, Scenario
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.differential_target import Pair, Side
from schedproof.properties.checking.recording import Recorded, Recorder, RecordError
from schedproof.properties.checking.replay import replay

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
    pair = Pair(*sides)
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
    found = beside(answers, ModelTarget()).difference
    assert found is not None
    assert found.shape == "decision: how many are scheduled"


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
    found = beside(answers, ModelTarget()).difference
    assert found is not None
    assert (found.kind, found.step) == (kind, 1)
    assert found.message.startswith("A: ")
    assert beside(answers, Fails(fault)).difference is None


def test_one_that_could_not_abort_is_compared_without_aborts():
    answers = recorded(NeverAborts(), abort_at=3)
    pair = beside(answers, ModelTarget(), abort_at=3)
    assert pair.difference is None
    assert pair.cannot_abort[False] == "A: no aborts"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda answers: answers.pop(), "'nothing'; the scenario asks 'step'"),
        (lambda answers: answers.insert(1, ("step", {})), "'step'; the scenario asks 'add'"),
        (lambda answers: answers[1][1].clear(), "$.answers[1]: ok is None"),
        (lambda answers: answers[0][1].pop("observes"), "$.answers[0]: observes is None"),
        (lambda answers: answers[-1][1]["step"].pop("kind"), "field kind is promised"),
    ],
)
def test_answers_that_do_not_fit_are_an_error_with_their_place(damage, message):
    answers = recorded(ModelTarget())
    damage(answers)
    with pytest.raises(RecordError) as error:
        beside(answers, ModelTarget())
    assert message in str(error.value)
