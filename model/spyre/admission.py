"""When a prefill chunk may run. Source: Spyre scheduling page, "Scheduling".

`may_prefill` is the page's two lists in order: priority rules, then admission constraints.
"""

from collections.abc import Sequence as Members

from . import padding, tkv, volumetric
from .config import SpyreConfig
from .revision import Revision
from .state import Sequence, State


def may_prefill(config: SpyreConfig, revision: Revision, state: State, candidate: Sequence) -> bool:
    """May the next chunk of `candidate` run in this step?"""
    if not state.running:
        return True
    if must_interleave(config, state):
        return False
    starts = candidate.computed == 0
    if starts and not satisfies_first_chunk(config, revision, state, candidate):
        return False
    if revision.checks_once and not config.interleave:
        return not starts or satisfies_last_chunk(config, revision, state, candidate)
    if padding.is_last_chunk(candidate.prompt, candidate.computed, config.chunk_size):
        return satisfies_last_chunk(config, revision, state, candidate)
    return True


def must_interleave(config: SpyreConfig, state: State) -> bool:
    """Two prefill steps in a row are forbidden while anything decodes (rule SPY-R32)."""
    return config.interleave and state.last_step_was_prefill and bool(state.decoding)


def satisfies_first_chunk(
    config: SpyreConfig, revision: Revision, state: State, newcomer: Sequence
) -> bool:
    """A free slot among the running, and the only prefill slot (rules SPY-R36, SPY-R37)."""
    return (
        len(state.running) < config.max_num_seqs
        and state.prefilling is None
        and (not revision.reserves_blocks or fits_pool(config, state, newcomer))
    )


def satisfies_last_chunk(
    config: SpyreConfig, revision: Revision, state: State, newcomer: Sequence
) -> bool:
    """Room in the decode batch, in the model's length and in the volume (SPY-R40 to SPY-R47)."""
    current = current_tkv(config, revision, state)
    decoding = state.decoding
    return (
        len(decoding) < config.max_num_seqs
        and fits_model_length(config, current, decoding, newcomer)
        and fits_volume(config, revision, current, decoding, newcomer)
    )


def current_tkv(config: SpyreConfig, revision: Revision, state: State) -> int:
    """The max-tkv that admission goes by."""
    if revision.stale_tkv:
        return state.tkv
    return tkv.max_tkv([one.computed for one in state.decoding], config.block_size)


def fits_model_length(
    config: SpyreConfig, current: int, decoding: Members[Sequence], newcomer: Sequence
) -> bool:
    """After realignment everyone's remaining tokens end within max_model_len (rule SPY-R41)."""
    width = max(current, newcomer.prompt) // config.block_size
    ends = [tkv.realigned(newcomer.prompt, width, config.block_size) + newcomer.max_tokens - 1]
    ends += [
        tkv.realigned(one.computed, width, config.block_size) + one.remaining for one in decoding
    ]
    return max(ends) <= config.max_model_len


def fits_volume(
    config: SpyreConfig,
    revision: Revision,
    current: int,
    decoding: Members[Sequence],
    newcomer: Sequence,
) -> bool:
    """No projected batch x tkv exceeds the limit (rule SPY-R42)."""
    tkvs = tkv.request_tkvs([one.computed for one in decoding], config.block_size)
    projection = revision.projection(
        current,
        [
            volumetric.Decoding(one.computed, one.remaining, own)
            for one, own in zip(decoding, tkvs, strict=True)
        ],
        volumetric.Newcomer(newcomer.prompt, newcomer.max_tokens),
        config.block_size,
    )
    return volumetric.accepts(projection, config.max_batch_tkv)


def fits_pool(config: SpyreConfig, state: State, newcomer: Sequence) -> bool:
    """Blocks for the newcomer's whole life are free and not promised to anyone."""
    if config.num_blocks is None:
        return True
    promised = sum(blocks_at_end(config, one) for one in state.running)
    return promised + blocks_at_end(config, newcomer) <= config.num_blocks


def blocks_at_end(config: SpyreConfig, one: Sequence) -> int:
    """Blocks that a request holds when it has generated all it may."""
    return padding.blocks_for(one.prompt + one.max_tokens - 1, config.block_size)
