"""Planted changes of vLLM V1: tokens, blocks, budget and slots."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from ....model.pool import Pool, publish
from ....model.prefix import prefix
from ....model.vllm.config import VllmConfig
from ....model.vllm.plan import Plan
from ....model.vllm.state import Sequence, State

Make = Callable[[Any], Any]


def crash_on_fourth_running(original: Any) -> Any:
    """No room for a fourth request."""

    def schedule(config: VllmConfig, state: State, *rest: Any) -> Plan:
        plan: Plan = original(config, state, *rest)
        if len(plan.running) > 3:
            raise RuntimeError("planted")
        return plan

    return schedule


def abort_loses_a_neighbour(original: Any) -> Any:
    """When a request is aborted, the last in the queue is lost, too."""

    def abort(config: VllmConfig, state: State, request_id: str) -> State:
        after: State = original(config, state, request_id)
        lost = after.aborted != state.aborted
        return after._replace(waiting=after.waiting[:-1]) if lost else after

    return abort


def longer(by: int) -> Make:
    """The last token is noticed so many tokens late."""

    def make(original: Any) -> Any:
        def complete(config: VllmConfig, state: State, computed: Any) -> Any:
            late = [one._replace(output_len=one.output_len + by) for one in state.running]
            after, *rest = original(config, state._replace(running=tuple(late)), computed)
            back = [one._replace(output_len=one.output_len - by) for one in after.running]
            return after._replace(running=tuple(back)), *rest

        return complete

    return make


def last_token_again(while_waiting: bool) -> Make:
    """The last token is computed again and again: while others wait, or when no request does."""

    def make(original: Any) -> Any:
        def complete(config: VllmConfig, state: State, flight: Any) -> Any:
            if bool(state.waiting) != while_waiting:
                return original(config, state, flight)
            last = {
                one.id
                for one in state.running
                if one.generated
                and one.num_uncomputed_tokens == 0
                and one.generated + 1 == one.output_len
            }
            again = tuple(
                one._replace(computed=one.computed - 1) if one.id in last else one
                for one in state.running
            )
            kept = {name: token for name, token in flight.items() if name not in last}
            return original(config, state._replace(running=again), kept)

        return complete

    return make


def tokens_lost_at_preemption(original: Any) -> Any:
    """A preempted request forgets what it has generated."""

    def preempt(config: VllmConfig, plan: Plan, victim: Sequence) -> Plan:
        after: Plan = original(config, plan, victim)
        forgotten = tuple(
            one._replace(generated=0) if one.id == victim.id else one for one in after.waiting
        )
        return after._replace(waiting=forgotten)

    return preempt


def unfilled_blocks_are_found(original: Any) -> Any:
    """A request that is preempted in the step that was to fill a block leaves it to be found."""

    def free(config: VllmConfig, pool: Pool, one: Sequence, others: tuple[Sequence, ...]) -> Pool:
        ahead = max(one.computed, one.published * config.block_size)
        found: Pool = original(config, pool, one._replace(computed=ahead), others)
        return found

    return free


def found_before_full(original: Any) -> Any:
    """The block that is being filled can be found already."""

    def hold(config: VllmConfig, pool: Pool, one: Sequence, tokens: int) -> Any:
        held, after = original(config, pool, one, tokens)
        if not config.enable_prefix_caching or len(held.blocks) <= held.published:
            return held, after
        name = prefix(held.known, len(held.blocks) * config.block_size)
        return held, publish(after, [(held.blocks[-1], name)])

    return hold


def last_block_stays(original: Any) -> Any:
    """The last of several blocks is not given back."""

    def free(config: VllmConfig, pool: Pool, one: Sequence, others: tuple[Sequence, ...]) -> Pool:
        kept = one.blocks[:-1] if len(one.blocks) > 1 else one.blocks
        after: Pool = original(config, pool, one._replace(blocks=kept), others)
        return after

    return free


def share_not_taken(original: Any) -> Any:
    """What running requests compute is not taken from the budget."""

    def advance_running(config: VllmConfig, plan: Plan, *rest: Any) -> Plan:
        after: Plan = original(config, plan, *rest)
        return after._replace(budget=plan.budget)

    return advance_running


def one_token_over(original: Any) -> Any:
    """The last request of a step may have one token more than the budget has left."""
    return lambda config, behind, budget: original(config, behind, budget + 1)


def whole_budget_for_newcomers(original: Any) -> Any:
    """Requests that join have a budget of their own."""

    def admit_waiting(config: VllmConfig, plan: Plan) -> Plan:
        after: Plan = original(config, plan._replace(budget=config.max_num_batched_tokens))
        return after

    return admit_waiting


def slots(more: Callable[[VllmConfig, Plan], int]) -> Make:
    """There are `more` slots beyond max_num_seqs."""

    def make(original: Any) -> Any:
        def admit_waiting(config: VllmConfig, plan: Plan) -> Plan:
            wider = replace(config, max_num_seqs=config.max_num_seqs + more(config, plan))
            after: Plan = original(wider, plan)
            return after

        return admit_waiting

    return make


def one_more(config: VllmConfig, plan: Plan) -> int:
    """One more."""
    return 1


def one_less(config: VllmConfig, plan: Plan) -> int:
    """One less, down to a single one."""
    return -1 if config.max_num_seqs > 1 else 0


def prefills_take_none(config: VllmConfig, plan: Plan) -> int:
    """Requests whose prompt is not computed take none."""
    return sum(not one.generated for one in plan.running)


def counted_once(config: VllmConfig, plan: Plan) -> int:
    """They are counted when admission begins, not for each newcomer."""
    return plan.budget if len(plan.running) < config.max_num_seqs else 0
