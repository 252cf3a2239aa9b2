"""A finding names the features that it needs, and none that the target cannot do without."""

import pytest
from msgspec.structs import replace

from schedproof.model.scenario import Request, Scenario
from schedproof.model.systems import full_config
from schedproof.properties.shrinking.shrink import needed_features, shrink

OFF = full_config("vllm", "documented", {"enable_prefix_caching": False})
SCENARIO = Scenario(
    system="vllm",
    revision="documented",
    config=OFF,
    requests=(Request(id="r0", arrival=0, prompt=(("r0", 3),), max_tokens=2),),
)


@pytest.mark.parametrize(
    ("with_caching", "needs"),
    [(None, set()), (True, set()), (False, {"enable_prefix_caching off"})],
    ids=["refused by the target", "breaks as well", "does not break"],
)
def test_an_option_is_needed_only_if_its_default_repairs_the_run(with_caching, needs):
    def still_breaks(scenario):
        if scenario.config["enable_prefix_caching"]:
            return with_caching
        return True

    assert {*needed_features(SCENARIO, still_breaks)} == needs


def with_options(**config):
    return Scenario(
        system="vllm",
        revision="0.33",
        config=full_config("vllm", "0.33", config),
        requests=(Request(id="r0", arrival=0, prompt=(("r0", 3),), max_tokens=2),),
    )


ENCODER = {"max_num_encoder_input_tokens": 8, "encoder_cache_size": 8}


def test_options_that_are_valid_only_together_are_needed_only_if_the_run_needs_both():
    scenario = with_options(kv_connector=True, num_speculative_tokens=2, **ENCODER)

    def always(_):
        return True

    def with_encoder(candidate):
        return "encoder_cache_size" in candidate.config

    assert needed_features(scenario, always) == ()
    assert needed_features(scenario, with_encoder) == tuple(ENCODER)
    assert {*shrink(scenario, with_encoder, 99).config} - {*OFF} == {*ENCODER}


def test_options_that_are_valid_only_together_are_removed_together():
    scenario = with_options(kv_connector=True, **ENCODER)
    small = shrink(scenario, lambda candidate: candidate.config.get("kv_connector", False), 99)
    assert {*small.config} - {*OFF} == {"kv_connector"}


def test_optional_fields_of_requests_are_named():
    scenario = with_options(kv_connector=True)
    [request] = scenario.requests
    loaded = replace(request, external_tokens=4, load_steps=1, send_aborted=True)
    whole = replace(scenario, requests=(loaded,))
    names = needed_features(whole, lambda candidate: "kv_connector" in candidate.config)
    assert names == ("kv_connector on", "external_tokens", "send_aborted")
