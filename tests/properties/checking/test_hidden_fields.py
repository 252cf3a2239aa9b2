"""A target is never judged by what it does not show: a correct one that hides fields is never
accused."""

import random

import pytest

from schedproof.model.observation import FIELDS, REQUIRED
from schedproof.model.scenario import Request, Scenario
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.properties.search.run import run_search
from schedproof.properties.search.state import Search, SearchOptions
from schedproof.spec.catalogue import load

# Revisions on whose model every rule holds; on the head of LLMServingSim, only without a pipeline.
SOUND = (
    ("spyre", "sound"),
    ("vllm", "documented"),
    ("nano_vllm", "documented"),
    ("llmservingsim", "documented"),
    ("llmservingsim", "head"),
)
OPTIONAL = sorted(FIELDS - REQUIRED)
SHOWN = [
    (system, revision, field)
    for system, revision in SOUND
    for field in OPTIONAL
    if field in ModelTarget().start(system, revision, {})["observes"]
]


def hiding(hidden):
    class Hides(ModelTarget):
        def start(self, system, revision, config):
            started = super().start(system, revision, config)
            observes = [field for field in started["observes"] if field not in hidden]
            return {**started, "observes": observes, "name": "a scheduler of a user"}

        def step(self):
            step = super().step()["step"]
            return {
                "ok": True,
                "step": {field: value for field, value in step.items() if field not in hidden},
            }

    return Hides()


def accused(system, revision, hidden, examples=20):
    """The first broken rule and its message."""
    rules = [rule for rule in load(system) if rule.checked]
    fixed = {"pp_size": 1} if revision == "head" else {}
    search = Search(SearchOptions(hiding(hidden), system, revision, rules, "small", fixed=fixed))
    if not run_search(search, examples, 3, 0) or search.failure is None:
        return None
    first = search.failure[1][0]
    return f"{first.rule}: {first.message}"


@pytest.mark.slow
@pytest.mark.parametrize(("system", "revision"), SOUND)
def test_a_target_that_shows_only_what_is_scheduled_is_not_accused(system, revision):
    assert accused(system, revision, frozenset(OPTIONAL)) is None


@pytest.mark.slow
@pytest.mark.parametrize(("system", "revision", "field"), SHOWN)
def test_a_target_that_hides_one_field_is_not_accused(system, revision, field):
    assert accused(system, revision, frozenset((field,)), examples=10) is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("system", "revision"), SOUND)
def test_a_target_that_hides_any_fields_is_not_accused(system, revision, seed):
    chance = random.Random(seed)
    hidden = frozenset(chance.sample(OPTIONAL, chance.randint(2, len(OPTIONAL) - 1)))
    assert accused(system, revision, hidden, examples=10) is None


def test_one_that_found_cached_what_it_could_load_does_not_seem_to_start_anew():
    """Where it is not shown which requests run, each that is scheduled may have been admitted."""
    loaded, finds = (
        Request(id=name, arrival=at, prompt=(("p", 32),), max_tokens=5, external_tokens=tokens)
        for name, at, tokens in (("loaded", 0, 32), ("finds", 2, 16))
    )
    scenario = Scenario(system="vllm", config={"kv_connector": True}, requests=(loaded, finds))
    rules = [rule for rule in load("vllm") if rule.id == "V1-R27"]
    hits = []

    def watch(_, step):
        hits.append((step.prefix_hit or {}).get("finds"))

    outcome = replay(hiding(frozenset({"running"})), scenario, rules, watch)
    assert 16 in hits
    assert outcome.broken == []


def test_a_request_may_end_in_the_step_in_which_its_load_fails_although_no_block_is_shown():
    load_of_r0 = {"external_tokens": 30, "load_fails_at": 15}
    request = Request(id="r0", arrival=0, prompt=(("r0", 31),), max_tokens=1, **load_of_r0)
    config = {"block_size": 2, "num_blocks": 24, "enable_prefix_caching": True}
    loads = {"kv_connector": True, "kv_load_failure_policy": "fail", "synchronous_loads": True}
    scenario = Scenario(system="vllm", config={**config, **loads}, requests=(request,))
    rules = [rule for rule in load("vllm") if rule.checked]
    assert not replay(hiding(frozenset({"sent"})), scenario, rules).broken
