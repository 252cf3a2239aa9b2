"""A finding names the features that it needs, and none that the target cannot do without."""

import pytest

from schedproof.model.scenario import Request, Scenario
from schedproof.model.systems import full_config
from schedproof.properties.shrinking.shrink import needed_features

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
