"""Requests that can never run come to every target's door, and what it does then is judged."""

import importlib
from collections import Counter
from contextlib import nullcontext
from typing import Any

import msgspec
import pytest
from hypothesis import find
from hypothesis.internal.conjecture import providers
from msgspec.structs import replace

from schedproof.model.scenario import Request, Scenario
from schedproof.model.systems import full_config, make_model
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.properties.checking.session import Session
from schedproof.properties.history.bounds import bounds_of
from schedproof.properties.history.features import features_of
from schedproof.properties.search import run
from schedproof.properties.search.machine import too_large
from schedproof.properties.search.run import READER, run_search, without_local_constants
from schedproof.properties.search.state import Hooks, Search, SearchOptions
from schedproof.spec.catalogue import load
from schedproof.spec.systems import SYSTEMS

# A configuration of each system in which every bound binds.
CONFIGS: dict[str, dict[str, Any]] = {
    "spyre": {"max_model_len": 512, "max_batch_tkv": 640, "num_blocks": 9},
    "vllm": {"max_model_len": 512, "num_blocks": 40, "enable_chunked_prefill": False},
    "nano_vllm": {"num_blocks": 3},
    "llmservingsim": {"num_blocks": 40, "enable_chunked_prefill": False},
}
PUBLISHED = tuple(CONFIGS)


class AcceptsAll(ModelTarget):
    """A scheduler whose door refuses nothing: the model behind it waits for ever."""

    def add(self, request):
        assert self._model is not None
        read = msgspec.convert({"arrival": 0, **request}, Request)
        self._state = self._model.arrive(self._state, read)
        return {"ok": True}


class EndsAtOnce(AcceptsAll):
    """Accepts everything, and ends in the next step what can never run."""

    def start(self, system, revision, config):
        self._to_end: dict[str, str] = {}
        self._asked = (system, config)
        return super().start(system, revision, config)

    def add(self, request):
        system, config = self._asked
        prompt = sum(tokens for _, tokens in request["prompt"])
        read = msgspec.convert({"arrival": 0, **request}, Request)
        beyond = bounds_of(system).beyond(config, prompt, request["max_tokens"])
        if beyond or features_of(system).can_never_run(config, read):
            self._to_end[request["id"]] = "length"
            return {"ok": True}
        return super().add(request)

    def abort(self, id, inside=False):  # noqa: A002
        if id in self._to_end:
            self._to_end[id] = "aborted"
            return {"ok": True}
        return super().abort(id, inside)

    def step(self):
        reply = super().step()
        reply["step"]["finished"] |= self._to_end
        self._to_end = {}
        return reply


def options(system, target):
    return SearchOptions(target, system, SYSTEMS[system].revisions[0], load(system), "small")


@pytest.mark.parametrize("system", PUBLISHED)
def test_each_bound_is_exceeded_by_one_and_by_far(system):
    config = full_config(system, SYSTEMS[system].revisions[0], CONFIGS[system])
    limits = bounds_of(system).limits(config)
    assert limits
    for limit in limits:
        for beyond in (limit + 1, 2 * limit):
            example = find(
                too_large(system, config),
                lambda request: request.prompt_len + request.max_tokens - 1 == beyond,  # noqa: B023
            )
            assert example is not None


@pytest.mark.parametrize("system", PUBLISHED)
def test_the_model_refuses_what_exceeds_a_bound_and_accepts_what_does_not(system):
    revision = SYSTEMS[system].revisions[0]
    config = full_config(system, revision, CONFIGS[system])
    model, limit = make_model(system, revision, config), min(bounds_of(system).limits(config))
    for prompt in (1, limit // 2, limit):
        for longest, beyond in ((limit, False), (limit + 1, True)):
            max_tokens = longest - prompt + 1
            newcomer = Request(id="a", arrival=0, prompt=(("a", prompt),), max_tokens=max_tokens)
            assert bounds_of(system).beyond(config, prompt, max_tokens) == beyond
            assert (model.refusal(newcomer) is not None) == beyond


class EightTooMany(ModelTarget):
    """Accepts and serves requests of up to eight tokens more than max_model_len."""

    def start(self, system, revision, config):
        return super().start(
            system, revision, {**config, "max_model_len": config["max_model_len"] + 8}
        )


def test_tokens_beyond_the_length_of_the_model_are_named():
    config = {"max_model_len": 16, "block_size": 4, "max_num_seqs": 4}
    too_long = Request(id="a", arrival=0, prompt=(("a", 12),), max_tokens=6)
    run = Scenario(system="vllm", config=config, requests=(too_long,))
    broken = replay(EightTooMany(), run, load("vllm")).broken
    assert [(finding.rule, finding.message) for finding in broken] == [
        ("ALL-R04", "a emits a token after 17 others, but max_model_len is 16")
    ]


@pytest.mark.slow
@pytest.mark.parametrize("system", PUBLISHED)
def test_a_target_that_accepts_what_can_never_run_and_waits_is_broken(system):
    search = Search(options(system, AcceptsAll()))
    assert run_search(search, 400, 0, 0)
    assert search.failure is not None
    scenario, broken = search.failure
    rules, name = load(system), broken[0].rule
    assert name in {finding.rule for finding in replay(AcceptsAll(), scenario, rules).broken}
    beyond = bounds_of(system).beyond
    without = tuple(
        request
        for request in scenario.requests
        if not beyond(scenario.config, request.prompt_len, request.max_tokens)
    )
    if without:
        assert not replay(AcceptsAll(), replace(scenario, requests=without), rules).broken


@pytest.mark.slow
@pytest.mark.parametrize("system", PUBLISHED)
def test_a_target_that_accepts_it_and_ends_it_with_a_reason_is_not_accused(system):
    search = Search(options(system, EndsAtOnce()))
    assert not run_search(search, 100, 0, 0), search.failure


def test_a_request_that_can_run_may_not_be_ended_early():
    class EndsEarly(ModelTarget):
        def step(self):
            reply = super().step()
            reply["step"]["finished"] |= dict.fromkeys(reply["step"]["scheduled"], "length")
            return reply

    config = full_config("spyre", "sound", CONFIGS["spyre"])
    exercised: Counter[str] = Counter()
    session = Session(EndsEarly(), "spyre", "sound", config, load("spyre"), exercised)
    request = Request(id="a", arrival=0, prompt=(("a", 3),), max_tokens=5)
    session.add(request)
    assert "ALL-R04" in {broken.rule for broken in session.step()}


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
