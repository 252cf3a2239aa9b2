"""Victim policies for the model: the two of the document, and two that it only asks for.

Source: chunked-prefill chapter, "What is unsolved": which request, if preempted, costs the least
to rebuild? The answer depends on what is still cached when it comes back, which is not known
yet: `warm` and `cold` are the two ends.
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
    """A request that gives its blocks up, and by what the queue is ordered. `about`: in a few
    words."""

    name: str
    about: str
    queue: Literal["fcfs", "priority"]
    pick: Victim


def rebuild_warm(config: VllmConfig, plan: Plan, sequence: Sequence) -> int:
    """If it came back at once: what it alone held is free by then, and still cached."""
    pool = kv_cache.free(config, plan.pool, sequence, plan.running)
    hit = kv_cache.prefix_hit(config, pool, sequence.rewound())
    return sequence.num_tokens - len(hit) * config.block_size


def rebuild_cold(config: VllmConfig, plan: Plan, sequence: Sequence) -> int:
    """If what it alone holds is handed out before it comes back: only what others hold stays."""
    held = {block for other in plan.running if other.id != sequence.id for block in other.blocks}
    kept = 0
    while kept < sequence.published and sequence.blocks[kept] in held:
        kept += 1
    return sequence.num_tokens - kept * config.block_size


def cheapest(rebuild: Rebuild) -> Victim:
    """The running request that costs the least to rebuild, the last of them where it is a tie.

    Never the eldest, unless it is alone: it keeps what it has, so it ends, and then the next one
    does. A request that is cheap could else be preempted for ever.
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
