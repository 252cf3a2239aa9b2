"""Planted changes of vLLM V1: queues, preemption, admission and chunks."""

from collections.abc import Callable
from typing import Any
from unittest import mock

from msgspec.structs import replace

from ....model.pool import Pool, blocks_for, fits, take
from ....model.vllm import scheduler
from ....model.vllm.config import VllmConfig
from ....model.vllm.plan import Plan
from ....model.vllm.state import Coming, Sequence, State

QUEUES = ("waiting", "running")

Make = Callable[[Any], Any]


def lost_from_the_queue(original: Any) -> Any:
    """A preempted request is put nowhere."""
    return lambda config, waiting, preempted: waiting


def behind_the_first(original: Any) -> Any:
    """A preempted request is put behind the first of the queue."""

    def put_back(config: VllmConfig, waiting: tuple[Sequence, ...], one: Sequence) -> Any:
        if config.policy == "priority":
            return original(config, waiting, one)
        return (*waiting[:1], one, *waiting[1:])

    return put_back


def stays_with_the_running(original: Any) -> Any:
    """A preempted request stays in the list of running ones as well."""

    def schedule(config: VllmConfig, state: State, *rest: Any) -> Plan:
        plan: Plan = original(config, state, *rest)
        gone = [one for one in plan.waiting if one.id in plan.preempted]
        return plan._replace(running=(*plan.running, *gone))

    return schedule


def stays_in_the_queue(original: Any) -> Any:
    """The last of those admitted stays in the queue as well."""

    def schedule(config: VllmConfig, state: State, *rest: Any) -> Plan:
        plan: Plan = original(config, state, *rest)
        if len(plan.waiting) < len(state.waiting) and len(plan.running) > 1:
            return plan._replace(waiting=(plan.running[-1], *plan.waiting))
        return plan

    return schedule


def emits(when: Callable[[Sequence], bool]) -> Make:
    """A token comes out under another condition than that all known tokens are computed."""

    def make(original: Any) -> Any:
        def complete(config: VllmConfig, state: State, flight: Any) -> Any:
            there = [one for one in state.running if one.id in flight]
            other = {one.id: Coming(one.generated) if when(one) else None for one in there}
            after, emitted, finished = original(config, state, other)
            counts = {one.id: one.computed for one in state.running}
            back = tuple(one._replace(computed=counts[one.id]) for one in after.running)
            return after._replace(running=back), emitted, finished

        return complete

    return make


def rewound(change: Callable[[Sequence, Sequence], Sequence]) -> Make:
    """What a preempted request keeps: (before, after) -> after."""

    def make(original: Any) -> Any:
        def preempt(config: VllmConfig, plan: Plan, victim: Sequence) -> Plan:
            after: Plan = original(config, plan, victim)
            waiting = tuple(
                change(victim, one) if one.id == victim.id else one for one in after.waiting
            )
            return after._replace(waiting=waiting)

        return preempt

    return make


def keeps_its_blocks(original: Any) -> Any:
    """A preempted request with several blocks keeps the first."""

    def preempt(config: VllmConfig, plan: Plan, victim: Sequence) -> Plan:
        if len(victim.blocks) < 2:
            after: Plan = original(config, plan, victim)
            return after
        rest = victim._replace(blocks=victim.blocks[1:], published=0)
        after = original(config, plan, rest)
        waiting = tuple(
            one._replace(blocks=victim.blocks[:1]) if one.id == victim.id else one
            for one in after.waiting
        )
        return after._replace(waiting=waiting)

    return preempt


def admit_all_the_same(original: Any) -> Any:
    """Requests are admitted in a step that preempted."""

    def advance_running(config: VllmConfig, plan: Plan, *rest: Any) -> Plan:
        after: Plan = original(config, plan, *rest)
        return scheduler.admit_waiting(config, after) if after.preempted else after

    return advance_running


def passes_over(original: Any) -> Any:
    """A request that cannot be admitted is passed over, and those behind it are tried."""

    def admit_waiting(config: VllmConfig, plan: Plan) -> Plan:
        after: Plan = original(config, plan)
        if len(after.waiting) < 2:
            return after
        head = after.waiting[:1]
        behind: Plan = original(config, after._replace(waiting=after.waiting[1:]))
        return behind._replace(waiting=head + behind.waiting)

    return admit_waiting


def waiting_first(original: Any) -> Any:
    """Waiting requests are admitted before the running ones are served."""

    def schedule(config: VllmConfig, state: State, *rest: Any) -> Plan:
        plan = Plan(state.running, state.waiting, state.pool, config.max_num_batched_tokens, {})
        half = plan._replace(budget=plan.budget // 2)
        admitted = scheduler.admit_waiting(config, half) if state.running else half
        new = {one.id for one in admitted.running} - {one.id for one in state.running}
        if not new:
            after: Plan = original(config, state, *rest)
            return after
        old = admitted._replace(
            running=tuple(one for one in admitted.running if one.id not in new),
            budget=admitted.budget + plan.budget - half.budget,
        )
        served = scheduler.advance_running(config, old)
        joined = tuple(one for one in admitted.running if one.id in new)
        return served._replace(running=served.running + joined)

    return schedule


def skips_the_last(original: Any) -> Any:
    """Of three or more running requests the last has no turn."""

    def advance_running(config: VllmConfig, plan: Plan, *rest: Any) -> Plan:
        last = plan.running[-1:] if len(plan.running) > 2 else ()
        served = plan.running[: len(plan.running) - len(last)]
        after: Plan = original(config, plan._replace(running=served), *rest)
        return after._replace(running=after.running + last)

    return advance_running


def silently_back(original: Any) -> Any:
    """A request whose prompt takes a second chunk goes back to the queue with it, and with what it
    has."""

    def carry_out(config: VllmConfig, state: State, plan: Plan, *inside: Any) -> Any:
        after, seen = original(config, state, plan, *inside)
        if len(after.running) < 2:
            return after, seen
        last = after.running[-1]
        before = last.computed - plan.scheduled.get(last.id, 0)
        if last.prefix_hit < before < last.prompt:
            after = after._replace(running=after.running[:-1], waiting=(last, *after.waiting))
            queues = {name: [one.id for one in getattr(after, name)] for name in QUEUES}
            seen = {**seen, **queues}
        return after, seen

    return carry_out


def cut_in_half(original: Any) -> Any:
    """Of more than two tokens only half are computed."""

    def clamp(config: VllmConfig, behind: int, budget: int) -> int:
        tokens: int = original(config, behind, budget)
        return tokens // 2 if tokens > 2 else tokens

    return clamp


def with_clamp(make: Make) -> Make:
    """Another clamp in one of the two phases of a step."""

    def made(original: Any) -> Any:
        def phase(config: VllmConfig, plan: Plan, *rest: Any) -> Plan:
            with mock.patch.object(scheduler, "clamp", make(scheduler.clamp)):
                after: Plan = original(config, plan, *rest)
            return after

        return phase

    return made


def one_beyond(original: Any) -> Any:
    """The last chunk of a prompt has a token too many, if the budget has room for it."""

    def clamp(config: VllmConfig, behind: int, budget: int) -> int:
        tokens: int = original(config, behind, budget)
        return tokens + 1 if 1 < tokens == behind < budget else tokens

    return clamp


def no_threshold(original: Any) -> Any:
    """The threshold is forgotten."""
    return lambda config, behind: behind


def lifted_when_alone(original: Any) -> Any:
    """The threshold is lifted for the only request."""

    def schedule(config: VllmConfig, state: State, *rest: Any) -> Plan:
        alone = len(state.running) + len(state.waiting) == 1
        plain = replace(config, long_prefill_token_threshold=0)
        after: Plan = original(plain if alone else config, state, *rest)
        return after

    return schedule


def chunks_all_the_same(original: Any) -> Any:
    """Prompts are chunked, whatever is configured."""

    def admit_waiting(config: VllmConfig, plan: Plan) -> Plan:
        after: Plan = original(replace(config, enable_chunked_prefill=True), plan)
        return after

    return admit_waiting


def whole_prompt_hit(original: Any) -> Any:
    """The last token may be cached, too."""

    def prefix_hit(config: VllmConfig, pool: Pool, one: Sequence) -> tuple[int, ...]:
        if one.generated:
            found: tuple[int, ...] = original(config, pool, one)
            return found
        longer = one._replace(prompt=one.prompt + 1)
        more: tuple[int, ...] = original(config, pool, longer)
        return more

    return prefix_hit


def hit_cut_short(original: Any) -> Any:
    """Of several cached blocks the last is not found."""
    return lambda config, pool, one: original(config, pool, one)[:1]


def named_by_length(content: Any, tokens: int) -> Any:
    """A block is named by its place alone, not by what comes before and in it."""
    return (("anything", tokens),)


def hits_not_counted(original: Any) -> Any:
    """What was cached is left out of the counter that is shown."""

    def observe(*args: Any) -> dict[str, Any]:
        seen: dict[str, Any] = original(*args)
        hits = seen.get("prefix_hit", {})
        seen["computed"] = {name: n - hits.get(name, 0) for name, n in seen["computed"].items()}
        return seen

    return observe


def one_block_ahead(original: Any) -> Any:
    """A running request is given a block more than it needs, as soon as one is free."""

    def grow(config: VllmConfig, pool: Pool, one: Sequence, tokens: int) -> Any:
        grown = original(config, pool, one, tokens)
        if grown is None or not fits(grown[1], 1):
            return grown
        more = take(grown[1], 1)
        return grown[0]._replace(blocks=grown[0].blocks + more[0]), more[1]

    return grow


def reserve_kept_from_all(original: Any) -> Any:
    """The watermark is kept from running requests, too."""

    def grow(config: VllmConfig, pool: Pool, one: Sequence, tokens: int) -> Any:
        missing = blocks_for(one.computed + tokens, config.block_size) - len(one.blocks)
        if missing > 0 and not fits(pool, missing + config.watermark_blocks):
            return None
        return original(config, pool, one, tokens)

    return grow


def admits(**changes: Any) -> Make:
    """Admission as if it were configured otherwise."""

    def make(original: Any) -> Any:
        def admit(config: VllmConfig, *rest: Any) -> Any:
            return original(replace(config, **changes), *rest)

        return admit

    return make


def reserve_before_anyone_runs(original: Any) -> Any:
    """The watermark is kept although no request runs."""

    def admit(config: VllmConfig, pool: Pool, one: Any, hit: Any, tokens: int, runs: bool) -> Any:
        return original(config, pool, one, hit, tokens, True)

    return admit


def first_come_first_preempted(original: Any) -> Any:
    """The one that came first gives way."""

    def victim(config: Any, running: Any) -> Any:
        return running[0] if config.policy == "fcfs" else original(config, running)

    return victim


def by_priority_alone(original: Any) -> Any:
    """Of equals, the one that came first gives way."""

    def victim(config: Any, running: Any) -> Any:
        if config.policy == "priority":
            return max(running, key=lambda one: one.priority)
        return original(config, running)

    return victim
