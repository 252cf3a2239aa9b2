"""The decisions in which releases of vLLM's scheduler differ, in the form that the documents
describe.

`releases` contains what releases do instead. All other decisions are the same in every release and
are in `scheduler`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from . import cadence, connector, encoder, kv_cache, mamba
from .config import VllmConfig
from .connector import Free, HasRoom
from .encoder import Fit, StopAtSplit, StopBefore
from .mamba import LastStop
from .queue import Plan
from .state import Sequence, State


def begin(config: VllmConfig, state: State) -> tuple[VllmConfig, State]:
    """Apply the threshold in every step (V1-R11). A preempted request goes behind requests that
    were set aside (V1-R10)."""
    if config.long_prefill_token_threshold_adaptive is True:
        config = with_fair_share(config, state)
    return config, cadence.begin(state) if config.holds_prefills else state


def with_fair_share(config: VllmConfig, state: State) -> VllmConfig:
    """Return the configuration. If it has a threshold that is less than each unfinished request's
    share of the budget, raise the threshold to that share (V1-R88).

    Source: release 0.33.0, SchedulerConfig.long_prefill_token_threshold_adaptive.
    """
    requests = len(state.running) + len(state.waiting) + len(state.parked)
    if not config.long_prefill_token_threshold or not requests:
        return config
    share = config.max_num_batched_tokens // requests
    threshold = max(config.long_prefill_token_threshold, share)
    return msgspec.structs.replace(config, long_prefill_token_threshold=threshold)


def padding(config: VllmConfig, plan: Plan, sequence: Sequence, start: int) -> int:
    """Return 0: a request that joins computes nothing beyond its known tokens (V1-R02)."""
    return 0


def ends_round(config: VllmConfig) -> bool:
    """Return True: a request that preempts itself ends the loop (V1CP-R15)."""
    return True


def publishes(config: VllmConfig) -> bool:
    """Return whether a block is published as soon as emitted tokens fill it. This is so only if
    decisions are made ahead. Otherwise, the next decision publishes the block."""
    return config.decides_ahead


def named_beyond(config: VllmConfig) -> int:
    """Return 0: the name of a block consists of all tokens up to its end (V1-R12)."""
    return 0


def queue_blocked(waiting: tuple[Sequence, ...]) -> tuple[Sequence, ...]:
    """Move the last request of the queue, which is blocked, behind the requests that were set aside
    and in front of all others."""
    *others, newcomer = waiting
    front = sum(sequence.aside for sequence in others)
    return (*others[:front], newcomer._replace(aside=True), *others[front:])


def queue_session(state: State, sequence: Sequence) -> State:
    """Return the state with a session whose turn has ended. If its next input has already arrived,
    it goes to the end of the queue; otherwise, it joins the requests that were set aside, which
    come first (V1-R47)."""
    waiting = (*state.waiting, sequence)
    return state._replace(waiting=waiting if sequence.awaits is None else queue_blocked(waiting))


def drafts_lapse(config: VllmConfig) -> bool:
    """Return whether a request loses its drafts when a decision leaves it out. The first model
    runner replaces placeholders only for requests of the preceding decision (V1-R68)."""
    stages = config.pipeline_parallel_size or 1
    return config.decides_ahead and stages == 1 and not config.has_v2_runner


@dataclass(frozen=True, slots=True)
class Revision:
    """The functions that make the decisions of one published behaviour.

    `DOCUMENTED` contains the documented functions; a release replaces some of them. To undo a
    single difference, restore the documented function: `replace(RELEASE_0_33,
    begin=revision.begin)`.

    Attributes:
        name: the first release with these decisions, as in the scenario format.
        begin: returns the configuration and the state on which the decision of a step is based.
        padding: the number of drafts that pad a joining request; takes (configuration, plan after
            the running requests, request, its cached or loaded tokens).
        ends_round: whether the loop ends when a request preempts itself. Running requests behind it
            then get nothing.
        has_room: whether enough blocks are free for a load to begin.
        publishes: whether a block can be found as soon as emitted tokens fill it.
        named_beyond: how many tokens after a block belong to its name.
        queue_blocked: the queue after a blocked request has arrived at the end of the queue; used
            only under first come, first served.
        queue_session: the state after a session's turn has ended.
        last_stop: the last block boundary at which the prefill of this many tokens stops, so that
            its Mamba state can be found.
        drafts_lapse: whether a request that a decision leaves out loses its drafts.
        stop_before: how many tokens to compute before an input that the encoder cannot take.
        stop_at_split: how many tokens to compute so that an input is not split; None if it is not
            split.
        free_late: the pool after a request that has ended gives back blocks to which a decision in
            flight was still writing.
    """

    name: str
    begin: Callable[[VllmConfig, State], tuple[VllmConfig, State]] = begin
    padding: Callable[[VllmConfig, Plan, Sequence, int], int] = padding
    ends_round: Callable[[VllmConfig], bool] = ends_round
    has_room: HasRoom = connector.has_room
    publishes: Callable[[VllmConfig], bool] = publishes
    named_beyond: Callable[[VllmConfig], int] = named_beyond
    queue_blocked: Callable[[tuple[Sequence, ...]], tuple[Sequence, ...]] = queue_blocked
    queue_session: Callable[[State, Sequence], State] = queue_session
    last_stop: LastStop = mamba.last_stop
    drafts_lapse: Callable[[VllmConfig], bool] = drafts_lapse
    stop_before: StopBefore = encoder.stop_before
    stop_at_split: StopAtSplit = encoder.stop_at_split
    free_late: Free = kv_cache.free

    def fit(
        self, config: VllmConfig, plan: Plan, sequence: Sequence, start: int, tokens: int
    ) -> Fit:
        """Return how many of `tokens` tokens, from token `start` on, a request with encoder inputs
        may compute."""
        stops = self.stop_before, self.stop_at_split
        return encoder.fit(config, plan.encoder, sequence, start, tokens, plan.running, *stops)


DOCUMENTED = Revision("documented")
