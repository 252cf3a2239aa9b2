"""The exact volumetric check: the largest batch x tkv that can still come, and no estimate of it.

Nobody's rule; what every published formula estimates. With nobody else joining and nobody ending
early, the batch between two finishing times is the same, and its tkv is largest at one of two
steps: the last one, or the last at which some member fills a block.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence

from .volumetric import Decoding, Newcomer


def peak_volume(decoding: Sequence[Decoding], newcomer: Newcomer, block_size: int) -> int:
    """Largest batch x tkv, in tokens, of any decode step that the newcomer takes part in.

    0 if it takes part in none. Members are taken up from the one that runs longest, with the
    longest length and the sorted offsets of those who are active: about n log n for n members.
    """
    everyone = [(one.remaining, one.computed) for one in decoding]
    everyone.append((newcomer.remaining, newcomer.prompt))
    everyone.sort(reverse=True)
    longest, offsets, peak = 0, list[int](), 0
    for number, (ends, tokens) in enumerate(everyone):
        longest = max(longest, tokens)
        insort(offsets, tokens % block_size)
        before = everyone[number + 1][0] if number + 1 < len(everyone) else 0
        if before < ends <= newcomer.remaining:
            since = ends - max(before, 0)
            peak = max(peak, len(offsets) * _largest_tkv(longest, offsets, ends, since, block_size))
    return peak


def accepts_exactly(
    decoding: Sequence[Decoding], newcomer: Newcomer, block_size: int, limit: int
) -> bool:
    """No decode step of the newcomer can exceed the limit: necessary and sufficient."""
    return peak_volume(decoding, newcomer, block_size) <= limit


def _largest_tkv(longest: int, offsets: list[int], ends: int, steps: int, block_size: int) -> int:
    """Largest tkv of the last `steps` steps up to step `ends`, all with the same members.

    `offsets`: tokens beyond whole blocks before the first step, ascending.
    """
    whole = (longest + ends - 1) // block_size * block_size
    # Tokens in the last block after step `ends`: the offset that is next below a whole turn.
    turn = (1 - ends) % block_size
    below = bisect_left(offsets, turn)
    filled = (offsets[below - 1] - turn) % block_size + 1
    # Steps back to where some member filled its block: the offset next above a whole turn.
    turn = -ends % block_size
    above = bisect_left(offsets, turn)
    back = (offsets[above if above < len(offsets) else 0] - turn) % block_size
    if back < steps:
        full = (longest + ends - back - 1) // block_size * block_size + block_size
        return max(whole + filled, full)
    return whole + filled
