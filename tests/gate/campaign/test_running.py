"""One item run: the same result every time, and a finding that replays."""

import random
import subprocess
import sys
import threading
import warnings

import msgspec
import pytest
from msgspec.structs import replace

from schedproof.gate.campaign import running
from schedproof.gate.campaign.items import (
    Item,
    Kind,
    Result,
    Sample,
    Shrinking,
    canonical,
    digest_of,
)
from schedproof.gate.campaign.running import rules_of, run_item, work
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.failure_signature import shape
from schedproof.properties.checking.replay import replay
from schedproof.properties.vllm import ANY_LENGTH, WITH_THE_NULL_BLOCK
from schedproof.tests.mutants.targets import TakesForEver

from ..build import PlansItsPool

KIND = Kind(system="nano_vllm", revision="0.2.0", scale="small")
DOCUMENTED = replace(KIND, revision="documented")
BREAKS = Sample(kind=KIND, seed=0, examples=30)


@pytest.fixture(scope="module")
def broken():
    return run_item(BREAKS)


@pytest.mark.slow
def test_threads_that_use_random_as_those_of_a_worker_do_are_no_fault_of_an_item(broken):
    over = threading.Event()

    def draws():
        while not over.is_set():
            random.random()

    thread = threading.Thread(target=draws)
    thread.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result, _ = work(BREAKS)
    finally:
        over.set()
        thread.join()
    assert result == broken


@pytest.mark.slow
@pytest.mark.parametrize("item", [BREAKS, Shrinking])
def test_an_item_is_the_same_read_again_and_has_the_same_id(item, broken):
    if item is Shrinking:
        item = Shrinking(failure=broken.failures[0])
    again = msgspec.json.decode(canonical(item), type=Item)
    assert again == item
    assert digest_of(again) == digest_of(item)


@pytest.mark.slow
def test_another_process_with_other_hashes_gives_the_same_result(broken):
    program = (
        "import msgspec, sys\nfrom schedproof.gate.campaign.items import Item, canonical\n"
        "from schedproof.gate.campaign.running import run_item\n"
        "item = msgspec.json.decode(sys.stdin.buffer.read(), type=Item)\n"
        "sys.stdout.buffer.write(canonical(run_item(item)))"
    )
    reported = subprocess.run(
        [sys.executable, "-c", program],
        input=canonical(BREAKS),
        capture_output=True,
        check=True,
        env={"PYTHONHASHSEED": "7"},
    )
    assert msgspec.json.decode(reported.stdout, type=Result) == broken


def test_every_failure_of_a_sample_replays_and_each_has_a_shape_of_its_own(broken):
    assert broken.failures
    rules = rules_of("nano_vllm", "0.2.0")
    for failure in broken.failures:
        first = replay(ModelTarget(), failure.scenario, rules).broken[0]
        assert first.rule == failure.rule
        assert shape(first, failure.scenario.request_ids) == failure.shape
    assert len({failure.shape for failure in broken.failures}) == len(broken.failures)


def test_a_shrunk_failure_is_no_larger_and_breaks_what_it_says(broken):
    failure = broken.failures[0]
    [small] = run_item(Shrinking(failure=failure)).failures
    assert len(small.scenario.requests) <= len(failure.scenario.requests)
    assert small.shape == failure.shape
    outcome = replay(ModelTarget(), small.scenario, rules_of("nano_vllm", "0.2.0"))
    assert outcome.broken[0].rule == failure.rule
    assert outcome.unmet == []


@pytest.mark.slow
def test_a_failure_that_does_not_come_again_shrinks_to_nothing(broken):
    failure = broken.failures[0]
    other = Shrinking(failure=failure, rules=("ALL-R04",))
    result = run_item(other)
    assert result.failures == ()
    assert not result.complete


def test_what_raises_is_a_result_that_says_so():
    result = run_item(replace(BREAKS, kind=replace(KIND, scale="enormous")))
    assert result.failed.startswith("KeyError: ")
    assert not result.complete


class Moody(ModelTarget):
    """Refuses every third request, whatever it is."""

    asked = 0

    def add(self, request):
        self.asked += 1
        if self.asked % 3:
            return super().add(request)
        return {"ok": False, "error": "rejected", "message": "not now"}


def test_a_target_that_is_not_deterministic_passes_nothing(monkeypatch):
    moody = Moody()
    monkeypatch.setattr(running, "target_of", lambda spec: moody)
    # What it refuses at the door is a broken rule by itself.
    rules = ("NAN-R04", "NAN-R40")
    item = replace(BREAKS, kind=DOCUMENTED, target="toys:Moody", rules=rules, examples=120)
    result = run_item(item)
    assert result.scenarios < item.examples
    assert result.failed.endswith("runs: the target is not deterministic")
    assert not result.complete


def test_a_target_that_hangs_is_searched_no_more(monkeypatch):
    monkeypatch.setattr(running, "target_of", lambda spec: TakesForEver())
    item = replace(BREAKS, kind=DOCUMENTED, target="toys:Slow", examples=300)
    found = run_item(item)
    assert [failure.rule for failure in found.failures] == ["ALL-R02"]
    assert 0 < found.scenarios < item.examples
    assert (found.complete, found.failed) == (False, "")


class CountsRefusals(PlansItsPool):
    refused = 0

    def start(self, system, revision, config):
        reply = super().start(system, revision, config)
        self.refused += not reply["ok"]
        return reply


@pytest.mark.parametrize("avoid", [(), (ANY_LENGTH, WITH_THE_NULL_BLOCK)])
def test_what_a_release_does_not_start_with_is_not_drawn(avoid, monkeypatch):
    target = CountsRefusals()
    monkeypatch.setattr(running, "target_of", lambda spec: target)
    kind = Kind(system="vllm", revision="documented", scale="small", avoid=avoid)
    run_item(Sample(kind=kind, seed=1, examples=20, target="toys:P", rules=("V1-I2",)))
    assert (target.refused == 0) == bool(avoid)


@pytest.mark.slow
def test_a_configuration_that_is_refused_is_no_moody_target(monkeypatch):
    refuses = ModelTarget()
    refusal = {"ok": False, "error": "config", "message": "no"}
    monkeypatch.setattr(refuses, "start", lambda *_: refusal)
    monkeypatch.setattr(running, "target_of", lambda spec: refuses)
    fixed = full_config("nano_vllm", "documented", {})  # so that it is refused again and again
    kind = replace(DOCUMENTED, fixed=fixed)
    result = run_item(replace(BREAKS, kind=kind, target="toys:No"))
    assert (result.scenarios, result.failed, result.complete) == (0, "", False)
