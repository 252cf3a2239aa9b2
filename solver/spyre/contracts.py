"""Contracts of the pure arithmetic of Spyre's model (`solver.systems.Contract`).

The properties come from the scheduling page, by way of the catalogue; each docstring names its
rules. A contract does not compute the result a second time.

Lengths, counts and positions are unbounded whole numbers, and block and chunk sizes are symbolic.
But where a contract divides by such a size, Z3 must reason about products of unknowns, and may
never finish. Such contracts are stated for production sizes and, separately, for all small sizes,
at which block and chunk boundaries coincide in every possible way.

Batches have up to three members, because the paths of the max-tkv of four cannot be explored in a
minute. For the same reason, the peak is checked for one request only.
"""

from collections.abc import Callable

from ...model import pool
from ...model.spyre import documented, peak, release_2_1_2, volumetric
from ...model.spyre.volumetric import Newcomer
from ..systems import MAX_MEMBERS, Contract, Sizes

PRODUCTION = Sizes("production", (64, 64), (8, 8))
SMALL = Sizes("small", (1, 4), (1, 4))
ANY = Sizes("any", (1, None), (1, None))
CONTRACTS: dict[str, Contract] = {}


def _contract(
    about: str, given: Callable[..., bool], *sizes: Sizes
) -> Callable[[Callable[..., bool]], Callable[..., bool]]:
    def entered(holds: Callable[..., bool]) -> Callable[..., bool]:
        statement = (holds.__doc__ or "").strip().partition("\n")[0]
        for size in sizes:
            name = f"{holds.__name__}/{size.name}"
            CONTRACTS[name] = Contract(name, about, statement, holds, given, size)
        return holds

    return entered


def _in_a_prompt(prompt: int, computed: int, **_: int) -> bool:
    return 0 <= computed < prompt


def _a_batch(lengths: list[int], **_: int) -> bool:
    return 1 <= len(lengths) <= MAX_MEMBERS and all(length >= 1 for length in lengths)


# Prefill


@_contract("pool.blocks_for", lambda tokens, **_: tokens >= 0, ANY)
def fewest_blocks(tokens: int, block: int) -> bool:
    """The blocks hold all tokens, and one block fewer would not."""
    blocks = pool.blocks_for(tokens, block)
    return (blocks - 1) * block < tokens <= blocks * block


@_contract("documented.chunk_count", lambda prompt, **_: prompt >= 1, PRODUCTION, SMALL)
def fewest_chunks(prompt: int, block: int, chunk_blocks: int) -> bool:
    """The chunks have room for the whole prompt, and one chunk fewer would not (SPY-R04)."""
    chunk = block * chunk_blocks
    chunks = documented.chunk_count(prompt, chunk)
    return (chunks - 1) * chunk < prompt <= chunks * chunk


@_contract("documented.left_padding_blocks", lambda prompt, **_: prompt >= 1, PRODUCTION, SMALL)
def left_padding(prompt: int, block: int, chunk_blocks: int) -> bool:
    """The padding is less than a chunk, and the prompt ends in the last block of its last chunk.

    So the padded prompt is a whole number of chunks. SPY-R14, SPY-R16.
    """
    pads = documented.left_padding_blocks(prompt, block * chunk_blocks, block)
    last_block = (pads * block + prompt - 1) // block
    return 0 <= pads < chunk_blocks and (last_block + 1) % chunk_blocks == 0


@_contract("documented.next_chunk", _in_a_prompt, PRODUCTION, SMALL)
def chunk_in_turn(prompt: int, computed: int, block: int, chunk_blocks: int) -> bool:
    """The next chunk contains the next token, and is not larger than chunk_size (SPY-R04).

    So every step makes progress and stays within the prompt, wherever a cached prefix ends.
    """
    chunk = block * chunk_blocks
    start, end = documented.next_chunk(prompt, computed, chunk, block)
    return 0 <= start <= computed < end <= prompt and end - start <= chunk


@_contract("documented.next_chunk", _in_a_prompt, PRODUCTION, SMALL)
def chunk_borders(prompt: int, computed: int, block: int, chunk_blocks: int) -> bool:
    """A chunk lies between boundaries of the padded prompt, or ends with the prompt (SPY-R19).

    Together with `chunk_in_turn`, this means that every chunk is whole except the first, which is
    shorter by the left padding, and the last.
    """
    chunk = block * chunk_blocks
    start, end = documented.next_chunk(prompt, computed, chunk, block)
    padded = documented.left_padding_blocks(prompt, chunk, block) * block
    starts = start == 0 or (padded + start) % chunk == 0
    return starts and (end == prompt or (padded + end) % chunk == 0)


@_contract("documented.next_chunk", _in_a_prompt, PRODUCTION, SMALL)
def chunk_after_chunk(prompt: int, computed: int, block: int, chunk_blocks: int) -> bool:
    """A chunk begins where the previous one ended, and leaves one fewer chunk to come (SPY-R04)."""
    chunk = block * chunk_blocks
    start, end = documented.next_chunk(prompt, computed, chunk, block)
    follows = end == prompt or documented.next_chunk(prompt, end, chunk, block)[0] == end
    rest = documented.chunk_count(prompt - start, chunk)
    return follows and documented.chunk_count(prompt - end, chunk) == rest - 1


@_contract("documented.is_last_chunk", _in_a_prompt, PRODUCTION, SMALL)
def last_chunk(prompt: int, computed: int, block: int, chunk_blocks: int) -> bool:
    """When a chunk starts, the rest of the prompt fits in it if and only if it is last (SPY-R39).

    `computed` only selects the chunk. In the middle of a chunk this would not be true, but no code
    asks at such a point.
    """
    chunk = block * chunk_blocks
    start, end = documented.next_chunk(prompt, computed, chunk, block)
    return documented.is_last_chunk(prompt, start, chunk) == (end == prompt)


@_contract(
    "documented.usable_blocks",
    lambda pads, hit, chunks, chunk_blocks: 0 <= pads < chunk_blocks and hit >= 0 and chunks >= 1,
    ANY,
)
def usable_hit(pads: int, hit: int, chunks: int, chunk_blocks: int) -> bool:
    """All whole chunks of the hit are usable, except the last chunk of the prompt (SPY-R58).

    Together with the left padding, they end at a chunk boundary. One more chunk would exceed the
    hit or leave nothing to compute. SPY-R54, SPY-R55.
    """
    usable = documented.usable_blocks(pads, hit, chunks, chunk_blocks)
    whole = usable == 0 or (pads + usable) % chunk_blocks == 0
    border = (pads + usable) // chunk_blocks + 1  # chunks up to the next border
    all_of_it = border * chunk_blocks > pads + hit or border == chunks
    return whole and 0 <= usable <= hit and border <= chunks and all_of_it


@_contract(
    "documented.usable_blocks",
    # The last token is never taken from the cache.
    lambda prompt, hit, block, **_: hit >= 0 and hit * block < prompt,
    PRODUCTION,
    SMALL,
)
def chunk_after_hit(prompt: int, hit: int, block: int, chunk_blocks: int) -> bool:
    """The first chunk after a hit begins where the usable blocks end, within the prompt (SPY-R56).

    So no skipped chunk is computed, and no other chunk is left out.
    """
    chunk = block * chunk_blocks
    pads = documented.left_padding_blocks(prompt, chunk, block)
    chunks = documented.chunk_count(prompt, chunk)
    computed = documented.usable_blocks(pads, hit, chunks, chunk_blocks) * block
    return (
        computed < prompt and documented.next_chunk(prompt, computed, chunk, block)[0] == computed
    )


# Decode


@_contract("documented.left_pad_blocks", _a_batch, PRODUCTION, SMALL)
def rectangle(lengths: list[int], block: int) -> bool:
    """All members end in the same block, and one of them has no padding (SPY-R09, SPY-R24)."""
    pads = documented.left_pad_blocks(lengths, block)
    last = [(pad * block + n - 1) // block for pad, n in zip(pads, lengths, strict=True)]
    return min(pads) == 0 and all(number == last[0] for number in last)


@_contract("documented.request_tkvs", _a_batch, PRODUCTION, SMALL)
def request_tkv(lengths: list[int], block: int) -> bool:
    """A tkv is the length plus whole blocks, up to the end of the longest (SPY-R05, SPY-R10)."""
    tkvs = documented.request_tkvs(lengths, block)
    widest = (max(lengths) - 1) // block
    return all(
        own >= n and (own - n) % block == 0 and (own - 1) // block == widest
        for own, n in zip(tkvs, lengths, strict=True)
    )


@_contract("documented.max_tkv", _a_batch, PRODUCTION, SMALL)
def largest_tkv(lengths: list[int], block: int) -> bool:
    """The max-tkv is in the longest member's last block, at the largest offset of any (SPY-R27)."""
    largest = documented.max_tkv(lengths, block) - 1
    offset = max((n - 1) % block for n in lengths)
    return largest // block == (max(lengths) - 1) // block and largest % block == offset


@_contract(
    "documented.rectangle_tkv",
    lambda widest, filled, block, **_: widest >= 1 and 1 <= filled <= block,
    PRODUCTION,
    SMALL,
)
def filled_block(widest: int, filled: int, block: int) -> bool:
    """The max-tkv is in the longest member's last block, after `filled` tokens (SPY-R27)."""
    last = documented.rectangle_tkv(widest, filled, block) - 1
    return last // block == (widest - 1) // block and last % block == filled - 1


@_contract("documented.max_tkv", _a_batch, PRODUCTION, SMALL)
def leaving(lengths: list[int], block: int) -> bool:
    """A request that leaves does not raise the max-tkv (SPY-R29)."""
    return documented.max_tkv(lengths[1:], block) <= documented.max_tkv(lengths, block)


@_contract(
    "volumetric.realigned", lambda tokens, width, **_: tokens >= 1 and width >= 0, PRODUCTION, SMALL
)
def realigned_place(tokens: int, width: int, block: int) -> bool:
    """A realigned member moves to the given block and keeps its offset in it (SPY-R46)."""
    place: int = volumetric.realigned(tokens, width, block)
    return width * block <= place < (width + 1) * block and (place - tokens) % block == 0


@_contract(
    "volumetric.realigned",
    lambda tokens, longest, block: 1 <= tokens <= longest and tokens % block != 0,
    PRODUCTION,
    SMALL,
)
def realigned_tkv(tokens: int, longest: int, block: int) -> bool:
    """Except at a boundary, the realigned position is the tkv of the member beside the longest.

    At a boundary, it is one block lower, and the releases differ from the definition. SPY-R46.
    """
    place: int = volumetric.realigned(tokens, (longest - 1) // block, block)
    return place == documented.request_tkvs([tokens, longest], block)[0]


@_contract(
    "release_2_1_2.tkv_after_last_chunk",
    lambda prompt, lengths, **_: prompt >= 1 and _a_batch(lengths) and len(lengths) < MAX_MEMBERS,
    PRODUCTION,
    SMALL,
)
def tkv_after_prompt(prompt: int, lengths: list[int], block: int) -> bool:
    """When a prompt joins, the reported tkv is the max-tkv of the batch including it (SPY-R06)."""
    reported = release_2_1_2.tkv_after_last_chunk(prompt, documented.max_tkv(lengths, block), block)
    return reported == documented.max_tkv([*lengths, prompt], block)


# Volume


@_contract("volumetric.round_up", lambda tokens, **_: tokens >= 0, ANY)
def rounded_up(tokens: int, block: int) -> bool:
    """Rounding up gives whole blocks, and adds less than one block."""
    rounded: int = volumetric.round_up(tokens, block)
    return rounded % block == 0 and tokens <= rounded < tokens + block


@_contract(
    "peak.peak_volume",
    lambda prompt, max_tokens, **_: prompt >= 1 and max_tokens >= 2,
    PRODUCTION,
    SMALL,
)
def peak_alone(prompt: int, max_tokens: int, block: int) -> bool:
    """A request that is alone in the batch peaks in its last step, at its length."""
    volume = peak.peak_volume([], Newcomer(prompt, max_tokens), block)
    return volume == prompt + max_tokens - 1
