"""What a release is judged in: by system, keys of the configuration that have one value."""

from collections.abc import Mapping
from typing import NamedTuple


class Configuration(NamedTuple):
    """A name, and what `gate --set` is given."""

    name: str
    changes: tuple[str, ...] = ()


AHEAD, LOADS = "async_scheduling=true", "kv_connector=true"
ENDS = "kv_load_failure_policy=fail"
ALL_OF_IT = (Configuration("any"),)
CONFIGURATIONS: Mapping[str, tuple[Configuration, ...]] = {
    "vllm": (
        Configuration("one step at a time", ("async_scheduling=false",)),
        Configuration("drafts", ("num_speculative_tokens=2",)),
        Configuration("asynchronous", (AHEAD,)),
        Configuration("asynchronous, fast worker", (AHEAD, "early_completions=2")),
        Configuration("pipeline of three", ("pipeline_parallel_size=3",)),
        Configuration("asynchronous, pipeline of three", (AHEAD, "pipeline_parallel_size=3")),
        Configuration("connector", (LOADS,)),
        Configuration("connector, asynchronous", (LOADS, AHEAD)),
        Configuration("connector, asynchronous, policy fail", (LOADS, AHEAD, ENDS)),
        Configuration("encoder", ("max_num_encoder_input_tokens=4", "encoder_cache_size=8")),
    ),
}


def configurations_of(system: str) -> tuple[Configuration, ...]:
    """The configurations in which releases of a system are judged."""
    return CONFIGURATIONS.get(system, ALL_OF_IT)
