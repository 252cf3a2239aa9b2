"""Spyre's scheduling page as functions, in the order of the page.

Source: sendnn-inference, "Scheduling and Padding Logic". Read this module side by side with that
page. The page's headings appear as comments (`# ----`), and each function names the rules
(`spec/spyre.toml`) that come from its part of the page. Functions are pure. Lengths are in tokens
unless a name says blocks.

A release replaces some of these functions with its own (`revision.Revision`), so replaceable
functions are called through the `revision` argument. Other modules contain everything that the page
leaves open: `blocks` contains the pool, `scheduler` and `forward` the execution of decisions.
"""

from collections.abc import Sequence as Members

from ..pool import blocks_for
from . import blocks, volumetric
from .config import SpyreConfig
from .revision import Revision
from .state import Decision, Sequence, State

# ---- Overview
# A request is prefilled, then joins the decode batch (SPY-R01): `State.running` holds both.

# ---- Key concepts
# Block size: `blocks.hold` (SPY-R02). Chunk size, a multiple of the block size: `read_config`
# (SPY-R03). Max batch-tkv limit: `fits_volume` keeps it (SPY-R07), and its value is a parameter
# (SPY-R08).


def chunk_count(prompt: int, chunk_size: int) -> int:
    """Return the number of prefill steps that a prompt needs: one for each chunk (SPY-R04)."""
    return -(-prompt // chunk_size)


def current_tkv(config: SpyreConfig, state: State) -> int:
    """Return the max-tkv of the decoding requests (SPY-R06)."""
    return batch_tkv(config, state.running)


def tkv_after_chunk(
    config: SpyreConfig, state: State, request: Sequence, running: tuple[Sequence, ...]
) -> int:
    """Return the max-tkv after a chunk: the largest tkv of the decoding requests (SPY-R06)."""
    return batch_tkv(config, running)


def batch_tkv(config: SpyreConfig, running: Members[Sequence]) -> int:
    """Return the largest tkv of the decoding requests."""
    lengths = [request.computed for request in running if request.computed >= request.prompt]
    return max_tkv(lengths, config.block_size)


# ---- Padding
# Rectangular decode: `left_pad_blocks` (SPY-R09). Prefill alignment: `decide` chooses one request
# (SPY-R13), and `left_padding_blocks` aligns it on the right. Prefix caching: a prompt begins at a
# block boundary, so equal prefixes fill equal blocks (SPY-R15; see `allocator`).

# the one block that serves all padding (SPY-R11), so padding takes constant memory (SPY-R12)
DUMMY_BLOCK = 0

# ---- Prefill padding: Right-alignment
# Attention ignores padding (SPY-R17); no scheduler shows this.


def left_padding_blocks(prompt: int, chunk_size: int, block_size: int) -> int:
    """Return the number of dummy blocks before the prompt. They align the prompt on the right: its
    last block is the last block of its last chunk (SPY-R14, SPY-R16)."""
    padded = chunk_count(prompt, chunk_size) * chunk_size
    return padded // block_size - blocks_for(prompt, block_size)


# ---- Prefill padding: Chunked Prefill


def next_chunk(prompt: int, computed: int, chunk_size: int, block_size: int) -> tuple[int, int]:
    """Return the start and end of the active chunk, in tokens of the prompt.

    The active chunk contains the first token that is not computed (SPY-R18). The first chunk begins
    after the left padding, and the last one ends with the prompt (SPY-R19).
    """
    left_padding = left_padding_blocks(prompt, chunk_size, block_size) * block_size
    chunk = (left_padding + computed) // chunk_size
    start = max(chunk * chunk_size - left_padding, 0)
    return start, min((chunk + 1) * chunk_size - left_padding, prompt)


def progress(config: SpyreConfig, request: Sequence, end: int) -> tuple[int, int]:
    """Return how many tokens are computed, and how many have a block, after the chunk that ends at
    `end`. The two numbers are equal (SPY-R02)."""
    return end, end


def emits_token(request: Sequence) -> bool:
    """Return whether a request emits a token. It does so after its last chunk (SPY-R20), and in
    every decode step (SPY-R22)."""
    return request.computed >= request.prompt


# ---- Prefill padding: Visualization
# Prompts of 15 and 302 tokens (SPY-R21): `tests/model/test_figures.py`.

# ---- Decode padding: Left-padding with full blocks


def left_pad_blocks(lengths: Members[int], block_size: int) -> list[int]:
    """Return the number of dummy blocks to the left of each request in the batch. `lengths` include
    this step's token.

    The longest request has none (SPY-R24) and sets the common width (SPY-R09, SPY-R10, SPY-R23).
    Nothing is carried over from the previous step, so when a request leaves, the padding that it
    caused disappears (SPY-R29).
    """
    if not lengths:
        return []
    width = blocks_for(max(lengths), block_size)
    return [width - -(-length // block_size) for length in lengths]


# ---- Decode padding: Right-padding until next block boundary
# No scheduler shows this padding (SPY-R25).

# ---- Decode padding: Per-request tkv


def request_tkvs(lengths: Members[int], block_size: int) -> list[int]:
    """Return each request's tkv: its left padding plus its tokens (SPY-R05, SPY-R26).

    In a decode step, `lengths` include the token that the step generates. The page calls it "plus
    one".
    """
    pads = left_pad_blocks(lengths, block_size)
    return [pad * block_size + length for pad, length in zip(pads, lengths, strict=True)]


def max_tkv(lengths: Members[int], block_size: int) -> int:
    """Return the largest tkv in the batch, or 0 if the batch is empty. This is the tkv of the
    request whose last block is fullest (SPY-R27)."""
    if not lengths:
        return 0
    filled = max([(length - 1) % block_size for length in lengths]) + 1
    return rectangle_tkv(max(lengths), filled, block_size)


def rectangle_tkv(longest: int, filled: int, block_size: int) -> int:
    before_last: int = (blocks_for(longest, block_size) - 1) * block_size
    return before_last + filled


# ---- Decode padding: tkv jumping
# A jump is the change of `request_tkvs` from one step to the next when a request begins a block
# (SPY-R28).

# ---- Scheduling: Priority rules


def candidate(config: SpyreConfig, revision: Revision, state: State) -> Sequence | None:
    """Return the request whose prefill chunk runs in this step, or None.

    Only one request is in its prefill at a time (SPY-R30), and it goes before new requests
    (SPY-R31). If no request is in its prefill, only the first in line may start (SPY-R53, ALL-R05),
    because the page adds its rules to vLLM's order: first come, first served.
    """
    ongoing = state.prefilling
    if ongoing is not None:
        return ongoing if may_prefill(config, revision, state, ongoing) else None
    if not state.waiting:
        return None
    first = state.waiting[0]
    if not revision.fits_pool(config, revision, state, first):
        return None
    return first if may_prefill(config, revision, state, first) else None


def must_interleave(config: SpyreConfig, state: State) -> bool:
    """Return whether this step must not prefill: two prefill steps in a row are forbidden while a
    request decodes (SPY-R32), unless interleaving is switched off (SPY-R33)."""
    return config.interleave and state.last_step_was_prefill and bool(state.decoding)


def decide(config: SpyreConfig, revision: Revision, state: State) -> tuple[State, Decision]:
    """Prefill one request if possible; otherwise, decode. No step is idle while a request can run
    (SPY-R13, SPY-R35, ALL-R10)."""
    chosen = revision.candidate(config, revision, state)
    if chosen is not None:
        return state, Decision("prefill", (chosen,))
    return state, decode_or_idle(state)


def decode_or_idle(state: State) -> Decision:
    """Decode every prefilled request together (SPY-R22), or idle if there is none."""
    decoding = state.decoding
    return Decision("decode", decoding) if decoding else Decision("idle")


# ---- Scheduling: Admission constraints


def may_prefill(config: SpyreConfig, revision: Revision, state: State, request: Sequence) -> bool:
    """Return whether the next chunk of `request` may run in this step."""
    if revision.is_empty(state):
        return True
    # On the page, no request is ever paused. A release that pauses requests starts no prefill while
    # some are paused (SPY-R52).
    if state.paused or must_interleave(config, state):
        return False
    if request.computed == 0 and not satisfies_first_chunk(config, state):
        return False
    if revision.is_held_to_last_chunk(config, state, request):
        return revision.satisfies_last_chunk(config, revision, state, request)
    return True


def is_empty(state: State) -> bool:
    """Return whether no request is admitted. If so, no constraint applies (SPY-R38)."""
    return not state.running and not state.paused


# ---- Scheduling: First-chunk constraints


def satisfies_first_chunk(config: SpyreConfig, state: State) -> bool:
    """Return whether a running slot (SPY-R36) and the only prefill slot (SPY-R37) are free."""
    return len(state.running) < config.max_num_seqs and state.prefilling is None


# ---- Scheduling: Last-chunk constraints


def is_held_to_last_chunk(config: SpyreConfig, state: State, request: Sequence) -> bool:
    """Return whether the rest of the prompt, without cached tokens, fits in one chunk (SPY-R39,
    SPY-R59)."""
    done = computed_or_hit(config, state, request)
    return is_last_chunk(request.prompt, done, config.chunk_size)


def is_last_chunk(prompt: int, computed: int, chunk_size: int) -> bool:
    """Return whether the rest of the prompt fits in one chunk (SPY-R39)."""
    return prompt - computed <= chunk_size


def satisfies_last_chunk(
    config: SpyreConfig, revision: Revision, state: State, newcomer: Sequence
) -> bool:
    """Return whether the batch has a free slot (SPY-R40), and would stay within the model length
    and the volume limit with the newcomer."""
    decoding = state.decoding
    if len(decoding) >= config.max_num_seqs:
        return False
    tkv = revision.current_tkv(config, state)
    if not revision.fits_model_length(config, tkv, decoding, newcomer):
        return False
    return fits_volume(config, revision, tkv, decoding, newcomer)


def fits_model_length(
    config: SpyreConfig, current: int, decoding: Members[Sequence], newcomer: Sequence
) -> bool:
    """Return whether every request would end within max_model_len after the batch is realigned for
    the newcomer (SPY-R41).

    `current` is the tkv of the batch.
    """
    width = max(current, newcomer.prompt) // config.block_size
    start = volumetric.realigned(newcomer.prompt, width, config.block_size)
    if start + newcomer.max_tokens - 1 > config.max_model_len:
        return False
    for request in decoding:
        start = volumetric.realigned(request.computed, width, config.block_size)
        if start + request.remaining > config.max_model_len:
            return False
    return True


def fits_volume(
    config: SpyreConfig,
    revision: Revision,
    current: int,
    decoding: Members[Sequence],
    newcomer: Sequence,
) -> bool:
    """Return whether batch x tkv stays within the limit in every possible future (SPY-R42,
    SPY-R47).

    `current` is the tkv of the batch.
    """
    tkvs = request_tkvs([request.computed for request in decoding], config.block_size)
    members = [
        volumetric.Decoding(request.computed, request.remaining, tkv, request.prompt)
        for request, tkv in zip(decoding, tkvs, strict=True)
    ]
    joining = volumetric.Newcomer(newcomer.prompt, newcomer.max_tokens)
    return revision.volume_check(members, joining, config.block_size, config.max_batch_tkv, current)


# ---- Scheduling: Volumetric Constraint - Additional Details
# The largest future tkv of the new request is `volumetric.newcomer_realigned` (SPY-R43), that of
# a decoding one `volumetric.member_realigned` (SPY-R44); `volumetric.accepts` walks in ascending
# order (SPY-R45). The other formulas there are other readings of these sentences, and the formulas
# of releases.

VOLUME_CHECK = volumetric.ByFormula(volumetric.document_realigned)

# ---- Scheduling: Visualization
# 426 x 4 = 1704 exceeds 1536 (SPY-R48), requests wait for a slot (SPY-R49): `test_figures.py`.

# ---- Prefix caching: Skipping full chunks


def usable_blocks(left_padding: int, hit: int, chunk_count: int, chunk_blocks: int) -> int:
    """Return the number of hit blocks that need not be computed: those in fully cached chunks
    (SPY-R54, SPY-R58), except in the last chunk (SPY-R55). All numbers are in blocks.

    No step calls this function: `blocks.admit` counts the whole hit as computed, and `next_chunk`
    then rounds down to the start of a chunk. The contracts in `solver.spyre.contracts` show that
    both ways end at the same block.
    """
    chunks = min((left_padding + hit) // chunk_blocks, chunk_count - 1)
    return max(chunks * chunk_blocks - left_padding, 0)


# ---- Prefix caching: Boundary chunk
# The whole boundary chunk is computed, because `usable_blocks` skips only whole chunks (SPY-R56);
# `written` returns the blocks that it is written to. Only the last block of a prompt is duplicated
# (SPY-R57): `blocks.prefix_hit`.


def written(config: SpyreConfig, request: Sequence, pad: int, end: int) -> list[int]:
    """Return the block written at each block position of the chunk that ends at `end`.

    `pad` is the number of padding blocks in front. Padding is written to the dummy block, and so
    are cached blocks that are computed again (SPY-R56).
    """
    last = pad + blocks_for(end, config.block_size)
    first = last - config.chunk_size // config.block_size
    hit = request.prefix_hit // config.block_size
    return [
        request.blocks[position - pad] if position - pad >= hit and position >= pad else DUMMY_BLOCK
        for position in range(first, last)
    ]


# ---- Prefix caching: Scheduling with prefix caching


def computed_or_hit(config: SpyreConfig, state: State, request: Sequence) -> int:
    """Return how many tokens are computed already or, before the first chunk, how many tokens the
    hit has (SPY-R59).

    Only the last-chunk condition uses this number (`is_held_to_last_chunk`). The first-chunk
    conditions count slots, which do not depend on a hit.
    """
    return request.computed or len(blocks.prefix_hit(config, state, request)) * config.block_size


# ---- Prefix caching: Visualization
# Decoded tokens can be hits as well (SPY-R60), and so can the blocks of a request that has ended
# (SPY-R63): `blocks.prefix_hit`.


DOCUMENTED = Revision(
    "documented",
    decide=decide,
    candidate=candidate,
    is_empty=is_empty,
    is_held_to_last_chunk=is_held_to_last_chunk,
    satisfies_last_chunk=satisfies_last_chunk,
    fits_model_length=fits_model_length,
    volume_check=VOLUME_CHECK,
    current_tkv=current_tkv,
    tkv_after_chunk=tkv_after_chunk,
    progress=progress,
    fits_pool=blocks.fits_pool,
    blocks_at_end=blocks.blocks_at_end,
    lost_blocks=blocks.lost_blocks,
    give_back=blocks.give_back,
    shows=("reserved_blocks",),
)
