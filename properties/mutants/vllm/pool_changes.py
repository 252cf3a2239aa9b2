"""Planted changes of vLLM V1: more is preempted than needed, less is asked for than documented."""

from typing import Any

from msgspec.structs import replace

from ....model.pool import Pool, free_blocks
from ....model.vllm import scheduler
from ....model.vllm.config import VllmConfig
from ....model.vllm.plan import Plan
from ....model.vllm.state import State


def preempts_all_but_the_first(original: Any) -> Any:
    """Where one request has to give way, first come, first served, all behind the first do."""

    def schedule(config: VllmConfig, state: State, *rest: Any) -> Plan:
        plan: Plan = original(config, state, *rest)
        if config.policy == "priority" or not plan.preempted or len(state.running) < 3:
            return plan
        plan = Plan(state.running, state.waiting, state.pool, config.max_num_batched_tokens, {})
        for victim in reversed(state.running[1:]):
            plan = scheduler.preempt(config, plan, victim)
        return scheduler.advance_running(config, plan)

    return schedule


def watermark_beside_the_first_chunk(original: Any) -> Any:
    """All that a request knows must fit, and the watermark beside its first chunk: never both."""

    def admit(config: VllmConfig, pool: Pool, one: Any, hit: Any, tokens: int, runs: bool) -> Any:
        admitted = original(replace(config, watermark=0.0), pool, one, hit, tokens, runs)
        if admitted is None:
            return None
        left = free_blocks(admitted[1])
        reserve = config.watermark_blocks if runs else 0
        return None if left is not None and left < reserve else admitted

    return admit


def cached_blocks_cost_nothing(original: Any) -> Any:
    """Cached blocks that no request holds are not counted as needed."""
    return lambda pool, hit: 0
