"""Planted changes of LLMServingSim: admission, hits and preemption."""

from collections.abc import Callable
from typing import Any
from unittest import mock

from ....model.llmservingsim import documented, head, kv_cache
from ....model.llmservingsim.config import LlmServingSimConfig
from ....model.llmservingsim.state import Plan, Sequence, State
from ....model.pool import Pool

Make = Callable[[Any], Any]
Config = LlmServingSimConfig


def ends_the_batch(original: Any) -> Any:
    """The first request that gets nothing ends the batch."""

    def served(config: Config, plan: Plan, one: Sequence) -> Plan:
        after: Plan = original(config, plan, one)
        return after._replace(budget=0) if after.scheduled == plan.scheduled else after

    return served


def nothing_promised(original: Any) -> Any:
    """No block is promised to any request."""
    return lambda config, running: 0


def room_for(longest: Callable[[Sequence, int], int]) -> Make:
    """Another length must fit when a request starts: (request, tokens after the step)."""

    def make(original: Any) -> Any:
        def admit(
            config: Config, pool: Pool, one: Sequence, hit: Any, tokens: int, *rest: Any
        ) -> Any:
            after = len(hit) * config.block_size + tokens
            return original(config, pool, one, hit, tokens, longest(one, after), *rest[1:])

        return admit

    return make


def others_may_start(original: Any) -> Any:
    """Behind a request that waits for blocks others may start."""

    def starting(config: Config, plan: Plan, one: Sequence) -> Plan:
        after: Plan = original(config, plan, one)
        return after._replace(short=False)

    return starting


def newcomers_get_half(original: Any) -> Any:
    """Of more than two tokens of a request that starts only half are computed."""

    def starting(config: Config, plan: Plan, one: Sequence) -> Plan:
        def cap(config: Config, budget: int, needed: int) -> int:
            tokens = unchanged(config, budget, needed)
            return tokens // 2 if tokens > 2 else tokens

        unchanged = documented.cap
        with mock.patch.object(documented, "cap", cap):
            after: Plan = original(config, plan, one)
        return after

    return starting


def hit_subtracted_twice(original: Any) -> Any:
    """What is cached is taken from the tokens to compute twice, as long as one is left."""

    def starting(config: Config, plan: Plan, one: Sequence) -> Plan:
        hit = len(kv_cache.prefix_hit(config, plan.pool, one)) * config.block_size

        def need(other: Sequence) -> int:
            tokens = unchanged(other)
            return tokens - hit if tokens > 2 * hit else tokens

        unchanged = documented.need
        with mock.patch.object(documented, "need", need):
            after: Plan = original(config, plan, one)
        return after

    return starting


def hits_not_counted(original: Any) -> Any:
    """What was cached is left out of the counter that is shown."""

    def observe(*args: Any) -> dict[str, Any]:
        seen: dict[str, Any] = original(*args)
        hits = seen.get("prefix_hit", {})
        seen["computed"] = {name: n - hits.get(name, 0) for name, n in seen["computed"].items()}
        return seen

    return observe


def the_last_but_one(original: Any) -> Any:
    """Of those not yet scheduled the last but one makes room."""

    def victim(plan: Plan) -> Sequence:
        open_ = [one for one in plan.running if one.id not in plan.scheduled]
        return open_[-2] if len(open_) > 2 else open_[-1]

    return victim


def admit_all_the_same(original: Any) -> Any:
    """Requests are admitted in a step that preempted."""

    def advance_running(config: Config, plan: Plan) -> Plan:
        after: Plan = original(config, plan)
        return head.admit_waiting(config, after) if after.preempted else after

    return advance_running


def preempts_to_admit(original: Any) -> Any:
    """For a waiting request the last of the running ones gives way."""

    def admit_waiting(config: Config, plan: Plan) -> Plan:
        after: Plan = original(config, plan)
        last = after.running[-1:]
        if not after.waiting or len(after.running) < 2 or after.running != plan.running:
            return after
        newcomer, rest = after.waiting[0], after.waiting[1:]
        freed = head.preempt(config, after._replace(waiting=rest), last[0])
        left = {name: n for name, n in freed.scheduled.items() if name != last[0].id}
        admitted: Plan = original(config, freed._replace(waiting=(newcomer,), scheduled=left))
        return admitted._replace(waiting=(*admitted.waiting, *freed.waiting))

    return admit_waiting


def keeps_its_blocks(original: Any) -> Any:
    """A request that makes room and has several blocks keeps the first."""

    def preempt(config: Config, plan: Plan, last: Sequence) -> Plan:
        if len(last.blocks) < 2:
            after: Plan = original(config, plan, last)
            return after
        after = original(config, plan, last._replace(blocks=last.blocks[1:], published=0))
        first = after.waiting[0]._replace(blocks=last.blocks[:1])
        return after._replace(waiting=(first, *after.waiting[1:]))

    return preempt


def put_behind(original: Any) -> Any:
    """A request that makes room waits behind all others."""

    def preempt(config: Config, plan: Plan, last: Sequence) -> Plan:
        after: Plan = original(config, plan, last)
        return after._replace(waiting=(*after.waiting[1:], after.waiting[0]))

    return preempt


def shorter_first(original: Any) -> Any:
    """The second in line is admitted first, if its prompt is shorter."""

    def admit_waiting(config: Config, plan: Plan) -> Plan:
        if len(plan.waiting) > 1 and plan.waiting[1].prompt < plan.waiting[0].prompt:
            first, second, *rest = plan.waiting
            plan = plan._replace(waiting=(second, first, *rest))
        after: Plan = original(config, plan)
        return after

    return admit_waiting


def whole_prompt_hit(original: Any) -> Any:
    """The last token may be cached, too."""

    def prefix_hit(config: Config, pool: Pool, one: Sequence) -> Any:
        if one.generated:
            return original(config, pool, one)
        return original(config, pool, one._replace(prompt=one.prompt + 1))

    return prefix_hit


def hits_not_reported(original: Any) -> Any:
    """What was cached of a prompt is not part of its throughput."""

    def add_done(revision: Any, config: Config, state: State, number: int) -> Any:
        after, done = original(revision, config, state, number)
        hits = sum(one.prefix_hit for one in _first_tokens(state, done))
        return after, done._replace(prompt_throughput=max(done.prompt_throughput - hits, 0))

    return add_done


def first_token_not_reported(original: Any) -> Any:
    """A token counts as generated from the second one on."""

    def add_done(revision: Any, config: Config, state: State, number: int) -> Any:
        after, done = original(revision, config, state, number)
        first = len(_first_tokens(state, done))
        return after, done._replace(decode_throughput=done.decode_throughput - first)

    return add_done


def _first_tokens(state: State, done: Any) -> list[Any]:
    return [one for one in state.running if one.id in done.emitted and not one.generated]
