"""How far runs went: the sizes of what took place, and in how many runs a feature occurred."""

from schedproof.model.scenario import Request, Scenario
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.properties.search.state import Reach, features_of_requests

CONFIG = {"block_size": 4, "chunk_size": 8, "max_model_len": 32, "max_batch_tkv": 96}
LONG = Request(id="a", arrival=0, prompt=(("a", 20),), max_tokens=9, output_len=9)
EARLY = Request(id="a", arrival=0, prompt=(("a", 5),), max_tokens=9, output_len=4)
SHARED = Request(id="b", arrival=1, prompt=(("a", 5),), max_tokens=2, abort_at=3, priority=1)


def scenario(*requests, **config):
    return Scenario(
        system="spyre", revision="sound", config={**CONFIG, **config}, requests=requests
    )


def reached(*scenarios, last_step=None):
    reach = Reach()
    for run in scenarios:
        outcome = replay(ModelTarget(), run, [], last_step=last_step)
        reach = reach.with_run(run, outcome.session.monitor.history)
    return reach


def test_nothing_is_reached_without_a_run():
    assert Reach() == Reach(0, 0, 0, 0, 0, {})


def test_sizes_are_those_of_the_largest_run_and_features_are_counted_by_run():
    two = scenario(EARLY, SHARED, num_blocks=20)
    reach = reached(scenario(LONG), two, two)
    assert (reach.runs, reach.requests, reach.prompt_tokens) == (3, 2, 20)
    assert (reach.output_tokens, reach.steps) == (9, 11)
    assert reach.features == {
        "abort": 2,
        "abort inside a step": 0,
        "end before max_tokens": 2,
        "shared prompt": 2,
        "priority": 2,
        "bounded pool": 2,
    }


def test_a_failed_load_is_missed_only_where_there_is_a_connector():
    for connector in (False, True):
        run = Scenario(
            system="vllm", revision="documented", config={"kv_connector": connector}, requests=()
        )
        assert ("failed load" in features_of_requests(run)) == connector


def test_what_did_not_take_place_is_not_reached():
    cut = reached(scenario(LONG), last_step=0)
    assert (cut.prompt_tokens, cut.output_tokens, cut.steps) == (4, 0, 1)


def test_parts_add_up():
    first, second = scenario(LONG), scenario(EARLY, SHARED)
    assert reached(first) + reached(second, second) == reached(first, second, second)
