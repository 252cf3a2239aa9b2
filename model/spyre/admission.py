"""When a prefill chunk may run. Source: Spyre scheduling page, "Scheduling".

`candidate` picks the request that prefills; `may_prefill` is the page's two lists in order:
priority rules, then admission constraints.
"""

from collections.abc import Sequence as Members

from . import blocks, padding, tkv, volumetric
from .config import SpyreConfig
from .revision import Revision
from .state import Sequence, State


def candidate(config: SpyreConfig, revision: Revision, state: State) -> Sequence | None:
    """The request whose prefill chunk runs in this step, or None.

    The ongoing prefill is the only candidate while there is one (SPY-R30, SPY-R31). Otherwise the
    queue is asked in order of arrival, and the first that cannot go stops it (SPY-R53); where the
    revision skips a request that is refused for a reason of its own, only a lack of blocks does.
    """
    ongoing = state.prefilling
    if ongoing is not None:
        return ongoing if may_prefill(config, revision, state, ongoing) else None
    for newcomer in state.waiting:
        if not blocks.fits_pool(config, revision, state, newcomer):
            return None
        if may_prefill(config, revision, state, newcomer):
            return newcomer
        if not revision.skips_refused:
            return None
    return None


def may_prefill(config: SpyreConfig, revision: Revision, state: State, one: Sequence) -> bool:
    """May the next chunk of `one` run in this step? An empty system admits (SPY-R38)."""
    if not state.running and (revision.forgets_paused or not state.paused):
        return True
    if state.paused or must_interleave(config, state):
        return False
    starts = one.computed == 0
    if starts and not satisfies_first_chunk(config, state):
        return False
    if revision.checks_once and not config.interleave:
        return not starts or satisfies_last_chunk(config, revision, state, one)
    if padding.is_last_chunk(one.prompt, computed_or_hit(config, state, one), config.chunk_size):
        return satisfies_last_chunk(config, revision, state, one)
    return True


def computed_or_hit(config: SpyreConfig, state: State, one: Sequence) -> int:
    """Tokens that need no computing (SPY-R59): before the first chunk, what is in the prefix
    cache."""
    return one.computed or len(blocks.prefix_hit(config, state, one)) * config.block_size


def must_interleave(config: SpyreConfig, state: State) -> bool:
    """Two prefill steps in a row are forbidden while anything decodes (rule SPY-R32)."""
    return config.interleave and state.last_step_was_prefill and bool(state.decoding)


def satisfies_first_chunk(config: SpyreConfig, state: State) -> bool:
    """A free slot among the running, and the only prefill slot (rules SPY-R36, SPY-R37)."""
    return len(state.running) < config.max_num_seqs and state.prefilling is None


def satisfies_last_chunk(
    config: SpyreConfig, revision: Revision, state: State, newcomer: Sequence
) -> bool:
    """Room in the decode batch, in the model's length and in the volume (SPY-R40 to SPY-R47)."""
    decoding = state.decoding
    if len(decoding) >= config.max_num_seqs:
        return False
    if revision.pauses and config.pausing:
        return True
    current = current_tkv(config, revision, state)
    if revision.keeps_model_length and not fits_model_length(config, current, decoding, newcomer):
        return False
    return fits_volume(config, revision, current, decoding, newcomer)


def current_tkv(config: SpyreConfig, revision: Revision, state: State) -> int:
    """The max-tkv that admission goes by."""
    if revision.stale_tkv:
        return state.tkv
    lengths = [one.computed for one in state.running if one.prefilled]
    return tkv.max_tkv(lengths, config.block_size)


def fits_model_length(
    config: SpyreConfig, current: int, decoding: Members[Sequence], newcomer: Sequence
) -> bool:
    """After realignment every request's remaining tokens end within max_model_len (rule
    SPY-R41)."""
    width = max(current, newcomer.prompt) // config.block_size
    end = tkv.realigned(newcomer.prompt, width, config.block_size) + newcomer.max_tokens - 1
    if end > config.max_model_len:
        return False
    for one in decoding:
        end = tkv.realigned(one.computed, width, config.block_size) + one.remaining
        if end > config.max_model_len:
            return False
    return True


def fits_volume(
    config: SpyreConfig,
    revision: Revision,
    current: int,
    decoding: Members[Sequence],
    newcomer: Sequence,
) -> bool:
    """No projected batch x tkv exceeds the limit (rules SPY-R42, SPY-R47), so that no real one
    does (SPY-R07)."""
    tkvs = tkv.request_tkvs([one.computed for one in decoding], config.block_size)
    members = [
        volumetric.Decoding(one.computed, one.remaining, own, one.prompt)
        for one, own in zip(decoding, tkvs, strict=True)
    ]
    joining = volumetric.Newcomer(newcomer.prompt, newcomer.max_tokens)
    if revision.volume_check is not None:
        return revision.volume_check(members, joining, config.block_size, config.max_batch_tkv)
    projection = revision.projection(current, members, joining, config.block_size)
    return volumetric.accepts(projection, config.max_batch_tkv)
