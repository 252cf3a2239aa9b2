"""How vLLM's releases differ from the documents.

Each docstring names the first release whose wheel contains the difference and, where known, the
pull request that introduced it. A release that is not listed is compared with the newest listed
release before it.
"""

from dataclasses import replace

import msgspec

from ..pool import Pool, blocks_for, fits, unheld
from . import cadence, encoder, group_loads, kv_cache
from .config import VllmConfig
from .queue import Plan
from .revision import DOCUMENTED, with_fair_share
from .state import Sequence, State


def pads_beside_decodes(config: VllmConfig, plan: Plan, sequence: Sequence, start: int) -> int:
    """Return the number of drafts that pad a request. If it has one token to compute, and no
    request is being prefilled, it is padded to the number of tokens that each decoding request
    computes in this step. Since 0.25.0 (pull request 45237)."""
    return padding_drafts(config, plan, sequence, start) if plan.scheduled else 0


def pads_with_head_start(config: VllmConfig, plan: Plan, sequence: Sequence, start: int) -> int:
    """Pad as `pads_beside_decodes` does, and also if no other request runs and part of the request
    is cached or loaded. Since 0.30.0 (pull request 55126)."""
    return padding_drafts(config, plan, sequence, start) if plan.scheduled or start else 0


def padding_drafts(config: VllmConfig, plan: Plan, sequence: Sequence, start: int) -> int:
    """Return the number of drafts to pad with, which is the number that the drafter proposes.
    Return 0 if there are not enough positions left for all of them, or if the threshold would cut
    one off.

    If the threshold would cut a draft off, releases fail, because they do not check the threshold;
    pull request 54028 adds the check. A running request without drafts counts as being in its
    prefill. No request is padded if the number of drafts depends on the number of requests.
    """
    if config.has_dynamic_drafts:
        return 0
    if sequence.num_tokens - start != 1 or start + 1 + config.drafts >= config.max_model_len:
        return 0
    if 0 < config.long_prefill_token_threshold <= config.drafts:
        return 0
    decode = all(s.drafted or s.unfit for s in plan.running if s.id in plan.scheduled)
    return config.drafts if decode else 0


def begin(config: VllmConfig, state: State) -> tuple[VllmConfig, State]:
    """Apply no threshold to a lone request, because it cannot starve others (pull request 57951).

    A preempted request goes to the very front of the queue, because requests that were set aside no
    longer have a separate queue. Since 0.31.0.
    """
    if config.long_prefill_token_threshold and is_alone(state):
        config = msgspec.structs.replace(config, long_prefill_token_threshold=0)
    elif config.long_prefill_token_threshold_adaptive is True:
        config = with_fair_share(config, state)
    if any(sequence.aside for sequence in state.waiting):
        waiting = tuple([sequence._replace(aside=False) for sequence in state.waiting])
        state = state._replace(waiting=waiting)
    return config, cadence.begin(state) if config.holds_prefills else state


def is_alone(state: State) -> bool:
    return len(state.running) + len(state.waiting) + len(state.parked) <= 1


def keep_place(waiting: tuple[Sequence, ...]) -> tuple[Sequence, ...]:
    """Keep a blocked request behind those that arrived before it. Since 0.31.0."""
    return waiting


def keep_in_front(state: State, sequence: Sequence) -> State:
    """Find the place of a session whose turn has ended (V1-R47). Waiting requests that hold blocks
    come first, so the session goes behind the last of them. If it has lost its blocks, it goes to
    the end of the queue. Since 0.31.0."""
    if not sequence.blocks:
        return state._replace(waiting=(*state.waiting, sequence))
    return state._replace(parked=(*state.parked, sequence))


def has_room(
    config: VllmConfig, plan: Plan, sequence: Sequence, hit: tuple[int, ...], tokens: int
) -> bool:
    """Return whether enough blocks stay free during a load: those that a step with drafts takes for
    the request itself, and those for every other load and prefill. Only with `reserve_full_isl`
    must there be room for all tokens of the request. Since 0.31.0 (pull request 57104)."""
    reserve = config.watermark_blocks if plan.running else 0
    missing = unheld(plan.pool, hit) - len(hit) + reserve
    covered = len(hit) * config.block_size + tokens
    reserved, load = group_loads.missing(config, plan.pool, sequence, len(hit), covered)
    if config.reserve_full_isl:
        whole = blocks_for(sequence.num_tokens, config.block_size) + reserved
        if not fits(plan.pool, whole + missing):
            return False
    needed = blocks_for(covered, config.block_size) + load
    step = blocks_for(tokens_of_a_step(config), config.block_size)
    if config.more_groups:
        step += group_loads.blocks_of_step(config, tokens_of_a_step(config))
    promised = sum(promised_blocks(config, plan, other) for other in (*plan.running, *plan.parked))
    return fits(plan.pool, needed + missing + step + promised)


def promised_blocks(config: VllmConfig, plan: Plan, sequence: Sequence) -> int:
    """Return how many blocks a prefill or load still needs, including those for its first
    drafts."""
    remaining = sequence.num_uncomputed_tokens - plan.scheduled.get(sequence.id, 0)
    begins = sequence.computed == sequence.prefix_hit and not sequence.was_loaded
    if sequence.id in plan.scheduled and remaining <= 0 and (sequence.drafted or begins):
        return 0
    tokens = sequence.num_tokens + tokens_of_a_step(config)
    beside = group_loads.promised(config, sequence, tokens) if config.more_groups else 0
    return beside + max(blocks_for(tokens, config.block_size) - len(sequence.blocks), 0)


def tokens_of_a_step(config: VllmConfig) -> int:
    """Return the largest number of tokens that a step computes for a request with drafts, or 0
    without a drafter."""
    return 1 + config.drafts + config.lookahead if config.drafts else 0


def goes_on(config: VllmConfig) -> bool:
    """Return whether the loop ends when a request preempts itself. Under the priority policy, the
    loop continues. Since 0.33.0."""
    return config.policy != "priority"


def publishes_verified(config: VllmConfig) -> bool:
    """Return whether a block is published as soon as emitted tokens fill it: if decisions are made
    ahead or, since 0.33.0, if there are drafts."""
    return config.decides_ahead or config.drafts > 0


def named_with_next(config: VllmConfig) -> int:
    """Return 1 if the drafter has its own keys and values: a block's name then includes the next
    token, so that no block of a hit is computed again. With a connector, return 0. Since 0.33.0."""
    return int(config.lookahead > 0 and not config.loads)


def stops_before_the_end(config: VllmConfig, tokens: int) -> int:
    """Return the last block boundary before the end of the prefill, because the last token is never
    taken from the cache. 0.33.0 does this; 0.28.0 does not."""
    return (tokens - 1) // config.block_size * config.block_size


def stop_at(config: VllmConfig, tokens: int, left: int) -> int:
    """Stop right before an input that cannot be encoded. The drafter then reads the input's
    placeholder. 0.33.0 does this; 0.28.0 does not."""
    return min(tokens, left)


def stop_before_read(
    config: VllmConfig, start: int, tokens: int, begins: int, length: int
) -> int | None:
    """Stop one token before an input that the step would split, or that only the drafter would
    read. Do so even if this splits the preceding input, or leaves nothing to compute."""
    ends_before = start + tokens < begins + length
    if ends_before and encoder.stays_whole(config, start, begins, length):
        return max(begins - start - config.read_ahead, 0)
    return None


def keep_drafts(config: VllmConfig) -> bool:
    """Return False: a request keeps its drafts when a decision leaves it out. The worker treats a
    placeholder that it cannot replace as a wrong draft. 0.28.0 does this; 0.19.1 passes the
    placeholder on to the model (pull request 47029)."""
    return False


def free_together(
    config: VllmConfig, pool: Pool, sequence: Sequence, holders: tuple[Sequence, ...]
) -> Pool:
    """Free the blocks of all groups together, those of the last group first (issue 48489)."""
    free = group_loads.free_together if config.more_groups else kv_cache.free
    return free(config, pool, sequence, holders)


RELEASE_0_25 = replace(
    DOCUMENTED,
    name="0.25",
    padding=pads_beside_decodes,
    drafts_lapse=keep_drafts,
    stop_before=encoder.stop_early,
    stop_at_split=stop_before_read,
    free_late=free_together,
)
RELEASE_0_30 = replace(RELEASE_0_25, name="0.30", padding=pads_with_head_start)
RELEASE_0_31 = replace(
    RELEASE_0_30,
    name="0.31",
    begin=begin,
    has_room=has_room,
    queue_blocked=keep_place,
    queue_session=keep_in_front,
)
RELEASE_0_33 = replace(
    RELEASE_0_31,
    name="0.33",
    ends_round=goes_on,
    publishes=publishes_verified,
    named_beyond=named_with_next,
    last_stop=stops_before_the_end,
    stop_before=stop_at,
)
RELEASES = (RELEASE_0_25, RELEASE_0_30, RELEASE_0_31, RELEASE_0_33)
