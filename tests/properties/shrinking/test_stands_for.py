"""Which entry of a corpus stands for another one with the same failure."""

from schedproof.model.scenario import Request, Scenario
from schedproof.model.systems import full_config
from schedproof.properties.shrinking.shrink import stands_for


def scenario(prompt: int, **options: object) -> Scenario:
    config = full_config("vllm", "documented", options)
    request = Request(id="r0", arrival=0, prompt=(("r0", prompt),), max_tokens=1)
    return Scenario(system="vllm", revision="documented", config=config, requests=(request,))


def test_a_smaller_scenario_stands_for_a_larger_one():
    assert stands_for(scenario(2), scenario(9))
    assert not stands_for(scenario(9), scenario(2))


def test_a_smaller_scenario_with_another_feature_stands_for_no_other():
    assert not stands_for(scenario(2, streaming_inputs=True), scenario(9))
    assert stands_for(scenario(2), scenario(9, streaming_inputs=True))
