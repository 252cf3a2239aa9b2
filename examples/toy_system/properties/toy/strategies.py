"""The strategies for Hypothesis: configurations, and requests aimed at the limits of the scheduler.

The module implements `schedproof.properties.search.generators.Generators`. The closer the draws are
to a limit at which a decision changes, the fewer runs it takes to find a fault. This scheduler only
counts slots, so few slots and short requests suffice.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from schedproof.model.scenario import Request, Segment
from schedproof.properties.history.run_history import RunHistory
from schedproof.properties.search.generators import Shape

Config = Mapping[str, Any]
LATE_STEPS = 6  # a late request arrives at most this many steps after the others


def configs(scale: str, revision: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return complete configurations; scales differ in block sizes, which this scheduler lacks."""
    return st.builds(
        lambda slots: {"max_num_seqs": slots, "enable_prefix_caching": False}, st.integers(1, 3)
    )


def shapes(config: Config) -> st.SearchStrategy[Shape]:
    return st.builds(Shape, st.integers(1, 4), st.integers(1, 4), st.none())


def long_prompts(config: Config) -> st.SearchStrategy[Shape]:
    """Return prompts that take many steps; this scheduler has none."""
    return shapes(config)


def beside_the_batch(config: Config, history: RunHistory) -> st.SearchStrategy[Shape]:
    """Return requests aimed at a limit on tokens or blocks of the batch, which this scheduler
    lacks."""
    return shapes(config)


beside_a_prefill = beside_the_batch


def contents(
    config: Config, earlier: Sequence[Request], name: str, length: int
) -> st.SearchStrategy[tuple[Segment, ...]]:
    """Return prompts in segments; with a prefix cache, often segments of an earlier request."""
    return st.just(((name, length),))


def fitted(config: Config, content: Sequence[Segment], shape: Shape | None) -> Shape:
    """Return the shape with the length of `content`, cut to what can run."""
    prompt = sum(length for _, length in content)
    return Shape(prompt, shape.max_tokens if shape else 2, None)


def caches(config: Config) -> bool:
    return False


def steps_to_border(config: Config, history: RunHistory) -> int:
    """Return the steps until a limit is reached, such as the end of a block."""
    return 1
