"""Faults to be planted in the models of LLMServingSim: each replaces one of their functions."""

from collections.abc import Callable
from typing import Any
from unittest import mock

from msgspec.structs import replace

from ...model.llmservingsim import documented, head, kv_cache
from ...model.llmservingsim.config import LlmServingSimConfig
from ...model.llmservingsim.state import Plan, Sequence, State
from ...model.pool import Pool
from ...model.prefix import prefix

Make = Callable[[Any], Any]
Config = LlmServingSimConfig


def crash_on_third_running(original: Any) -> Any:
    """No room for a third request."""

    def admit_waiting(config: Config, plan: Plan) -> Plan:
        after: Plan = original(config, plan)
        if len(after.running) > 2:
            raise RuntimeError("planted")
        return after

    return admit_waiting


def abort_loses_a_neighbour(original: Any) -> Any:
    """When someone is aborted, the last in the queue is lost, too."""

    def abort(config: Config, state: State, request_id: str) -> State:
        after: State = original(config, state, request_id)
        lost = after.aborted != state.aborted
        return after._replace(waiting=after.waiting[:-1]) if lost else after

    return abort


def longer(by: int) -> Make:
    """The last token is noticed so many tokens late."""

    def make(original: Any) -> Any:
        def add_done(revision: Any, config: Config, state: State, number: int) -> Any:
            late = [one._replace(output_len=one.output_len + by) for one in state.running]
            after, done = original(revision, config, state._replace(running=tuple(late)), number)
            back = [one._replace(output_len=one.output_len - by) for one in after.running]
            return after._replace(running=tuple(back)), done

        return add_done

    return make


def last_token_again(while_waiting: bool) -> Make:
    """The last token is computed again and again: while others wait, or when nobody does."""

    def make(original: Any) -> Any:
        def add_done(revision: Any, config: Config, state: State, number: int) -> Any:
            if bool(state.waiting) != while_waiting:
                return original(revision, config, state, number)
            again = tuple(
                one._replace(computed=one.computed - 1)
                if one.generated and one.generated + 1 == one.output_len
                else one
                for one in state.running
            )
            return original(revision, config, state._replace(running=again), number)

        return add_done

    return make


def emits(when: Callable[[Sequence], bool]) -> Make:
    """At HEAD a token comes out under another condition than that all known ones are computed."""

    def make(original: Any) -> Any:
        def add_done(revision: Any, config: Config, state: State, number: int) -> Any:
            moved = tuple(
                one._replace(computed=one.num_tokens if when(one) else one.num_tokens - 1)
                for one in state.running
            )
            after, done = original(revision, config, state._replace(running=moved), number)
            counts = {one.id: one.computed for one in state.running}
            back = tuple(one._replace(computed=counts[one.id]) for one in after.running)
            return after._replace(running=back), done

        return add_done

    return make


def found_before_full(original: Any) -> Any:
    """The block that is being filled can be found already."""

    def hold(config: Config, pool: Pool, one: Sequence, tokens: int) -> Any:
        held, after = original(config, pool, one, tokens)
        if not config.enable_prefix_caching or len(held.blocks) <= held.published:
            return held, after
        name = prefix(held.known, len(held.blocks) * config.block_size)
        return held, after._replace(cached={**after.cached, name: (held.blocks[-1],)})

    return hold


def last_block_stays(original: Any) -> Any:
    """The last of several blocks is not given back."""

    def free(config: Config, pool: Pool, one: Sequence, others: Any) -> Pool:
        kept = one.blocks[:-1] if len(one.blocks) > 1 else one.blocks
        after: Pool = original(config, pool, one._replace(blocks=kept), others)
        return after

    return free


def cache_all_the_same(original: Any) -> Any:
    """Prefixes are cached, whatever is configured."""

    def cached(config: Config, *rest: Any) -> Any:
        return original(replace(config, enable_prefix_caching=True), *rest)

    return cached


def cuts_all_the_same(original: Any) -> Any:
    """Prompts are cut, whatever is configured."""

    def decided(config: Config, *rest: Any) -> Any:
        return original(replace(config, enable_chunked_prefill=True), *rest)

    return decided


def one_token_over(original: Any) -> Any:
    """The last request of a batch may have one token more than the budget has left."""
    return lambda config, budget, needed: original(config, budget + 1, needed)


def budget_of_their_own(original: Any) -> Any:
    """Those who join have a budget of their own."""

    def admit_waiting(config: Config, plan: Plan) -> Plan:
        after: Plan = original(config, plan._replace(budget=config.max_num_batched_tokens))
        return after

    return admit_waiting


def seats(more: int) -> Make:
    """So many seats more than max_num_seqs, but at least one."""

    def make(original: Any) -> Any:
        def has_seat(config: Config, taken: int) -> bool:
            return not config.max_num_seqs or taken < max(config.max_num_seqs + more, 1)

        return has_seat

    return make


def no_cap_is_one(original: Any) -> Any:
    """0 is taken for a number of seats, if only for one."""
    return lambda config, taken: taken < max(config.max_num_seqs, 1)


def no_threshold(original: Any) -> Any:
    """The threshold is forgotten."""
    return lambda config, tokens: tokens


def needs(change: Callable[[Sequence, int], int]) -> Make:
    """A request needs another number of tokens: (request, tokens) -> tokens."""
    return lambda original: lambda one: change(one, original(one))


def two_to_decode(one: Sequence, tokens: int) -> int:
    """Who decodes computes two tokens."""
    return 2 if one.generated else tokens


def half_of_the_rest(one: Sequence, tokens: int) -> int:
    """Of what is left of a prompt only half is computed."""
    return (tokens + 1) // 2 if one.computed and not one.generated else tokens


def prefills_not_first(original: Any) -> Any:
    """Prefills are not prioritised."""
    return lambda config, state: original(replace(config, prioritize_prefill=False), state)


def decodes_first(original: Any) -> Any:
    """Without priorities those who decode come first."""

    def queue(config: Config, state: State) -> list[Sequence]:
        there: list[Sequence] = original(config, state)
        if config.prioritize_prefill:
            return there
        return sorted(there, key=lambda one: (one.generated == 0, one.arrival))

    return queue


def prefills_alone(original: Any) -> Any:
    """Once a prefill is in the batch, nobody decodes in it."""

    def served(config: Config, plan: Plan, one: Sequence) -> Plan:
        running = {other.id: other for other in plan.running}
        prefills = any(not running[name].generated for name in plan.scheduled)
        after: Plan = plan if one.generated and prefills else original(config, plan, one)
        return after

    return served


def ends_the_batch(original: Any) -> Any:
    """The first request that gets nothing ends the batch."""

    def served(config: Config, plan: Plan, one: Sequence) -> Plan:
        after: Plan = original(config, plan, one)
        return after._replace(budget=0) if after.scheduled == plan.scheduled else after

    return served


def nothing_promised(original: Any) -> Any:
    """No block is promised to anybody."""
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
    """Who makes room and has several blocks keeps the first."""

    def preempt(config: Config, plan: Plan, last: Sequence) -> Plan:
        if len(last.blocks) < 2:
            after: Plan = original(config, plan, last)
            return after
        after = original(config, plan, last._replace(blocks=last.blocks[1:], published=0))
        first = after.waiting[0]._replace(blocks=last.blocks[:1])
        return after._replace(waiting=(first, *after.waiting[1:]))

    return preempt


def put_behind(original: Any) -> Any:
    """Who makes room waits behind all others."""

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
