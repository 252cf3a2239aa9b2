"""Planted changes of LLMServingSim: tokens, blocks, budget and order."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from ....model.llmservingsim.config import LlmServingSimConfig
from ....model.llmservingsim.state import Plan, Sequence, State
from ....model.pool import Pool
from ....model.prefix import prefix

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
    """When a request is aborted, the last in the queue is lost, too."""

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
    """The last token is computed again and again: while others wait, or when no request does."""

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
    """Requests that join have a budget of their own."""

    def admit_waiting(config: Config, plan: Plan) -> Plan:
        after: Plan = original(config, plan._replace(budget=config.max_num_batched_tokens))
        return after

    return admit_waiting


def slots(more: int) -> Make:
    """There are `more` slots beyond max_num_seqs, and at least one in all."""

    def make(original: Any) -> Any:
        def has_slot(config: Config, taken: int) -> bool:
            return not config.max_num_seqs or taken < max(config.max_num_seqs + more, 1)

        return has_slot

    return make


def no_cap_is_one(original: Any) -> Any:
    """0 is taken for a number of slots, if only for one."""
    return lambda config, taken: taken < max(config.max_num_seqs, 1)


def no_threshold(original: Any) -> Any:
    """The threshold is forgotten."""
    return lambda config, tokens: tokens


def needs(change: Callable[[Sequence, int], int]) -> Make:
    """A request needs another number of tokens: (request, tokens) -> tokens."""
    return lambda original: lambda one: change(one, original(one))


def two_to_decode(one: Sequence, tokens: int) -> int:
    """A request that decodes computes two tokens."""
    return 2 if one.generated else tokens


def half_of_the_rest(one: Sequence, tokens: int) -> int:
    """Of what is left of a prompt only half is computed."""
    return (tokens + 1) // 2 if one.computed and not one.generated else tokens


def prefills_not_first(original: Any) -> Any:
    """Prefills are not prioritised."""
    return lambda config, state: original(replace(config, prioritize_prefill=False), state)


def decodes_first(original: Any) -> Any:
    """Without priorities requests that decode come first."""

    def queue(config: Config, state: State) -> list[Sequence]:
        there: list[Sequence] = original(config, state)
        if config.prioritize_prefill:
            return there
        return sorted(there, key=lambda one: (one.generated == 0, one.arrival))

    return queue


def prefills_alone(original: Any) -> Any:
    """Once a prefill is in the batch, no request decodes in it."""

    def served(config: Config, plan: Plan, one: Sequence) -> Plan:
        running = {other.id: other for other in plan.running}
        prefills = any(not running[name].generated for name in plan.scheduled)
        after: Plan = plan if one.generated and prefills else original(config, plan, one)
        return after

    return served
