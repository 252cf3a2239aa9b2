"""How release 2.1.2 differs from the scheduling page; 2.1.1 makes the same decisions.

Each docstring names the first release to which its function no longer applies.
"""

from dataclasses import replace

from .. import pool
from ..pool import Pool, blocks_for, fits, unheld
from . import blocks, documented
from .config import SpyreConfig
from .documented import DOCUMENTED
from .revision import Freed, Revision
from .state import Decision, Sequence, State
from .volumetric import ByFormula, release_2_1_2


def decide(config: SpyreConfig, revision: Revision, state: State) -> tuple[State, Decision]:
    """Choose a prompt before looking for free blocks. If there are too few, the step is idle, which
    breaks SPY-R35. Applies until 2.2.0, which promises blocks."""
    after, decision = documented.decide(config, revision, state)
    if decision.kind != "prefill":
        return after, decision
    (chosen,) = decision.members
    if chosen.computed == 0 and not fits_prompt(config, state, chosen):
        return after, Decision("idle", (chosen,))
    return after, decision


def fits_prompt(config: SpyreConfig, state: State, newcomer: Sequence) -> bool:
    """Return whether blocks for the whole prompt are free, as vLLM's own allocation requires."""
    hit = blocks.prefix_hit(config, state, newcomer)
    needed = blocks_for(newcomer.prompt, config.block_size) - len(hit)
    return fits(state.pool, needed + unheld(state.pool, hit))


def fits_pool(config: SpyreConfig, revision: Revision, state: State, newcomer: Sequence) -> bool:
    """Accept every request, since no blocks are promised. Applies until 2.2.0 (SPY-R50)."""
    return True


def give_back(given_to: Pool, freed: Freed) -> Pool:
    """Hand out freed blocks in the order in which they were freed, whether or not their content can
    be found. Later releases use a newer vLLM, which first hands out blocks that cannot be found."""
    return pool.give_back(given_to, freed, nameless_first=False)


def current_tkv(config: SpyreConfig, state: State) -> int:
    """Use the tkv of the last forward pass, even if requests of that pass have left (SPY-R35,
    SPY-R42)."""
    return state.tkv


def tkv_after_chunk(
    config: SpyreConfig, state: State, request: Sequence, running: tuple[Sequence, ...]
) -> int:
    """Report the old tkv until the last chunk. Only a first chunk with an empty decode batch resets
    the tkv. Applies until 2.4.0."""
    tkv = state.runner_tkv
    if request.computed == 0 and not state.decoding:
        tkv = request.prompt
    if running[0].prefilled:
        return tkv_after_last_chunk(request.prompt, tkv, config.block_size)
    return tkv


def tkv_after_last_chunk(prompt: int, tkv: int, block_size: int) -> int:
    """Return the tkv that is reported when a prompt joins a batch whose tkv is `tkv`."""
    base = (max(blocks_for(prompt, block_size), blocks_for(tkv, block_size)) - 1) * block_size
    return base + max((prompt - 1) % block_size, (tkv - 1) % block_size) + 1


def is_held_to_last_chunk(config: SpyreConfig, state: State, request: Sequence) -> bool:
    """Without interleaving, check every constraint at the first chunk only (SPY-R34)."""
    if not config.interleave:
        return request.computed == 0
    return documented.is_held_to_last_chunk(config, state, request)


def progress(config: SpyreConfig, request: Sequence, end: int) -> tuple[int, int]:
    """Count a whole chunk from the end of the hit, although the chunk may end earlier. Blocks are
    therefore published before they are computed, which breaks ALL-R08. This applies to all
    releases.

    If a prompt has no hit, its first chunk is counted without the left padding, but still gets
    blocks for a whole chunk. This applies until 2.2.1.
    """
    given = min(request.computed + config.chunk_size, request.prompt)
    if request.computed == 0 and request.prefix_hit == 0:
        return without_padding(config, request), given
    return given, given


def without_padding(config: SpyreConfig, request: Sequence) -> int:
    """Return the end of a chunk after the computed tokens, without the left padding."""
    pad = documented.left_padding_blocks(request.prompt, config.chunk_size, config.block_size)
    chunk = config.chunk_size - pad * config.block_size
    return min(request.computed + chunk, request.prompt)


RELEASE_2_1_2 = replace(
    DOCUMENTED,
    name="2.1.2",
    decide=decide,
    fits_pool=fits_pool,
    give_back=give_back,
    current_tkv=current_tkv,
    tkv_after_chunk=tkv_after_chunk,
    is_held_to_last_chunk=is_held_to_last_chunk,
    volume_check=ByFormula(release_2_1_2),
    progress=progress,
    shows=(),
)
