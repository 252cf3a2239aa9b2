"""What `import schedproof` offers."""

import os
from asyncio import CancelledError
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis.errors import StopTest

import schedproof
from schedproof.gate.corpus.folder import entries
from schedproof.model.errors import InputError
from schedproof.model.faults import ConfigRefused, TargetBroken
from schedproof.model.scenario import Request, Scenario
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget

pytestmark = pytest.mark.usefixtures("working_folder")


@pytest.mark.parametrize("name", schedproof.LIBRARY)
def test_every_name_is_there_and_documented(name):
    assert getattr(schedproof, name).__doc__


def test_an_unknown_name_is_no_attribute():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = schedproof.nothing


@pytest.mark.slow
def test_a_counterexample_is_found_written_read_and_replayed():
    found = schedproof.search("SPY-R47", revision="documented")
    assert found is not None
    path = schedproof.write_scenario(found.scenario, "corpus", "SPY-R47")
    read = schedproof.read_scenario(path)
    assert schedproof.replay(read, rules=["SPY-R47"]).broken == [*found.broken]
    assert not schedproof.replay(found.scenario, "model:common_base", rules=["SPY-R47"]).broken
    # Under any name, it is an entry of a corpus.
    schedproof.write_scenario(found.scenario, "corpus")
    assert [entry.rule for entry in entries(Path("corpus"))] == ["SPY-R47", "SPY-R47"]


class RefusesAll(ModelTarget):
    def start(self, system, revision, config):
        return {"ok": False, "error": "config", "message": "no"}


class ShowsLittle(ModelTarget):
    """Shows no blocks."""

    def start(self, system, revision, config):
        reply = super().start(system, revision, config)
        return {**reply, "observes": ["waiting", "running"]} if reply["ok"] else reply


class RefusesRequests(ModelTarget):
    def add(self, request):
        return {"ok": False, "error": "rejected", "message": "full"}


@pytest.mark.parametrize(
    ("target", "rule", "changes", "error"),
    [
        (RefusesAll(), "GEN-R02", {}, "refuses the configuration of every scale: small"),
        (
            ShowsLittle(),
            "GEN-R07",
            {},
            "rule: GEN-R07 cannot be checked on this target, which .* b",
        ),
        ("model", "ALL-*", {}, r"rule: 'ALL-\*'; valid: the id of one rule"),
        ("model", "GEN-R02,GEN-R07", {}, "valid: the id of one rule"),
        ("model", "GEN-R02", {"seed": -1}, "seed: -1; valid: at least 0"),
        ("model", "GEN-R02", {"examples": -1}, "examples: -1; valid: at least 1"),
        ("model", "GEN-R02", {"scale": "huge"}, "scale: 'huge'; valid: small, short, tight"),
    ],
)
def test_a_search_that_can_judge_nothing_is_refused(target, rule, changes, error):
    with pytest.raises((InputError, ConfigRefused), match=error):
        schedproof.search(rule, target, system="generic", **{"examples": 5, **changes})


def test_a_search_that_never_exercises_its_rule_warns():
    with pytest.warns(UserWarning, match=r"GEN-R02 was not exercised in \d+ runs"):
        found = schedproof.search("GEN-R02", RefusesRequests(), system="generic", examples=5)
    assert found is None


@pytest.mark.parametrize(
    ("target", "arguments", "error"),
    [
        (
            ModelTarget,
            {},
            r"target: the class ModelTarget; valid: an object, such as ModelTarget\(\)",
        ),
        (None, {}, "target: None; valid: a text, or an object with the methods start, add"),
        ("model", {"seed": "0"}, "seed: '0'; valid: an integer"),
        ("model", {"seed": None}, "seed: None; valid: an integer"),
        ("model", {"rules": "SPY-R09"}, "rules: 'SPY-R09'; valid: a list of ids"),
        ("model", {"corpus": "corpus"}, "corpus: 'corpus'; valid: a list of scenarios"),
    ],
)
def test_an_argument_of_the_wrong_type_is_named(target, arguments, error):
    with pytest.raises(InputError, match=error):
        schedproof.judge(target, **arguments)


@pytest.mark.slow
def test_an_object_is_judged_in_this_process():
    verdict = schedproof.judge(ModelTarget(), rules=["SPY-R09"])
    assert [(rule.id, rule.status) for rule in verdict.rules] == [("SPY-R09", "held")]
    assert verdict.target.spec == "schedproof.model.target:ModelTarget"
    with pytest.raises(InputError, match="jobs: 2; valid if the target is an object: 1"):
        schedproof.judge(ModelTarget(), jobs=2)


class MovesAway(ModelTarget):
    """A scheduler that changes the working directory and then crashes."""

    def step(self):
        os.chdir("elsewhere")
        raise RuntimeError("gone")


def test_findings_are_written_where_the_caller_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    schedproof.judge(MovesAway(), rules=["ALL-R01"], out="out")
    assert [path.name for path in (tmp_path / "out").glob("ALL-R01-*.json")]


def one_request():
    config = full_config("generic", "documented", {"max_num_seqs": 4})
    request = Request(id="r0", arrival=0, prompt=(("r0", 3),), max_tokens=2)
    return Scenario(system="generic", revision="documented", config=config, requests=(request,))


class Careless(ModelTarget):
    """Changes everything that it is given."""

    def start(self, system, revision, config):
        reply = super().start(system, revision, config)
        config["max_num_seqs"] = 99
        del config["order"]
        return reply

    def add(self, request):
        reply = super().add(request)
        request["prompt"].clear()
        request.clear()
        return reply


def test_an_object_may_change_what_it_is_given():
    scenario = one_request()
    outcome = schedproof.replay(scenario, Careless())
    assert (outcome.finished, outcome.broken) == (True, [])
    assert outcome.session.monitor.history.config == scenario.config == one_request().config


class Leaves(ModelTarget):
    """Leaves Python, a test or a task instead of stepping."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def step(self):
        raise self.error


@pytest.mark.parametrize(
    "error",
    [SystemExit(0), GeneratorExit(), CancelledError(), StopTest(0), pytest.skip.Exception("x")],
)
def test_an_object_that_leaves_python_or_a_test_has_crashed(error):
    [broken] = schedproof.replay(one_request(), Leaves(error)).broken
    assert broken.rule == "ALL-R01"
    assert f"{type(error).__name__}: {error}" in broken.message


class WithoutWordsError(Exception):
    def __str__(self):
        raise RuntimeError


def test_an_object_whose_exception_cannot_be_printed_has_crashed():
    [broken] = schedproof.replay(one_request(), Leaves(WithoutWordsError())).broken
    assert broken.rule == "ALL-R01"
    assert "WithoutWordsError: str() failed: RuntimeError" in broken.message


@pytest.mark.parametrize("error", [KeyboardInterrupt, pytest.fail.Exception])
def test_what_interrupts_a_test_interrupts_a_replay(error):
    with pytest.raises(error):
        schedproof.replay(one_request(), Leaves(error("timeout")))


class Unprintable:
    def __repr__(self):
        raise RuntimeError


@dataclass
class Emitted:
    pass


DEEP = {"ok": True}
DEEP["step"] = DEEP
NO_REPLIES = {
    "a long number": {"ok": True, "step": {"free_blocks": 10**5000}},
    "an object": {"ok": True, "step": Unprintable()},
    "an object for all": Unprintable(),
    "no Unicode": {"ok": False, "error": "crashed", "message": "\udcff"},
    "itself": DEEP,
    "nothing": None,
}


@pytest.mark.parametrize("reply", NO_REPLIES.values(), ids=NO_REPLIES)
def test_a_reply_that_is_no_json_breaks_the_protocol(reply):
    class Odd(ModelTarget):
        def step(self):
            return reply

    scenario = schedproof.read_scenario("late-arrivals-before-961")
    with pytest.raises(TargetBroken, match=r"step"):
        schedproof.replay(scenario, Odd(), rules=["ALL-R03"])


@pytest.mark.parametrize(
    "spoilt",
    [
        {"tkv": float("nan")},
        {"free_blocks": float("inf")},
        {"waiting": set()},
        {"emitted": Emitted()},
    ],
    ids=["not a number", "infinite", "a set", "a dataclass"],
)
def test_a_reply_that_no_pipe_would_carry_breaks_the_protocol(spoilt):
    class Odd(ModelTarget):
        def step(self):
            reply = super().step()
            return {**reply, "step": {**reply["step"], **spoilt}}

    with pytest.raises(TargetBroken, match=r"step"):
        schedproof.replay(one_request(), Odd(), rules=["ALL-R03"])


def test_a_wrong_argument_is_named():
    with pytest.raises(InputError, match=r"^profile: 'slow'; valid: quick, ci, nightly"):
        schedproof.judge("model", profile="slow")


def test_a_target_is_opened_and_ready_for_start():
    with schedproof.open_target("model") as target:
        assert target.start("spyre", "sound", {})["ok"]
