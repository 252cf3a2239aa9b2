"""What a seed gives does not depend on the modules that are loaded."""

import importlib
from contextlib import nullcontext

import pytest
from hypothesis.internal.conjecture import providers

from schedproof.model.target import ModelTarget
from schedproof.properties.search import run
from schedproof.properties.search.run import READER, run_search, without_local_constants
from schedproof.properties.search.state import Hooks, Search, SearchOptions

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
