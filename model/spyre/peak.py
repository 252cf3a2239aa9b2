"""The exact volumetric check: the largest batch x tkv that can still come, not an estimate.

No release has this rule; every published formula estimates it. With no other request joining and
no request ending early, the batch between two finishing times is the same, and its tkv is largest
at one
of two steps: the last one, or the last at which some member fills a block.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence

from .volumetric import Check, Decoding, Newcomer, round_up

# (tokens of the longest, all offsets in ascending order, steps, block size) -> largest tkv
LargestTkv = Callable[[int, list[int], int, int], int]


def peak_volume(decoding: Sequence[Decoding], newcomer: Newcomer, block_size: int) -> int:
    """Return the largest batch x tkv, in tokens, of any decode step that the newcomer takes part
    in."""
    return largest_volume(decoding, newcomer, block_size, largest_tkv)


def rounded_volume(decoding: Sequence[Decoding], newcomer: Newcomer, block_size: int) -> int:
    """Return an upper bound of `largest_volume`: the batch's blocks at each finishing time, all
    filled."""
    return largest_volume(decoding, newcomer, block_size, filled_blocks)


def largest_volume(
    decoding: Sequence[Decoding], newcomer: Newcomer, block_size: int, largest: LargestTkv
) -> int:
    """Largest batch x tkv until any finishing time of the newcomer's life, by the `largest` tkv of
    a batch until then; 0 if the newcomer takes part in no decode step.

    Members are taken up from the one that runs longest, with the longest length and the sorted
    offsets of requests that are active: about n log n for n members. A request that is asked about
    too early, with members missing, only counts less than is there.
    """
    all_requests = [(member.remaining, member.computed) for member in decoding]
    all_requests.append((newcomer.remaining, newcomer.prompt))
    longest, peak = 0, 0
    offsets: list[int] = []
    for ends, tokens in sorted(all_requests, reverse=True):
        longest = max(longest, tokens)
        insort(offsets, tokens % block_size)
        if 0 < ends <= newcomer.remaining:
            peak = max(peak, len(offsets) * largest(longest, offsets, ends, block_size))
    return peak


def largest_tkv(longest: int, offsets: list[int], ends: int, block_size: int) -> int:
    """Largest tkv of the steps up to step `ends`, if all of them have the same members.

    `offsets`: tokens beyond whole blocks before the first step, ascending.
    """
    below = next_below(offsets, (1 - ends) % block_size)
    above = next_above(offsets, -ends % block_size)
    return largest_of_two(longest, below, above, ends, block_size)


def next_below(offsets: list[int], turn: int) -> int:
    """Return the largest offset below `turn`, or the largest of all if there is none."""
    return offsets[bisect_left(offsets, turn) - 1]


def next_above(offsets: list[int], turn: int) -> int:
    """Return the smallest offset at or above `turn`, or the smallest of all if there is none."""
    return offsets[bisect_left(offsets, turn) % len(offsets)]


def largest_of_two(longest: int, below: int, above: int, ends: int, block_size: int) -> int:
    """Largest tkv of the steps up to step `ends`, by the offset that fills most of its last block
    in that step, and by the one that filled a block last."""
    filled = (below + ends - 1) % block_size + 1
    last = (longest + ends - 1) // block_size * block_size + filled
    back = (above + ends) % block_size
    if back >= ends:
        return last
    return max(last, ((longest + ends - back - 1) // block_size + 1) * block_size)


def filled_blocks(longest: int, offsets: list[int], ends: int, block_size: int) -> int:
    """Return an upper bound of the largest tkv up to step `ends`: the blocks of the longest, all
    filled."""
    whole: int = round_up(longest + ends, block_size)
    return whole


def accepts_exactly(
    decoding: Sequence[Decoding], newcomer: Newcomer, block_size: int, limit: int, tkv: int = 0
) -> bool:
    """Return whether no decode step of the newcomer can exceed the limit: necessary and
    sufficient."""
    return peak_volume(decoding, newcomer, block_size) <= limit


def accepts_rounded(
    decoding: Sequence[Decoding], newcomer: Newcomer, block_size: int, limit: int, tkv: int = 0
) -> bool:
    """Return whether no decode step of the newcomer can exceed the limit, even with every last
    block full."""
    return rounded_volume(decoding, newcomer, block_size) <= limit


# Neither reads the tkv of the batch: the lengths of its members say more.
CHECKS: dict[str, Check] = {"exact": accepts_exactly, "rounded": accepts_rounded}
