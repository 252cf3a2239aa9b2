"""The loop of a campaign: whatever happens on the way, the ledger ends up the same."""

from contextlib import nullcontext
from itertools import islice

import pytest

from schedproof.gate.campaign import options as campaign_options
from schedproof.gate.campaign.items import (
    EXAMPLES,
    Item,
    Kind,
    Result,
    Sample,
    Settings,
    Shrinking,
    digest_of,
    plan,
)
from schedproof.gate.campaign.ledger import open_ledger, read_ledger
from schedproof.gate.campaign.options import kinds_of, pairs_of
from schedproof.gate.campaign.running import run_campaign
from schedproof.gate.processes.executors import DEATHS
from schedproof.gate.targets.factory import Opened
from schedproof.gate.targets.scales import scales_of
from schedproof.model.target import ModelTarget
from schedproof.properties.vllm import ANY_LENGTH, WITH_THE_NULL_BLOCK
from schedproof.spec.systems import SYSTEMS

from ..build import PlansItsPool
from .fake import Erratic, Killed, fake_result, ran
from .work import content_of

PAIRS = pairs_of(["nano_vllm", "vllm"], [])
SETTINGS = Settings(
    seed=7,
    pairs=PAIRS,
    kinds=tuple(
        Kind(system=system, revision=revision, scale=scale)
        for scale in ("small", "tight")
        for system, revision in PAIRS
    ),
)
ITEMS = 150


def run(path, executor, items=ITEMS, ends=float("inf"), settings=SETTINGS):
    with open_ledger(path, lambda begun: settings) as ledger:
        run_campaign(
            ledger, executor, items=items, ends=ends, report=lambda _: None, progress=lambda _: None
        )
    return content_of(path)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return run(tmp_path_factory.mktemp("undisturbed") / "ledger", Erratic(0))


def test_a_campaign_runs_every_item_once(tmp_path):
    executor = Erratic(1)
    content = run(tmp_path / "ledger", executor)
    assert len(content["items"]) == ITEMS
    shrunk = len(content["findings"])
    assert shrunk > 0
    assert len(executor.ran) == len(set(executor.ran)) == ITEMS + shrunk


@pytest.mark.parametrize("seed", range(1, 5))
def test_the_order_of_completion_does_not_show(seed, tmp_path, undisturbed):
    assert run(tmp_path / "ledger", Erratic(seed)) == undisturbed


def test_what_a_lost_worker_had_is_run_again(tmp_path, undisturbed):
    assert run(tmp_path / "ledger", Erratic(5, losing=0.1)) == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_campaign_that_is_killed_again_and_again_ends_up_the_same(seed, tmp_path, undisturbed):
    kills = 0
    for attempt in range(100):
        executor = Erratic(seed * 1000 + attempt, losing=0.02, kill_after=23 + seed)
        try:
            content = run(tmp_path / "ledger", executor)
        except Killed:
            kills += 1
            continue
        break
    assert kills >= 4
    assert content == undisturbed


def test_a_campaign_that_is_over_goes_on_with_more_items(tmp_path, undisturbed):
    less = run(tmp_path / "ledger", Erratic(1), items=40)
    assert len(less["items"]) == 40
    assert run(tmp_path / "ledger", Erratic(2)) == undisturbed


def test_another_seed_is_another_campaign(tmp_path, undisturbed):
    other = Settings(seed=8, pairs=SETTINGS.pairs, kinds=SETTINGS.kinds)
    content = run(tmp_path / "ledger", Erratic(0), 40, settings=other)
    assert content["items"].keys().isdisjoint(undisturbed["items"])


def test_time_that_is_over_ends_it_with_what_is_there(tmp_path):
    assert run(tmp_path / "ledger", Erratic(0), ends=0.0)["items"] == {}


class Deadly(Erratic):
    """Dies of the first item it gets, always."""

    victim: Item | None = None

    def finished(self, seconds):
        self.victim = self.victim or self._out[0][1]
        if self.victim in [item for _, item in self._out]:  # what is beside it dies, too
            ended = [(number, None) for number, _ in self._out]
            self._out.clear()
            return ended
        return super().finished(seconds)


def test_an_item_that_kills_its_workers_is_given_up_and_alone(tmp_path):
    content = run(tmp_path / "ledger", Deadly(0), items=40)
    failed = [result for result in content["items"].values() if "failed" in result]
    assert failed == [f'{{"complete":false,"failed":"its worker died {DEATHS} times"}}']
    assert len(content["items"]) == 40


class NotAgain(Erratic):
    """What failed does not fail again."""

    def result(self, item):
        if isinstance(item, Shrinking):
            return ran(Result(scenarios=1, complete=False))
        return super().result(item)


def test_a_failure_that_does_not_come_again_is_no_finding(tmp_path):
    content = run(tmp_path / "ledger", NotAgain(0))
    assert content["findings"]
    assert all(finding is None for finding in content["findings"].values())


class KilledWhileShrinking(Erratic):
    """One finding is made small, with the next one the process is gone."""

    shrunk = 0

    def finished(self, seconds):
        shrinking = [entry for entry in self._out if isinstance(entry[1], Shrinking)]
        if not shrinking:
            return super().finished(seconds)
        if self.shrunk:
            raise Killed
        self.shrunk = 1
        self._out.remove(shrinking[0])
        number, item = shrinking[0]
        return [(number, ran(fake_result(item)))]


def test_what_was_shrunk_before_a_kill_is_not_shrunk_again(tmp_path, undisturbed):
    with pytest.raises(Killed):
        run(tmp_path / "ledger", KilledWhileShrinking(0))
    executor = Erratic(0)
    assert run(tmp_path / "ledger", executor) == undisturbed
    assert len(executor.ran) == len(undisturbed["findings"]) - 1


def test_of_a_shape_the_smallest_failure_is_shrunk(tmp_path):
    run(tmp_path / "ledger", Erratic(0), 2 * ITEMS)
    questions = list(read_ledger(tmp_path / "ledger").questions().values())
    failures = [
        failure
        for item in islice(plan(SETTINGS), 2 * ITEMS)
        for failure in fake_result(item).failures
    ]
    for question in questions:
        scenario = question.failure.scenario
        about = (scenario.system, scenario.revision, question.failure.shape)
        alike = [
            failure.scenario.requests[0].prompt_len
            for failure in failures
            if (failure.scenario.system, failure.scenario.revision, failure.shape) == about
        ]
        assert scenario.requests[0].prompt_len == min(alike)
    assert len(failures) > len(questions)


def test_the_plan_takes_every_kind_in_turn_and_no_item_twice():
    items = list(islice(plan(SETTINGS), 1_000))
    turn = len(SETTINGS.kinds)
    assert tuple(item.kind for item in items[:turn]) == SETTINGS.kinds
    assert items[turn].kind == items[0].kind
    assert len({digest_of(item) for item in items}) == len({item.seed for item in items}) == 1_000


def test_samples_get_longer_the_more_there_were_of_their_kind():
    items = list(islice(plan(SETTINGS), 1_000))
    runs = [item.examples for item in items if item.kind == SETTINGS.kinds[0]]
    assert runs == sorted(runs)
    assert runs[:5] == [60, 60, 60, 60, 120]
    assert runs[-1] == 600


def test_without_a_kind_there_is_no_item():
    assert list(plan(Settings())) == []


def test_every_system_is_sampled_in_every_scale_and_configuration():
    kinds = kinds_of("model", pairs_of([], []), ())
    assert [kind.system for kind in kinds[: len(pairs_of([], []))]] == [
        system for system, _ in pairs_of([], [])
    ]
    assert {kind.system for kind in kinds} == set(SYSTEMS)
    assert {kind.scale for kind in kinds} == {"small", "tight"}
    assert {kind.scale for kind in kinds} <= EXAMPLES.keys()
    fixed = [kind.fixed for kind in kinds if (kind.system, kind.scale) == ("vllm", "small")]
    for configuration in scales_of("vllm").configurations:
        assert any(configuration.changes.items() <= values.items() for values in fixed)
    assert any(not values for values in fixed)  # all that Hypothesis may draw


def test_kinds_that_a_target_does_not_start_with_are_avoided(monkeypatch):
    def of(target):
        there = nullcontext(Opened(target, lambda: ""))
        monkeypatch.setattr(campaign_options, "opened", lambda spec: there)
        kinds = kinds_of("model", [("vllm", "documented")], ("V1-R05",))
        return {kind.avoid for kind in kinds if kind.scale == "small"}

    assert of(PlansItsPool()) == {(ANY_LENGTH, WITH_THE_NULL_BLOCK)}
    assert of(ModelTarget()) == {()}


def test_a_rule_that_no_revision_of_a_system_has_leaves_the_system_out():
    kinds = kinds_of("model", PAIRS, ("V1-R05",))
    assert {kind.system for kind in kinds} == {"vllm"}
    first = next(plan(Settings(kinds=kinds, rules=("V1-R05",))))
    assert isinstance(first, Sample)
    assert first.rules == ("V1-R05",)
