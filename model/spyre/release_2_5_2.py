"""How release 2.5.2 differs from the scheduling page; 2.4.0 and 2.6.3 make the same decisions.

2.5.2 promises blocks, as `documented` does (SPY-R50). Admission works as in 2.1.2: it uses the tkv
of the last forward pass, the same check at the first chunk, and the same formula. Each docstring
names the first release to which its function applies.
"""

from collections.abc import Callable
from collections.abc import Sequence as Members
from dataclasses import replace
from functools import partial

from . import documented
from .config import SpyreConfig
from .documented import DOCUMENTED
from .release_2_1_2 import RELEASE_2_1_2, without_padding
from .revision import Revision
from .state import Decision, Sequence, State


def decide(config: SpyreConfig, revision: Revision, state: State) -> tuple[State, Decision]:
    """Before a step that is not a prefill, decide which requests pause. Applies from 2.4.0
    on (SPY-R51)."""
    chosen = revision.candidate(config, revision, state)
    if chosen is not None:
        return state, Decision("prefill", (chosen,))
    state = pause_and_resume(config, state)
    return state, documented.decode_or_idle(state)


def pause_and_resume(config: SpyreConfig, state: State) -> State:
    """Return the state in which each request decodes if the next step has room for it, and pauses
    otherwise.

    Requests are considered in the order of `fairness_order`. A request stays if it and the requests
    already kept are within the limit together. A request that keeps running keeps its place in the
    queue. A request that resumes goes to the end of the queue.
    """
    # If the whole batch is within the limit, every part of it is, too.
    if not state.paused and fits_limit(config, state.decoding):
        return state
    kept, paused = settled(fairness_order(config, state), partial(fits_limit, config))
    staying = {request.id: request for request in kept}
    returning = {request.id for request in state.paused}
    stayed = [
        staying.get(request.id, request)
        for request in state.running
        if request.id in staying or not request.prefilled
    ]
    returned = [request for request in kept if request.id in returning]
    return state._replace(running=(*stayed, *returned), paused=tuple(paused))


def settled(
    ordered: Members[Sequence], fits: Callable[[list[Sequence]], bool]
) -> tuple[list[Sequence], list[Sequence]]:
    """Divide the requests into those that stay and those that pause. Consider them in the given
    order. A request stays if it fits together with the requests kept so far."""
    kept: list[Sequence] = []
    paused: list[Sequence] = []
    for request in ordered:
        if fits([*kept, request]):
            kept.append(request._replace(paused_steps=0))
        else:
            paused.append(request._replace(paused_steps=request.paused_steps + 1))
    return kept, paused


def fairness_order(config: SpyreConfig, state: State) -> list[Sequence]:
    """Return the requests, those paused longest first (SPY-P01). If several have been paused
    equally long, those with the fewest generated tokens come first or, with long_output_priority,
    those with the most."""
    requests = [*state.paused, *state.decoding]
    requests.sort(key=lambda request: request.generated, reverse=config.long_output_priority)
    return sorted(requests, key=lambda request: request.paused_steps, reverse=True)


def fits_limit(config: SpyreConfig, batch: Members[Sequence]) -> bool:
    """Return whether the next decode step of this batch is within the limit (SPY-R07)."""
    tkv = documented.max_tkv([request.computed + 1 for request in batch], config.block_size)
    return len(batch) * tkv <= config.max_batch_tkv


def is_empty(state: State) -> bool:
    """Ignore paused requests: if no request is running, a prefill starts although some are paused,
    which breaks SPY-R52. Applies from 2.4.0 on."""
    return not state.running


def candidate(config: SpyreConfig, revision: Revision, state: State) -> Sequence | None:
    """Try the next request in line if the first is refused for a reason that concerns only this
    request. Only a shortage of blocks ends the search. Applies from 2.4.0 on (SPY-R53)."""
    ongoing = state.prefilling
    if ongoing is not None:
        return ongoing if documented.may_prefill(config, revision, state, ongoing) else None
    for newcomer in state.waiting:
        if not revision.fits_pool(config, revision, state, newcomer):
            return None
        if documented.may_prefill(config, revision, state, newcomer):
            return newcomer
    return None


def satisfies_last_chunk(
    config: SpyreConfig, revision: Revision, state: State, newcomer: Sequence
) -> bool:
    """Require only a free slot in the decode batch if requests can be paused: they are paused if
    the batch gets too large. Applies from 2.4.0 on (SPY-R42, SPY-R47)."""
    if config.pausing:
        return len(state.decoding) < config.max_num_seqs
    return documented.satisfies_last_chunk(config, revision, state, newcomer)


def fits_model_length(
    config: SpyreConfig, current: int, decoding: Members[Sequence], newcomer: Sequence
) -> bool:
    """Apply no constraint on the model length. Applies from 2.1.3 on (SPY-R41)."""
    return True


def tkv_after_chunk(
    config: SpyreConfig, state: State, request: Sequence, running: tuple[Sequence, ...]
) -> int:
    """Report the prompt's length. Applies from 2.4.0 on."""
    return request.prompt


def progress(config: SpyreConfig, request: Sequence, end: int) -> tuple[int, int]:
    """Count a whole chunk from the end of the hit, as in 2.1.2. However, if the first chunk is not
    entirely cached, count it without its left padding, and give it blocks for only these tokens.
    Applies from 2.2.1 on."""
    pad = documented.left_padding_blocks(request.prompt, config.chunk_size, config.block_size)
    starts = request.computed == request.prefix_hit
    if starts and request.prefix_hit < config.chunk_size - pad * config.block_size:
        counted = without_padding(config, request)
        return counted, counted
    given = min(request.computed + config.chunk_size, request.prompt)
    return given, given


def blocks_at_end(config: SpyreConfig, request: Sequence) -> int:
    """Count the last token as well, although it is never computed. Applies from 2.2.0 on."""
    return -(-(request.prompt + request.max_tokens) // config.block_size)


def lost_blocks(config: SpyreConfig, revision: Revision, request: Sequence, inside: bool) -> int:
    """Never take back the blocks promised to a request that is aborted between two steps. Applies
    from 2.2.4 on (SPY-P02)."""
    if inside:
        return 0
    return revision.blocks_at_end(config, request) - len(request.blocks)


RELEASE_2_5_2 = replace(
    DOCUMENTED,
    name="2.5.2",
    decide=decide,
    is_empty=is_empty,
    candidate=candidate,
    is_held_to_last_chunk=RELEASE_2_1_2.is_held_to_last_chunk,
    satisfies_last_chunk=satisfies_last_chunk,
    fits_model_length=fits_model_length,
    volume_check=RELEASE_2_1_2.volume_check,
    current_tkv=RELEASE_2_1_2.current_tkv,
    tkv_after_chunk=tkv_after_chunk,
    progress=progress,
    blocks_at_end=blocks_at_end,
    lost_blocks=lost_blocks,
    shows=("paused", "reserved_blocks"),
)
