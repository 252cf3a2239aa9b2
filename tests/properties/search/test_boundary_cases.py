"""Near misses: what a run uses of a limit, and the limit moved beside it."""

import pytest

from schedproof.model.observation import Step
from schedproof.model.scenario import Request, Scenario
from schedproof.model.systems import full_config, revisions_of
from schedproof.properties.search.boundary_cases import LIMIT_OF, USES, is_near, near_misses, used
from schedproof.spec.catalogue import load
from schedproof.spec.systems import SYSTEMS

STEPS = [
    Step(kind="prefill", scheduled={"a": 9}, running=("a",), free_blocks=5, tkv=9),
    Step(
        kind="decode",
        scheduled={"a": 1, "b": 1},
        running=("a",),
        finished={"b": "length", "c": "aborted"},
        free_blocks=3,
        tkv=10,
    ),
    Step(kind="idle", scheduled={}, running=(), free_blocks=8),
]
SCENARIO = Scenario(
    system="spyre",
    config={"num_blocks": 8, "max_batch_tkv": 96},
    requests=(
        Request(id="a", arrival=0, prompt=(("a", 9),), max_tokens=4),
        Request(id="b", arrival=0, prompt=(("b", 2),), max_tokens=2),
        Request(id="refused", arrival=0, prompt=(("c", 900),), max_tokens=2),
    ),
)


@pytest.mark.parametrize(
    ("key", "use"),
    [
        ("max_batch_tkv", 20),
        ("max_num_seqs", 2),
        ("max_num_batched_tokens", 9),
        ("num_blocks", 5),
        ("max_model_len", 12),
    ],
)
def test_what_a_run_uses_of_a_limit(key, use):
    assert used(SCENARIO, key, STEPS) == use


def test_a_run_that_uses_nothing_has_no_near_miss():
    assert used(SCENARIO, "max_batch_tkv", STEPS[2:]) is None
    assert list(near_misses(SCENARIO, "max_batch_tkv", STEPS[2:])) == []


def test_the_limit_is_moved_to_the_use_one_more_and_one_less():
    nears = list(near_misses(SCENARIO, "max_batch_tkv", STEPS))
    assert [near.scenario.config["max_batch_tkv"] for near in nears] == [20, 21, 19]
    assert [near.margin for near in nears] == [0, 1, None]
    assert nears[0].says == "exactly at the limit: max_batch_tkv 20"
    assert all(is_near(near, STEPS) for near in nears)
    assert not is_near(nears[0], STEPS[:1])


def test_every_limit_is_a_key_of_the_systems_whose_rules_name_it():
    for rule, key in LIMIT_OF.items():
        assert key in USES
        [system] = [one for one in SYSTEMS if rule in {entry.id for entry in load(one)}]
        assert key in full_config(system, revisions_of(system)[0], {})
