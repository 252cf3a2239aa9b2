"""`--compare-with`: any target may ask for the model of a revision beside it, or refuse it."""

import pytest

from schedproof.gate.judging.profiles import PROFILES, Profile
from schedproof.gate.judging.rule_choice import rules_to_judge
from schedproof.gate.library.judging import judge, replay
from schedproof.gate.targets import probe as probing
from schedproof.gate.targets.target_spec import parse_target
from schedproof.model.errors import InputError
from schedproof.model.scenario import Request, Scenario
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay as replay_steps

LOCKSTEP = "ALL-R07"


@pytest.fixture(autouse=True)
def _little(monkeypatch):
    """As many runs as show what is asserted."""
    monkeypatch.setattr(probing, "SCALES", ("small",))
    monkeypatch.setitem(PROFILES, "quick", Profile(20, 10, 10, 200))


class DecidesAs(ModelTarget):
    """A user's own scheduler that decides as one revision, whatever it is held to."""

    def __init__(self, revision):
        super().__init__()
        self._decides_as = revision

    def start(self, system, revision, config):
        reply = super().start(system, self._decides_as, config)
        return reply | {"name": "my scheduler", "version": "1"} if reply["ok"] else reply


def statuses(verdict):
    return {rule.id: rule.status for rule in verdict.rules}


@pytest.mark.slow
def test_a_scheduler_of_any_name_is_compared_with_the_revision_that_it_names(tmp_path):
    asked = {"revision": "sound", "out": tmp_path, "rules": [LOCKSTEP]}
    same = judge(DecidesAs("2.1.2"), compare_with="2.1.2", **asked)
    assert statuses(same)[LOCKSTEP] == "held"
    other = judge(DecidesAs("2.1.2"), compare_with="2.5.2", **asked)
    assert statuses(other)[LOCKSTEP] == "violated"


@pytest.mark.slow
def test_a_scheduler_that_refuses_lockstep_is_judged_by_the_documented_rules_only(tmp_path):
    # Without the refusal it departs from the model of 2.1.2 at once.
    asked = {"revision": "2.1.2", "out": tmp_path}
    rules = ["SPY-R30", "SPY-R53", "SPY-R22"]
    compared = judge(DecidesAs("sound"), rules=[*rules, LOCKSTEP], **asked)
    assert statuses(compared)[LOCKSTEP] == "violated"
    alone = judge(DecidesAs("sound"), compare_with="none", rules=rules, **asked)
    assert set(statuses(alone).values()) == {"held"}


def test_lockstep_asks_for_one_model_and_is_judged_step_by_step():
    alone = Request(id="r0", arrival=0, prompt=(("r0", 5),), max_tokens=2)
    scenario = Scenario(system="spyre", revision="sound", config={}, requests=(alone,))
    rules = rules_to_judge("spyre", None, "sound", parse_target("model"), "2.5.2")
    outcome = replay_steps(ModelTarget(), scenario, rules)
    assert outcome.exercised[LOCKSTEP] == outcome.steps
    assert not replay(scenario).exercised[LOCKSTEP]


@pytest.mark.parametrize(
    ("compare_with", "rules", "says"),
    [
        ("9.9", None, "--compare-with: '9.9'; valid: sound, documented, 2.1.2"),
        ("none", [LOCKSTEP], f"--rule: {LOCKSTEP} contradicts --compare-with none"),
    ],
)
def test_what_means_nothing_is_one_error(compare_with, rules, says):
    with pytest.raises(InputError, match=says):
        rules_to_judge("spyre", rules, "sound", parse_target("model"), compare_with)
