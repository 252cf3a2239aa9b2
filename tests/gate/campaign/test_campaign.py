"""The loop of a campaign: whatever happens on the way, the ledger ends up the same."""

from pathlib import Path

import pytest

from schedproof.gate.campaign.campaign import DEATHS, Campaign, questions
from schedproof.gate.campaign.executors import Executor, Finished, Ran
from schedproof.gate.campaign.items import Item, Shrinking
from schedproof.gate.campaign.ledger import opened
from schedproof.gate.campaign.results import Result
from schedproof.gate.campaign.settings import Settings, pairs_of

from .fake import Erratic, Killed, fake_result

SETTINGS = Settings(
    seed=7, pairs=pairs_of(["nano_vllm", "vllm"], []), scales={"small": {}, "tight": {}}
)
ITEMS = 150  # five rounds
Content = dict[str, list[tuple[object, ...]]]


def run(path: Path, executor: Executor, most: int = ITEMS, ends: float = float("inf")) -> Content:
    with opened(path, write=True) as ledger:
        campaign = Campaign(
            SETTINGS, ledger, executor, most, ends, tell=lambda _: None, watch=lambda _: None
        )
        campaign.run()
        return ledger.content()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Content:
    return run(tmp_path_factory.mktemp("undisturbed") / "ledger", Erratic(0))


def test_a_campaign_runs_every_item_once(tmp_path: Path) -> None:
    executor = Erratic(1)
    content = run(tmp_path / "ledger", executor)
    planned = [name for name, _ in content["items"]]
    assert len(planned) == ITEMS
    shrunk = len(content["findings"])
    assert shrunk > 0
    assert len(executor.ran) == len(set(executor.ran)) == ITEMS + shrunk


@pytest.mark.parametrize("seed", range(1, 5))
def test_the_order_of_completion_does_not_show(
    seed: int, tmp_path: Path, undisturbed: Content
) -> None:
    assert run(tmp_path / "ledger", Erratic(seed)) == undisturbed


def test_what_a_lost_worker_had_is_run_again(tmp_path: Path, undisturbed: Content) -> None:
    assert run(tmp_path / "ledger", Erratic(5, losing=0.1)) == undisturbed


@pytest.mark.parametrize("seed", range(3))
def test_a_campaign_that_is_killed_again_and_again_ends_up_the_same(
    seed: int, tmp_path: Path, undisturbed: Content
) -> None:
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


def test_a_campaign_that_is_over_goes_on_with_more_items(
    tmp_path: Path, undisturbed: Content
) -> None:
    less = run(tmp_path / "ledger", Erratic(1), most=40)
    assert len(less["items"]) == 40
    assert run(tmp_path / "ledger", Erratic(2)) == undisturbed


def test_another_seed_is_another_campaign(tmp_path: Path, undisturbed: Content) -> None:
    other = Settings(seed=8, pairs=SETTINGS.pairs, scales=SETTINGS.scales)
    with opened(tmp_path / "ledger", write=True) as ledger:
        Campaign(other, ledger, Erratic(0), 40, float("inf"), lambda _: None, lambda _: None).run()
        samples = {name for name, text in ledger.content()["items"] if "hypothesis" in text}
    assert samples.isdisjoint(name for name, _ in undisturbed["items"])


def test_time_that_is_over_ends_it_with_what_is_there(tmp_path: Path) -> None:
    content = run(tmp_path / "ledger", Erratic(0), ends=0.0)
    assert content["items"] == content["results"] == []


class Deadly(Erratic):
    """Dies of the first item it gets, always."""

    victim: Item | None = None

    def finished(self, seconds: float) -> list[Finished]:
        self.victim = self.victim or self._out[0]
        if self.victim in self._out:  # a request that is beside it dies, too
            found = [Finished(item, None) for item in self._out]
            self._out.clear()
            return found
        return super().finished(seconds)


def test_an_item_that_kills_its_workers_is_given_up_and_alone(tmp_path: Path) -> None:
    content = run(tmp_path / "ledger", Deadly(0), most=40)
    failed = [text for _, text in content["results"] if "failed" in str(text)]
    assert failed == [f'{{"complete":false,"failed":"its worker died {DEATHS} times"}}']
    assert len(content["results"]) == 40


class NotAgain(Erratic):
    """What failed does not fail again."""

    def finished(self, seconds: float) -> list[Finished]:
        return [
            one._replace(ran=one.ran._replace(result=Result(scenarios=1, complete=False)))
            if one.ran and isinstance(one.item, Shrinking)
            else one
            for one in super().finished(seconds)
        ]


def test_a_failure_that_does_not_come_again_is_no_finding(tmp_path: Path) -> None:
    content = run(tmp_path / "ledger", NotAgain(0))
    assert content["findings"]
    assert all(found is None for _, found in content["findings"])


class KilledWhileShrinking(Erratic):
    """One finding is made small, with the next one the process is gone."""

    shrunk = 0

    def finished(self, seconds: float) -> list[Finished]:
        shrinking = [item for item in self._out if isinstance(item, Shrinking)]
        if not shrinking:
            return super().finished(seconds)
        if self.shrunk:
            raise Killed
        self.shrunk = 1
        self._out.remove(shrinking[0])
        return [Finished(shrinking[0], Ran(fake_result(shrinking[0]), 1.0, "", ""))]


def test_what_was_shrunk_before_a_kill_is_not_shrunk_again(
    tmp_path: Path, undisturbed: Content
) -> None:
    with pytest.raises(Killed):
        run(tmp_path / "ledger", KilledWhileShrinking(0))
    executor = Erratic(0)
    assert run(tmp_path / "ledger", executor) == undisturbed
    assert len(executor.ran) == len(undisturbed["findings"]) - 1


def test_of_a_shape_the_smallest_failure_is_shrunk(tmp_path: Path) -> None:
    run(tmp_path / "ledger", Erratic(0), 2 * ITEMS)
    with opened(tmp_path / "ledger", write=False) as ledger:
        asked = list(questions(ledger).values())
        failures = [failure for _, failure in ledger.failures()]
    for one in asked:
        about = (one.failure.scenario.system, one.failure.scenario.revision, one.failure.shape)
        alike = [
            failure.scenario.requests[0].prompt_len
            for failure in failures
            if (failure.scenario.system, failure.scenario.revision, failure.shape) == about
        ]
        assert one.failure.scenario.requests[0].prompt_len == min(alike)
    assert len(failures) > len(asked)
