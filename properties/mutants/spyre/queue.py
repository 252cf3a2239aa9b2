"""Faults in what runs and when, to be planted in the Spyre model; and whole targets with a
fault."""

from collections.abc import Callable
from typing import Any

from ....model.spyre import scheduler
from ....model.spyre.state import Sequence, State
from ....model.target import ModelTarget, Reply


class SoundInstead(ModelTarget):
    """A release that decides as `sound` does: right by every rule but its own lockstep."""

    def start(self, system: str, revision: str, config: Any) -> Reply:
        return super().start(system, "sound", config)


def crash_on_third_running(config: Any, state: State, decision: Any) -> Any:
    """No room for a third request."""
    if len(state.running) > 2:
        raise RuntimeError("planted")
    return decision


def lose_waiting_request(original: Any) -> Any:
    """When a request is aborted, the last in the queue is lost, too."""

    def complete(config: Any, rev: Any, state: State, computed: Any) -> Any:
        after, *rest = original(config, rev, state, computed)
        kept = after.waiting[:-1] if state.aborted else after.waiting
        return after._replace(waiting=kept), *rest

    return complete


def one_token_more(original: Any) -> Any:
    """The last token is not noticed as the last."""

    def complete(config: Any, rev: Any, state: State, computed: Any) -> Any:
        longer = [one._replace(output_len=one.output_len + 1) for one in state.running]
        after, *rest = original(config, rev, state._replace(running=tuple(longer)), computed)
        back = [one._replace(output_len=one.output_len - 1) for one in after.running]
        return after._replace(running=tuple(back)), *rest

    return complete


def never_finish(while_waiting: bool) -> Callable[[Any], Any]:
    """Requests decode on after their last token, for ever: while others wait, or when alone."""

    def make(original: Any) -> Any:
        def complete(config: Any, rev: Any, state: State, computed: Any) -> Any:
            if bool(state.waiting) != while_waiting:
                return original(config, rev, state, computed)
            endless = [one._replace(output_len=one.generated + 2) for one in state.running]
            lengths = {one.id: one.output_len for one in state.running}
            after, *rest = original(config, rev, state._replace(running=tuple(endless)), computed)
            back = [one._replace(output_len=lengths[one.id]) for one in after.running]
            return after._replace(running=tuple(back)), *rest

        return complete

    return make


def second_prefill(config: Any, state: State, decision: Any) -> Any:
    """A new prompt of several chunks starts although one is ongoing. Of a cached one a single chunk
    might be left, which is over at once."""
    newcomer = next((one for one in state.waiting if one.prompt > config.chunk_size), None)
    if config.prefix_caching or not state.prefilling:
        return decision
    if newcomer and decision.kind == "decode":
        return scheduler.Decision("prefill", (newcomer,))
    return decision


def short_prompt_overtakes(config: Any, state: State, decision: Any) -> Any:
    """A one-chunk prompt is prefilled between the chunks of another."""
    head = state.waiting[0] if state.waiting else None
    full = len(state.running) >= config.max_num_seqs
    if head is None or head.prompt > config.chunk_size or full:
        return decision
    if state.prefilling and decision.kind == "prefill":
        return scheduler.Decision("prefill", (head,))
    return decision


def last_come_first_served(original: Any) -> Any:
    """The queue is served from its end."""

    def candidate(config: Any, rev: Any, state: State) -> Any:
        return original(config, rev, state._replace(waiting=state.waiting[::-1]))

    return candidate


def idle_when_refused(config: Any, state: State, decision: Any) -> Any:
    """Wait for the first in line instead of decoding."""
    if decision.kind == "decode" and state.waiting and not state.last_step_was_prefill:
        return scheduler.Decision("idle")
    return decision


def empty_system_waits(config: Any, state: State, decision: Any) -> Any:
    """A prompt of several chunks does not start where nothing runs."""
    waits = state.waiting and state.waiting[0].prompt > config.chunk_size
    return scheduler.Decision("idle") if waits and not state.admitted else decision


def length_forgotten(after_a_hit: bool) -> Callable[[Any], Any]:
    """The model's length is not checked where a hit leaves one chunk of several; or elsewhere."""

    def make(original: Any) -> Any:
        def fits_model_length(config: Any, current: int, decoding: Any, newcomer: Sequence) -> bool:
            shortened = newcomer.prompt > config.chunk_size and newcomer.computed == 0
            return shortened == after_a_hit or original(config, current, decoding, newcomer)

        return fits_model_length

    return make


def never_joins(original: Any) -> Any:
    """No request joins a batch of two or more: too careful by far."""

    def fits_volume(config: Any, rev: Any, current: int, decoding: Any, newcomer: Any) -> bool:
        return len(decoding) < 2 and original(config, rev, current, decoding, newcomer)

    return fits_volume


def skip_a_member(original: Any) -> Any:
    """The youngest of three or more is left out of a decode step."""

    def compute_decode(config: Any, state: State) -> Any:
        batch = state.decoding
        if len(batch) < 3:
            return original(config, state)
        kept = state._replace(running=tuple(one for one in state.running if one != batch[-1]))
        after, computed = original(config, kept)
        return after._replace(running=(*after.running, batch[-1])), computed

    return compute_decode


def prefill_two(original: Any) -> Any:
    """A one-chunk prompt takes the next one along."""

    def compute_chunk(config: Any, rev: Any, state: State, one: Sequence) -> Any:
        after, computed = original(config, rev, state, one)
        if one.computed == 0 and after.waiting and not after.prefilling:
            after, second = original(config, rev, after, after.waiting[0])
            computed = computed._replace(
                scheduled=computed.scheduled | second.scheduled,
                left_pad_blocks=computed.left_pad_blocks | second.left_pad_blocks,
            )
        return after, computed

    return compute_chunk


def fairness_reversed(original: Any) -> Any:
    """A request that is paused stays paused."""
    return lambda config, state: original(config, state)[::-1]


def prefills_while_paused(original: Any) -> Any:
    """Paused requests are forgotten when a prefill is considered."""

    def may_prefill(config: Any, rev: Any, state: State, one: Sequence) -> Any:
        return original(config, rev, state._replace(paused=()), one)

    return may_prefill


def later_chunks_wait(original: Any) -> Any:
    """Later chunks wait for a decode step, although interleaving is off."""

    def may_prefill(config: Any, rev: Any, state: State, one: Sequence) -> Any:
        waits = one.computed and state.last_step_was_prefill and state.decoding
        return not waits and original(config, rev, state, one)

    return may_prefill
