"""The cost of preemption: run a workload under a victim policy, and count.

Source: chunked-prefill chapter, "When the cache, not the budget, runs out".
"""

from typing import Any, NamedTuple

import msgspec

from ...model.vllm import completion, scheduler
from ...model.vllm.config import VllmConfig
from ...model.vllm.model import VllmModel
from .victims import Policy
from .workloads import Workload


class Cost(NamedTuple):
    """The cost of a workload under a policy.

    Attributes:
        preemptions: of all requests.
        most: preemptions of the request that has the most.
        computed: tokens computed.
        recomputed: tokens that the same request had computed before.
        steps: until the last request ends.
        mean_steps: from arrival to end, on average.
    """

    preemptions: int
    most: int
    computed: int
    recomputed: int
    steps: int
    mean_steps: float


def cost_of(config: VllmConfig, workload: Workload, policy: Policy) -> Cost:
    """Run the workload to its end and return the cost."""
    steps = run(config, workload, policy)
    preempted = [name for seen in steps for name in seen["preempted"]]
    lived = [
        number + 1 - request.arrival
        for number, seen in enumerate(steps)
        for request in workload.requests
        if request.id in seen["finished"]
    ]
    return Cost(
        preemptions=len(preempted),
        most=max((preempted.count(name) for name in set(preempted)), default=0),
        computed=sum(sum(seen["scheduled"].values()) for seen in steps),
        recomputed=recomputed(workload, steps),
        steps=len(steps),
        mean_steps=sum(lived) / len(lived),
    )


def run(config: VllmConfig, workload: Workload, policy: Policy) -> list[dict[str, Any]]:
    """Return the steps until every request has ended."""
    model = VllmModel(msgspec.structs.replace(config, policy=policy.queue))
    state = model.initial()
    coming = list(workload.requests)
    steps: list[dict[str, Any]] = []
    while coming or state.waiting or state.running:
        while coming and coming[0].arrival <= len(steps):
            state = model.arrive(state, coming.pop(0))
        plan = scheduler.schedule(model.config, state, policy.pick)
        state, seen = completion.carry_out(model.config, state, plan)
        steps.append(seen)
    return steps


def recomputed(workload: Workload, steps: list[dict[str, Any]]) -> int:
    """Return the number of tokens that a request had computed before and computed again."""
    # The last token that a request emits is never computed.
    whole = {
        request.id: request.prompt_len + request.tokens_to_emit - 1 for request in workload.requests
    }
    reached: dict[str, int] = {}
    again = 0
    for seen in steps:
        for name, tokens in seen["scheduled"].items():
            end = seen["computed"].get(name, whole[name])
            before = reached.get(name, 0)
            again += max(0, min(before, end) - (end - tokens))
            reached[name] = max(before, end)
    return again
