"""Near misses: what a run uses of a limit, and the limit moved beside it."""

import importlib
from contextlib import nullcontext

import pytest
from hypothesis.internal.conjecture import providers

from schedproof.model.observation import Step
from schedproof.model.scenario import Request, Scenario
from schedproof.model.systems import full_config, revisions_of
from schedproof.model.target import ModelTarget
from schedproof.properties.search import run
from schedproof.properties.search.boundary_cases import LIMIT_OF, USES, is_near, near_misses, used
from schedproof.properties.search.constants import READER, without_local_constants
from schedproof.properties.search.run import run_search
from schedproof.properties.search.state import Hooks, Search, SearchOptions
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


OURS = "numbers_that_a_project_of_ours_has"


def searched():
    """Every scenario of a search."""
    seen: list[str] = []
    options = SearchOptions(ModelTarget(), "spyre", "sound", (), "tight")
    search = Search(options, Hooks(ended=lambda scenario: seen.append(str(scenario))))
    run_search(search, 30, 0, 0)
    return seen


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module with many numbers, to be loaded."""
    numbers = ", ".join(str(number) for number in range(1, 2_000, 3))
    (tmp_path / f"{OURS}.py").write_text(f"NUMBERS = [{numbers}]\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return OURS


@pytest.mark.slow
def test_a_seed_gives_the_same_runs_whatever_is_loaded(module):
    before = searched()
    importlib.import_module(module)
    assert len(before) >= 20
    assert searched() == before


@pytest.mark.slow
def test_without_this_the_runs_would_depend_on_it(module, monkeypatch):
    """Else the test above could not fail."""
    monkeypatch.setattr(run, "without_local_constants", nullcontext)
    with without_local_constants():
        before = searched()
    importlib.import_module(module)
    assert searched() != before


def test_hypothesis_has_its_reader_back_afterwards():
    reader = getattr(providers, READER)
    with without_local_constants():
        assert getattr(providers, READER) is not reader
    assert getattr(providers, READER) is reader
