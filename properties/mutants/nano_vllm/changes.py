"""Planted changes of nano-vLLM: tokens, phases and prefill."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from ....model.nano_vllm import block_manager, documented
from ....model.nano_vllm.config import NanoConfig
from ....model.nano_vllm.state import Plan, State
from ....model.pool import Pool

Make = Callable[[Any], Any]


def crash_on_third_running(original: Any) -> Any:
    """No room for a third sequence."""

    def schedule(config: NanoConfig, state: State) -> Plan:
        plan: Plan = original(config, state)
        if len(plan.running) > 2:
            raise RuntimeError("planted")
        return plan

    return schedule


def abort_loses_a_neighbour(original: Any) -> Any:
    """When a request is aborted, the last in the queue is lost, too."""

    def abort(config: NanoConfig, state: State, request_id: str) -> State:
        after: State = original(config, state, request_id)
        lost = after.aborted != state.aborted
        return after._replace(waiting=after.waiting[:-1]) if lost else after

    return abort


def one_token_more(original: Any) -> Any:
    """The last token is noticed a token late."""

    def postprocess(config: NanoConfig, state: State, plan: Plan) -> Any:
        late = [one._replace(output_len=one.output_len + 1) for one in state.running]
        after, *rest = original(config, state._replace(running=tuple(late)), plan)
        back = [one._replace(output_len=one.output_len - 1) for one in after.running]
        return after._replace(running=tuple(back)), *rest

    return postprocess


def last_token_again(while_waiting: bool) -> Make:
    """The last token is computed again and again: while others wait, or when no request does."""

    def make(original: Any) -> Any:
        def postprocess(config: NanoConfig, state: State, plan: Plan) -> Any:
            if plan.is_prefill or bool(state.waiting) != while_waiting:
                return original(config, state, plan)
            last = {one.id for one in state.running if one.generated + 1 == one.output_len}
            again = tuple(
                one._replace(computed=one.computed - 1) if one.id in last else one
                for one in state.running
            )
            after, emitted, finished = original(config, state._replace(running=again), plan)
            back = tuple(
                one._replace(computed=one.num_tokens - 1) if one.id in last else one
                for one in after.running
            )
            return after._replace(running=back), emitted, finished

        return postprocess

    return make


def both_phases(original: Any) -> Any:
    """Requests that run decode beside a prefill, if they need no block for it."""

    def schedule(config: NanoConfig, state: State) -> Plan:
        plan: Plan = original(config, state)
        if not plan.is_prefill:
            return plan
        beside = {one.id: 1 for one in state.running if not block_manager.crosses(config, one)}
        return plan._replace(scheduled={**plan.scheduled, **beside})

    return schedule


def decodes_first(original: Any) -> Any:
    """No request is admitted while a request runs."""

    def schedule(config: NanoConfig, state: State) -> Plan:
        if state.running:
            return documented.decode(config, state)
        plan: Plan = original(config, state)
        return plan

    return schedule


def with_config(**changes: Callable[[NanoConfig], Any]) -> Make:
    """Works with other parameters than the configuration's."""

    def make(original: Any) -> Any:
        def changed(config: NanoConfig, *rest: Any) -> Any:
            given = {key: change(config) for key, change in changes.items()}
            return original(replace(config, **given), *rest)

        return changed

    return make


def slots_of_the_step(original: Any) -> Any:
    """Requests that run are not counted: max_num_seqs bounds a step."""

    def prefill(config: NanoConfig, state: State) -> Plan:
        slots = config.max_num_seqs + len(state.running)
        plan: Plan = original(replace(config, max_num_seqs=slots), state)
        return plan

    return prefill


def cut_to_a_block(original: Any) -> Any:
    """The first prompt of a step is computed up to its first block only."""

    def prefill(config: NanoConfig, state: State) -> Plan:
        plan: Plan = original(config, state)
        for name, tokens in plan.scheduled.items():
            cut = {name: min(tokens, config.block_size)}
            return plan._replace(scheduled={**plan.scheduled, **cut})
        return plan

    return prefill


def passes_over(original: Any) -> Any:
    """A request that fails a gate is passed over."""

    def prefill(config: NanoConfig, state: State) -> Plan:
        plan: Plan = original(config, state)
        budget = config.max_num_batched_tokens - sum(plan.scheduled.values())
        if len(plan.waiting) < 2 or budget < 1:
            return plan
        rest = state._replace(waiting=plan.waiting[1:], running=plan.running, pool=plan.pool)
        others: Plan = original(replace(config, max_num_batched_tokens=budget), rest)
        return others._replace(
            waiting=(plan.waiting[0], *others.waiting),
            scheduled={**plan.scheduled, **others.scheduled},
        )

    return prefill


def one_block_short(original: Any) -> Any:
    """A block less than needed is enough."""

    def fits(pool: Pool, blocks: int) -> bool:
        enough: bool = original(pool, blocks - 1)
        return enough

    return fits


def two_tokens(original: Any) -> Any:
    """Requests that decode compute two tokens."""

    def decode(config: NanoConfig, state: State) -> Plan:
        plan: Plan = original(config, state)
        return plan._replace(scheduled=dict.fromkeys(plan.scheduled, 2))

    return decode


def last_is_passed_by(original: Any) -> Any:
    """The last of requests that run has no turn while three or more do."""

    def decode(config: NanoConfig, state: State) -> Plan:
        if len(state.running) < 3:
            plan: Plan = original(config, state)
            return plan
        plan = original(config, state._replace(running=state.running[:-1]))
        return plan._replace(running=(*plan.running, state.running[-1]))

    return decode
