"""What `import schedproof` offers."""

import pytest

import schedproof
from schedproof.model.errors import InputError
from schedproof.model.target import ModelTarget


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


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


@pytest.mark.slow
def test_an_object_is_judged_in_this_process():
    verdict = schedproof.judge(ModelTarget(), rules=["SPY-R09"])
    assert [(rule.id, rule.status) for rule in verdict.rules] == [("SPY-R09", "held")]
    assert verdict.target.spec == "schedproof.model.target:ModelTarget"
    with pytest.raises(InputError, match="jobs: 2; valid for a target that is an object: 1"):
        schedproof.judge(ModelTarget(), jobs=2)


def test_a_wrong_argument_is_named():
    with pytest.raises(InputError, match=r"^profile: 'slow'; valid: quick, ci, nightly"):
        schedproof.judge("model", profile="slow")


def test_a_target_is_opened_and_ready_for_start():
    with schedproof.open_target("model") as target:
        assert target.start("spyre", "sound", {})["ok"]
