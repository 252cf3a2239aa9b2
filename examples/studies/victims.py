"""Victim policies for the model: the two of the document, and two that answer its open question.

Source: chunked-prefill chapter, "What is unsolved": which request, if preempted, costs the least to
rebuild? The answer depends on what is still cached when it comes back, which is unknown at the
time: `warm` and `cold` are the two extremes.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

from ...model.vllm import kv_cache
from ...model.vllm.config import VllmConfig
from ...model.vllm.queue import Plan
from ...model.vllm.scheduler import Victim, by_policy
from ...model.vllm.state import Sequence

# Tokens that a running request would have to compute again if it were preempted now.
Rebuild = Callable[[VllmConfig, Plan, Sequence], int]


class Policy(NamedTuple):
    """A choice of the request that gives up its blocks, and the order of the queue; `about`
    describes it."""

    name: str
    about: str
    queue: Literal["fcfs", "priority"]
    pick: Victim


def rebuild_warm(config: VllmConfig, plan: Plan, sequence: Sequence) -> int:
    """Return the tokens to compute if the request came back at once, with all its blocks still
    cached."""
    pool = kv_cache.free(config, plan.pool, sequence, plan.running)
    hit = kv_cache.prefix_hit(config, pool, sequence.rewound())
    return sequence.num_tokens - len(hit) * config.block_size


def rebuild_cold(config: VllmConfig, plan: Plan, sequence: Sequence) -> int:
    """Return the tokens to compute if every block that it alone holds is handed out meanwhile."""
    held = {block for other in plan.running if other.id != sequence.id for block in other.blocks}
    kept = 0
    while kept < sequence.published and sequence.blocks[kept] in held:
        kept += 1
    return sequence.num_tokens - kept * config.block_size


def cheapest(rebuild: Rebuild) -> Victim:
    """Return a policy that picks the running request with the least to rebuild, the last one in a
    tie.

    It never picks the eldest unless that is alone. The eldest keeps what it has, so it ends, and
    then the next one does. Otherwise a cheap request could be preempted forever.
    """

    def pick(config: VllmConfig, plan: Plan) -> Sequence:
        eldest = min(plan.running, key=lambda sequence: sequence.arrival)
        others = [sequence for sequence in plan.running if sequence is not eldest]
        return min(
            reversed(others), key=lambda sequence: rebuild(config, plan, sequence), default=eldest
        )

    return pick


POLICIES = (
    Policy("tail", "the one admitted last", "fcfs", by_policy),
    Policy("priority", "the least important one", "priority", by_policy),
    Policy("warm", "the cheapest, if it came back at once", "fcfs", cheapest(rebuild_warm)),
    Policy("cold", "the cheapest, if it came back late", "fcfs", cheapest(rebuild_cold)),
)
