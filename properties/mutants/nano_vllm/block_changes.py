"""Planted changes of nano-vLLM: decode, preemption and blocks."""

from collections.abc import Callable
from typing import Any

from ....model.nano_vllm.config import NanoConfig
from ....model.nano_vllm.state import Plan, Sequence, State
from ....model.pool import Pool, take
from ....model.prefix import cached_blocks

Make = Callable[[Any], Any]


def reversed_running(original: Any) -> Any:
    """Requests that decoded go back to the queue in reverse."""

    def decode(config: NanoConfig, state: State) -> Plan:
        plan: Plan = original(config, state)
        return plan._replace(running=plan.running[::-1])

    return decode


def victim_from_the_middle(original: Any) -> Any:
    """Not the last is preempted but the one before it."""

    def preempt(config: NanoConfig, plan: Plan, victim: Sequence, ready: Any) -> Plan:
        if len(plan.running) > 2:
            *front, victim, last = plan.running
            plan = plan._replace(running=(*front, last, victim))
        after: Plan = original(config, plan, victim, ready)
        return after

    return preempt


def a_block_in_reserve(original: Any) -> Any:
    """The last free block is kept."""

    def can_append(config: NanoConfig, pool: Pool, one: Sequence) -> bool:
        fits: bool = original(config, take(pool, 1)[1], one)
        return fits

    return can_append


def victim_keeps_a_block(original: Any) -> Any:
    """A preempted sequence keeps its first block."""

    def preempt(config: NanoConfig, plan: Plan, victim: Sequence, ready: Any) -> Plan:
        after: Plan = original(config, plan, victim._replace(blocks=victim.blocks[1:]), ready)
        keeps = after.waiting[0]._replace(blocks=victim.blocks[:1])
        return after._replace(waiting=(keeps, *after.waiting[1:]))

    return preempt


def victim_to_the_back(original: Any) -> Any:
    """A preempted sequence waits behind all others."""

    def preempt(config: NanoConfig, plan: Plan, victim: Sequence, ready: Any) -> Plan:
        after: Plan = original(config, plan, victim, ready)
        return after._replace(waiting=(*after.waiting[1:], after.waiting[0]))

    return preempt


def arrives_in_front(original: Any) -> Any:
    """A new request goes to the front of the queue."""

    def arrive(state: State, newcomer: Sequence) -> State:
        return state._replace(waiting=(newcomer, *state.waiting))

    return arrive


def a_token_short(original: Any) -> Any:
    """A request that comes back leaves its last generated token out."""

    def admitted(plan: Plan, one: Sequence, pool: Pool, tokens: int) -> Plan:
        skipped = int(one.generated > 0 and tokens > 1)
        after: Plan = original(
            plan, one._replace(computed=one.computed + skipped), pool, tokens - skipped
        )
        return after

    return admitted


def last_block_stays(original: Any) -> Any:
    """The last of several blocks is not given back."""

    def deallocate(pool: Pool, one: Sequence, *rest: Any) -> Pool:
        kept = one.blocks[:-1] if len(one.blocks) > 1 else one.blocks
        after: Pool = original(pool, one._replace(blocks=kept), *rest)
        return after

    return deallocate


def hit_of_a_token_more(original: Any) -> Any:
    """A hit counts one token of the block behind it."""

    def allocate(config: NanoConfig, pool: Pool, one: Sequence, hit: Any) -> Any:
        after, left = original(config, pool, one, hit)
        return after._replace(prefix_hit=after.prefix_hit + bool(hit)), left

    return allocate


def last_block_found(original: Any) -> Any:
    """The last block may be a hit."""

    def prefix_hit(config: NanoConfig, pool: Pool, one: Sequence) -> tuple[int, ...]:
        return cached_blocks(pool, one.known, one.num_tokens + 1, config.block_size)

    return prefix_hit


def crosses_early(original: Any) -> Any:
    """A new block comes with the last token of the one before."""

    def crosses(config: NanoConfig, one: Sequence) -> bool:
        return one.num_tokens % config.block_size == 0

    return crosses


def no_token_at_a_border(original: Any) -> Any:
    """A prompt that ends with its fourth or eighth token gives none."""

    def caught_up(one: Sequence) -> bool:
        done: bool = original(one)
        return done and (one.generated > 0 or one.computed % 4 > 0)

    return caught_up


def head_holds_a_block(original: Any) -> Any:
    """While others decode, the first in line is given a block."""

    def decode(config: NanoConfig, state: State) -> Plan:
        plan: Plan = original(config, state)
        new, pool = take(plan.pool, 1)
        if not plan.waiting or plan.preempted or not new:
            return plan
        head = plan.waiting[0]._replace(blocks=new)
        return plan._replace(waiting=(head, *plan.waiting[1:]), pool=pool)

    return decode


def two_blocks(original: Any) -> Any:
    """At a border a sequence gets two blocks."""

    def may_append(config: NanoConfig, pool: Pool, one: Sequence) -> tuple[Sequence, Pool]:
        after, left = original(config, pool, one)
        if after.blocks == one.blocks:
            return after, left
        more, left = take(left, 1)
        return after._replace(blocks=after.blocks + more), left

    return may_append


def first_block_written(original: Any) -> Any:
    """Whatever is computed goes to the first block of the table."""

    def slot_blocks(config: NanoConfig, state: State, plan: Plan) -> dict[str, list[int]]:
        written: dict[str, list[int]] = original(config, state, plan)
        tables = {one.id: one.blocks for one in (*state.running, *state.waiting)}
        return {name: [*tables[name][:1]] for name in written}

    return slot_blocks


def found_by_length(original: Any) -> Any:
    """Any block that ends at the same token will do."""

    def prefix_hit(config: NanoConfig, pool: Pool, one: Sequence) -> tuple[int, ...]:
        ends = {
            sum(tokens for _, tokens in content): holders[0]
            for content, holders in pool.cached.items()
        }
        found: list[int] = []
        for number in range(1, (one.num_tokens - 1) // config.block_size + 1):
            if number * config.block_size not in ends:
                break
            found.append(ends[number * config.block_size])
        return tuple(found)

    return prefix_hit


def two_for_one(original: Any) -> Any:
    """With each sequence that gives way the one in front of it does, too."""

    def preempt(config: NanoConfig, plan: Plan, victim: Sequence, *rest: Any) -> Plan:
        after: Plan = original(config, plan, victim, *rest)
        return original(config, after, after.running[-1], *rest) if after.running else after

    return preempt
