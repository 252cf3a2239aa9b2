"""What the search draws for a scheduler of the user's own."""

from schedproof.model.systems import full_config
from schedproof.properties.search.generators import generators_of, has_priorities


def takes(system, **config):
    return has_priorities(generators_of(system), full_config(system, "documented", config))


def test_only_a_scheduler_that_takes_any_order_gets_priorities():
    assert takes("generic", order="any")
    assert not takes("generic", order="fcfs")


def test_vllm_gets_priorities_and_llmservingsim_none():
    assert takes("vllm")
    assert not takes("llmservingsim")
