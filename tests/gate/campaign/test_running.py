"""One item run: the same result every time, and a finding that replays."""

import random
import subprocess
import sys
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis.database import InMemoryExampleDatabase
from msgspec.structs import replace

from schedproof.gate.campaign import running
from schedproof.gate.campaign.examples import Shelf, database_of
from schedproof.gate.campaign.executors import work
from schedproof.gate.campaign.items import (
    Exploring,
    Item,
    Proving,
    Sample,
    Shrinking,
    canonical,
    id_of,
    item_of,
)
from schedproof.gate.campaign.results import Result, result_of
from schedproof.gate.campaign.running import rules_of, run_item
from schedproof.model.errors import InputError
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget, Reply
from schedproof.properties.checking.replay import replay
from schedproof.properties.checking.shape import shape
from schedproof.properties.search.boundary_cases import used
from schedproof.tests.mutants.targets import TakesForEver

BREAKS = Sample(system="nano_vllm", revision="0.2.0", scale="small", seed=0, examples=30)
SCOPE = Exploring(
    system="spyre", revision="documented", scope="sequential", requests=2, transitions=10_000
)
FEWEST = Proving(
    system="spyre", revision="documented", rule="SPY-R07", block=4, limit=40, requests=2
)
LEMMAS = Proving(system="vllm", revision="documented", rule="V1-I2", block=64)


@pytest.fixture(scope="module")
def broken() -> Result:
    return run_item(BREAKS)


def test_threads_that_use_random_as_those_of_a_worker_do_are_no_fault_of_an_item(
    broken: Result,
) -> None:
    over = threading.Event()

    def draws() -> None:
        while not over.is_set():
            random.random()

    thread = threading.Thread(target=draws)
    thread.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ran = work(BREAKS, None)
    finally:
        over.set()
        thread.join()
    assert ran.result == broken


@pytest.mark.parametrize("item", [BREAKS, SCOPE, FEWEST, Shrinking])
def test_an_item_is_the_same_read_again_and_has_the_same_id(item: Item, broken: Result) -> None:
    if item is Shrinking:
        item = Shrinking(failure=broken.failures[0])
    again = item_of(canonical(item))
    assert again == item
    assert id_of(again) == id_of(item)


@pytest.mark.slow
def test_another_process_with_other_hashes_gives_the_same_result(broken: Result) -> None:
    asked = (
        "import sys\nfrom schedproof.gate.campaign.items import canonical, item_of\n"
        "from schedproof.gate.campaign.running import run_item\n"
        "sys.stdout.buffer.write(canonical(run_item(item_of(sys.stdin.buffer.read()))))"
    )
    reported = subprocess.run(
        [sys.executable, "-c", asked],
        input=canonical(BREAKS),
        capture_output=True,
        check=True,
        env={"PYTHONHASHSEED": "7"},
    )
    assert result_of(reported.stdout) == broken


def test_every_failure_of_a_sample_replays_and_each_has_a_shape_of_its_own(
    broken: Result,
) -> None:
    assert broken.failures
    rules = rules_of("nano_vllm", "0.2.0")
    for failure in broken.failures:
        first = replay(ModelTarget(), failure.scenario, rules).broken[0]
        assert first.rule == failure.rule
        assert shape(first, [one.id for one in failure.scenario.requests]) == failure.shape
    assert len({failure.shape for failure in broken.failures}) == len(broken.failures)


@pytest.mark.slow
def test_a_failure_that_is_known_is_none(broken: Result) -> None:
    known = tuple(failure.shape for failure in broken.failures)
    knowing = Sample(
        system="nano_vllm", revision="0.2.0", scale="small", seed=0, examples=30, known=known
    )
    shapes = {failure.shape for failure in run_item(knowing).failures}
    assert shapes.isdisjoint(known)


def test_a_near_miss_says_what_the_run_left(broken: Result) -> None:
    assert broken.near["num_blocks"].left >= 0
    assert broken.near["num_blocks"].config["num_blocks"] > 0
    lone = used(broken.failures[0].scenario, "max_num_seqs", [])
    assert lone is None


def test_a_shrunk_failure_is_no_larger_and_breaks_what_it_says(broken: Result) -> None:
    failure = broken.failures[0]
    [small] = run_item(Shrinking(failure=failure)).failures
    assert len(small.scenario.requests) <= len(failure.scenario.requests)
    assert small.shape == failure.shape
    outcome = replay(ModelTarget(), small.scenario, rules_of("nano_vllm", "0.2.0"))
    assert outcome.broken[0].rule == failure.rule
    assert outcome.unmet == []


@pytest.mark.slow
def test_a_failure_that_does_not_come_again_shrinks_to_nothing(broken: Result) -> None:
    failure = broken.failures[0]
    other = Shrinking(failure=failure, rules=("ALL-R04",))
    result = run_item(other)
    assert result.failures == ()
    assert not result.complete


@pytest.mark.slow
def test_a_scope_breaks_what_the_document_breaks() -> None:
    result = run_item(SCOPE)
    assert result.complete
    assert {failure.rule for failure in result.failures} == {"SPY-R07", "SPY-R47"}
    assert result.scenarios > 500


@pytest.mark.slow
def test_z3_finds_the_fewest_requests_and_proves_lemmas() -> None:
    found = run_item(FEWEST)
    assert found.says == {"2 requests": "sat"}
    assert [failure.rule for failure in found.failures] == ["SPY-R07"]
    proven = run_item(LEMMAS)
    assert set(proven.says.values()) == {"proven"}
    assert proven.complete


def test_what_raises_is_a_result_that_says_so() -> None:
    result = run_item(
        Sample(system="vllm", revision="documented", scale="enormous", seed=0, examples=1)
    )
    assert result.failed.startswith("KeyError: ")
    assert not result.complete


class Moody(ModelTarget):
    """Refuses every third request, whatever it is."""

    asked = 0

    def add(self, request: Mapping[str, Any]) -> Reply:
        self.asked += 1
        if self.asked % 3:
            return super().add(request)
        return {"ok": False, "error": "rejected", "message": "not now"}


def test_a_target_that_is_not_deterministic_passes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    moody = Moody()
    monkeypatch.setattr(running, "target_of", lambda spec: moody)
    # What it refuses at the door is a broken rule by itself.
    rules = ("NAN-R04", "NAN-R40")
    result = run_item(replace(BREAKS, revision="documented", target="toys:Moody", rules=rules))
    assert result.scenarios < BREAKS.examples
    assert result.failed.endswith("runs: the target is not deterministic")
    assert not result.complete


def test_a_target_that_hangs_is_searched_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "target_of", lambda spec: TakesForEver())
    asked = replace(BREAKS, revision="documented", target="toys:Slow", examples=300)
    found = run_item(asked)
    assert [failure.rule for failure in found.failures] == ["ALL-R02"]
    again = run_item(replace(asked, known=(found.failures[0].shape,)))
    for result in (found, again):
        assert 0 < result.scenarios < asked.examples
        assert (result.complete, result.failed) == (False, "")
    assert again.failures == ()


def test_a_configuration_that_is_refused_is_no_moody_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refuses = ModelTarget()
    refusal = {"ok": False, "error": "config", "message": "no"}
    monkeypatch.setattr(refuses, "start", lambda *asked: refusal)
    monkeypatch.setattr(running, "target_of", lambda spec: refuses)
    config = full_config("nano_vllm", "documented", {})
    result = run_item(replace(BREAKS, revision="documented", target="toys:No", config=config))
    assert (result.scenarios, result.failed, result.complete) == (0, "", False)


def test_what_broke_is_tried_first_where_the_database_is_shared() -> None:
    database = InMemoryExampleDatabase()
    found = run_item(BREAKS, database).failures[0]
    first = Sample(
        system="nano_vllm", revision="0.2.0", scale="small", seed=99, examples=1, first=True
    )
    assert run_item(first).failures == ()
    assert run_item(first, database).failures[0].shape == found.shape


def test_examples_of_other_systems_are_not_tried() -> None:
    whole = InMemoryExampleDatabase()
    one, other = Shelf(whole, "spyre sound small"), Shelf(whole, "vllm documented small")
    one.save(b"key", b"example")
    assert list(one.fetch(b"key")) == [b"example"]
    assert list(other.fetch(b"key")) == []
    one.delete(b"key", b"example")
    assert list(one.fetch(b"key")) == []


def test_a_database_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place, problem in (
        (str(tmp_path / "file" / "folder"), "Not a directory"),
        ("redis://127.0.0.1:1/0", "refused|not installed"),
    ):
        with pytest.raises(InputError, match=f"--database: .*{problem}"):
            database_of(place)
