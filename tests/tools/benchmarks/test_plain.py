"""What schedproof is compared with draws evenly, and what it draws are runs."""

from importlib import import_module

import pytest

from schedproof.model.scenario import check_requests
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget
from schedproof.spec.catalogue import load
from schedproof.tests.mutants.faults import mutants_of
from schedproof.tests.mutants.planting import planted
from schedproof.tools.benchmarks.plain import (
    LATEST,
    Plain,
    at_published_sizes,
    by_chance,
    by_hypothesis,
    ranges,
    request_of,
    values_of_keys,
)

EASY = next(fault for fault in mutants_of("llmservingsim") if fault.bug == "LSS-005")


def test_every_key_has_every_value_that_our_configurations_have():
    values = values_of_keys("nano_vllm", "0.2.0")
    assert set(values["block_size"]) == {2, 3, 4, 8}
    assert values["max_num_seqs"] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("end", [0, 1])
def test_the_ends_of_all_ranges_are_requests(end):
    bounds = ranges({"block_size": 4, "max_model_len": 32})
    request = request_of(3, [bound[end] for bound in bounds])
    check_requests((request,))
    assert request.prompt_len == (1, 32)[end]
    assert request.arrival == (0, LATEST)[end]
    assert (request.abort_at is None) == bool(end)


@pytest.mark.slow
@pytest.mark.parametrize("engine", [by_hypothesis, by_chance])
def test_both_find_a_bug_that_every_run_shows(engine):
    rules = [rule for rule in load(EASY.system) if rule.checked]
    with planted(EASY) as target:
        plain = import_module("schedproof.tools.benchmarks.plain")
        trial = plain.Plain(target, EASY.system, EASY.revision, rules, lambda broken, _: broken)
        getattr(plain, engine.__name__)(trial, EASY.system, EASY.revision, lambda: trial.runs >= 60)
    assert trial.found


@pytest.mark.slow
@pytest.mark.parametrize("engine", [by_hypothesis, by_chance])
def test_neither_finds_anything_where_nothing_is_broken(engine):
    rules = [rule for rule in load("llmservingsim") if rule.checked]
    trial = Plain(ModelTarget(), "llmservingsim", "head", rules, lambda broken, _: broken)
    engine(trial, "llmservingsim", "head", lambda: trial.runs >= 25)
    assert (trial.found, trial.runs) == (False, 25)


def test_published_sizes_are_those_of_the_configuration_as_it_is(monkeypatch):
    drawn: list[dict[str, object]] = []
    monkeypatch.setattr(Plain, "run", lambda self, values, requests: drawn.append(dict(values)))
    trial = Plain(ModelTarget(), "spyre", "sound", (), lambda broken, _: broken)
    at_published_sizes(trial, "spyre", "sound", lambda: len(drawn) >= 3)
    assert drawn == [full_config("spyre", "sound", {})] * 3
