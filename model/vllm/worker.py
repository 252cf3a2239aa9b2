"""The scheduler's messages to the worker, which keeps a block table for each request.

Source: release 0.33.0: SchedulerOutput, and the second model runner, which forgets a preempted
request. The first model runner keeps the request, and is told when the request resumes.
"""

from operator import itemgetter
from typing import Any

from .config import VllmConfig
from .queue import Plan
from .state import State


def add_message(
    config: VllmConfig, before: State, plan: Plan, after: State, seen: dict[str, Any]
) -> tuple[State, dict[str, Any]]:
    """Return the state, and the observation of a step with the message to the worker.

    For a request that continues (V1-R70), the message contains the new blocks (V1-R71) and the
    number of computed tokens (V1-R72). The first stage of a pipeline also gets the tokens (V1-R73).
    A request that joins is sent in full, and one that no longer runs is dropped (V1-R74). The data
    of an encoder input is sent with the step that encodes it (V1-R66), and the drafts with the step
    that verifies them (V1-R67).
    """
    ran = {request.id: request for request in before.running}
    for name in plan.preempted:
        ran.pop(name, None)
    computing = [request for request in plan.running if request.id in plan.scheduled]
    sent: dict[str, Any] = {"computed": {request.id: request.computed for request in computing}}
    if new := [request.id for request in computing if request.id not in ran]:
        sent["new"] = new
    blocks = {}
    for request in computing:
        old = ran.get(request.id)
        had = len(old.blocks) if old else 0
        if len(request.blocks) > had or request.tables:
            known = map(len, old.tables) if old else (0,) * len(request.tables)
            tables = [(request.blocks, had), *zip(request.tables, known, strict=True)]
            if any(len(table) > had for table, had in tables):
                blocks[request.id] = [[*table[had:]] for table, had in tables]
    if blocks:
        sent["blocks"] = blocks
    if config.depth > 1 and not config.async_scheduling:
        sent["tokens"] = {
            request.id: request.computed + plan.scheduled[request.id] for request in computing
        }
    if plan.pool.names is not None and (copies := plan.pool.names.copied):
        sent["copies"] = [[source, copy] for _, source, copy in sorted(copies, key=itemgetter(0))]
    if config.encodes:
        sent["inputs"] = seen["encoder_inputs"]
    if config.drafts:
        sent |= drafts_sent(config, plan, new)
    if dropped := [name for name in before.told if name not in ran]:
        sent["dropped"] = dropped
    told = (*ran, *new)
    if told != after.told:
        after = after._replace(told=told)
    return after, seen | {"sent": sent}


def drafts_sent(config: VllmConfig, plan: Plan, new: list[str]) -> dict[str, Any]:
    """Return how many drafts of each request the worker verifies (V1-R67). If the scheduler decides
    ahead, it sends placeholders, except for the padding of a request that joins (V1-R68)."""
    beyond = {
        request.id: plan.scheduled[request.id] - request.num_uncomputed_tokens
        for request in plan.running
        if request.id in plan.scheduled
    }
    drafts = {name: number for name, number in beyond.items() if number > 0}
    if not config.decides_ahead or not (replaced := [name for name in drafts if name not in new]):
        return {"drafts": drafts}
    return {"drafts": drafts, "placeholders": replaced}
