"""What is run next: by what no request has seen, and by what came near."""

from collections import Counter

import pytest

from schedproof.gate.campaign.arms import AT_LIMIT, Arm, arms
from schedproof.gate.campaign.choosing import Seen, choose, weight
from schedproof.gate.campaign.items import ENGINES, Exploring, Item, Sample, engine_of, id_of
from schedproof.gate.campaign.results import NearMiss, Result
from schedproof.gate.campaign.rounds import LARGEST, SMALLEST, Rounds, round_size
from schedproof.gate.campaign.running import rules_of
from schedproof.gate.campaign.settings import SCALES, Settings, pairs_of
from schedproof.model.systems import full_config
from schedproof.spec.systems import SYSTEMS

from .fake import fake_result

SETTINGS = Settings(
    pairs=pairs_of(["spyre"], ["sound", "documented"]), scales={scale: {} for scale in SCALES}
)
SOUND, DOCUMENTED = SETTINGS.pairs
KINDS = list(arms(SETTINGS))
EVERY = {rule.id: 1 for rule in rules_of(*SOUND)}
SAMPLE = Sample(system="spyre", revision="sound", scale="small", seed=0, examples=1)
CONFIG = full_config("spyre", "sound", {"max_num_seqs": 4, "max_batch_tkv": 131_072})


def chosen(seen: Seen, size: int = 200) -> list[Item]:
    return choose(SETTINGS, KINDS, seen, Counter(), size, 0)


def revisions(items: list[Item]) -> Counter[str]:
    return Counter(item.revision for item in items if isinstance(item, Sample) and not item.config)


def near(left: int) -> Result:
    return Result(near={"max_batch_tkv": NearMiss(left=left, config=CONFIG)})


def test_every_engine_and_every_revision_gets_its_share() -> None:
    items = chosen(Seen(), 300)
    assert {engine_of(item) for item in items} == set(ENGINES)
    assert {(item.system, item.revision) for item in items} == set(SETTINGS.pairs)


def test_where_witnesses_are_missing_there_is_more_work() -> None:
    seen = Seen()
    before = revisions(chosen(seen))
    assert before["sound"] == pytest.approx(before["documented"], abs=2)
    seen.add(SAMPLE, Result(exercised=EVERY))
    after = revisions(chosen(seen))
    assert after["documented"] > 5 * after["sound"] > 0


def test_the_nearer_a_run_came_to_a_limit_the_more_there_is_beside_it() -> None:
    arm = Arm("hypothesis", "spyre", "sound", f"{AT_LIMIT}max_batch_tkv")
    weights = []
    for left in (100, 10, 1, 0):
        seen = Seen()
        seen.add(SAMPLE, near(left))
        weights.append(weight(arm, seen, SETTINGS))
    assert weights == sorted(weights)
    assert weights[0] < weights[-1]


def test_beside_a_limit_the_configuration_is_the_nearest_and_the_limit_is_moved() -> None:
    seen = Seen()
    seen.add(SAMPLE, near(7))
    seen.add(SAMPLE, near(3))
    seen.add(SAMPLE, near(5))
    beside = [item for item in chosen(seen, 2_000) if isinstance(item, Sample) and item.config]
    limits = [item.config and item.config["max_batch_tkv"] for item in beside]
    assert limits[:3] == [131_072, 131_069, 131_068]


def test_a_limit_that_was_moved_to_a_run_is_not_taken_for_near() -> None:
    seen = Seen()
    seen.add(SAMPLE, near(7))
    seen.add(
        Sample(system="spyre", revision="sound", scale="small", seed=1, examples=1, config=CONFIG),
        near(0),
    )
    assert seen.near["spyre", "sound", "max_batch_tkv"].left == 7


def test_known_failures_go_along_with_what_samples_their_revision() -> None:
    seen = Seen()
    seen.shapes[SOUND] = {"SPY-R07: #", "SPY-R35: @"}
    for item in chosen(seen):
        if isinstance(item, Sample):
            known = ("SPY-R07: #", "SPY-R35: @") if item.revision == "sound" else ()
            assert item.known == known


def test_a_scope_comes_with_more_and_more_requests_and_then_no_more() -> None:
    lengths = [
        item.requests
        for item in chosen(Seen(), 3_000)
        if isinstance(item, Exploring) and (item.revision, item.scope) == ("sound", "lengths")
    ]
    assert lengths == [2, 3, 4]


def test_where_only_the_model_is_explored_the_work_comes_to_an_end() -> None:
    settings = Settings(pairs=SETTINGS.pairs, engines=("explore",))
    kinds = list(arms(settings))
    items = choose(settings, kinds, Seen(), Counter(), 10_000, 0)
    assert 10 < len(items) < 200
    assert len({id_of(item) for item in items}) == len(items)


def test_a_system_without_scopes_is_searched_all_the_same() -> None:
    kinds = [*arms(Settings(pairs=pairs_of([], []), scales=SETTINGS.scales))]
    engines = {system: {one.engine for one in kinds if one.system == system} for system in SYSTEMS}
    assert engines["generic"] == {"hypothesis"}
    assert all(
        {"hypothesis", "explore"} <= engines[system] for system in SYSTEMS if system != "generic"
    )


def test_no_item_comes_twice() -> None:
    rounds = Rounds(SETTINGS, 1_000)
    ids = []
    while fresh := rounds.fresh():
        for name, item in fresh:
            ids.append(name)
            rounds.done(name, fake_result(item))
    assert len(ids) == len(set(ids)) == rounds.planned == rounds.finished == 1_000


def test_rounds_grow_with_what_was_done() -> None:
    sizes = [round_size(total) for total in (0, 100, 1_600, 100_000)]
    assert sizes == [SMALLEST, 50, 800, LARGEST]


def test_samples_get_longer_the_more_there_were_of_their_kind() -> None:
    runs = [
        item.examples
        for item in chosen(Seen(), 2_000)
        if isinstance(item, Sample) and (item.revision, item.scale) == ("sound", "small")
    ]
    assert runs == sorted(runs)
    assert runs[:5] == [60, 60, 60, 60, 120]
    assert runs[-1] == 600
