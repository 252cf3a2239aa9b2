"""The exact volumetric check, which computes the largest batch x tkv that can still occur.

No release has this check: every published formula only estimates the largest batch x tkv. If no
other request joins and no request ends early, the batch is constant between the steps in which
requests end. Within such a period, the tkv is largest in one of two steps: the last step, or the
last step in which some member fills a block.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence

from .volumetric import Check, Decoding, Newcomer, round_up

# (tokens of the longest member, all offsets in ascending order, steps, block size) -> largest tkv
LargestTkv = Callable[[int, list[int], int, int], int]


def peak_volume(decoding: Sequence[Decoding], newcomer: Newcomer, block_size: int) -> int:
    """Return the largest batch x tkv, in tokens, of any decode step that includes the newcomer."""
    return largest_volume(decoding, newcomer, block_size, largest_tkv)


def rounded_volume(decoding: Sequence[Decoding], newcomer: Newcomer, block_size: int) -> int:
    """Return an upper bound on `peak_volume`. Whenever a request ends, count all blocks of the
    batch as full."""
    return largest_volume(decoding, newcomer, block_size, filled_blocks)


def largest_volume(
    decoding: Sequence[Decoding], newcomer: Newcomer, block_size: int, largest: LargestTkv
) -> int:
    """Return the largest batch x tkv during the newcomer's life, or 0 if the newcomer takes part in
    no decode step.

    `largest` returns the largest tkv of a batch up to the step in which a request ends. Members are
    added in descending order of their ends. The function keeps the longest length and the sorted
    offsets of the members added so far, so n members take about n log n operations. If several
    members end in the same step, the computed volume is too small until the last of them is added;
    this does not change the maximum.
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
    """Return the largest tkv of the steps up to step `ends`. All these steps have the same members.

    `offsets` lists, in ascending order, how many tokens each member has beyond its whole blocks
    before the first step.
    """
    below = next_below(offsets, (1 - ends) % block_size)
    above = next_above(offsets, -ends % block_size)
    return largest_of_two(longest, below, above, ends, block_size)


def next_below(offsets: list[int], turn: int) -> int:
    """Return the largest offset below `turn`, or the largest offset of all if there is none
    below."""
    return offsets[bisect_left(offsets, turn) - 1]


def next_above(offsets: list[int], turn: int) -> int:
    """Return the smallest offset at or above `turn`, or the smallest offset of all if there is none
    above."""
    return offsets[bisect_left(offsets, turn) % len(offsets)]


def largest_of_two(longest: int, below: int, above: int, ends: int, block_size: int) -> int:
    """Return the largest tkv of the steps up to step `ends`.

    This is the larger of two tkvs: that of the member whose last block is fullest in step `ends`
    (`below`), and that of the member that filled a block most recently (`above`).
    """
    filled = (below + ends - 1) % block_size + 1
    last = (longest + ends - 1) // block_size * block_size + filled
    back = (above + ends) % block_size
    if back >= ends:
        return last
    return max(last, ((longest + ends - back - 1) // block_size + 1) * block_size)


def filled_blocks(longest: int, offsets: list[int], ends: int, block_size: int) -> int:
    """Return an upper bound on the largest tkv up to step `ends`, counting all blocks of the
    longest member as full."""
    whole: int = round_up(longest + ends, block_size)
    return whole


def accepts_exactly(
    decoding: Sequence[Decoding], newcomer: Newcomer, block_size: int, limit: int, tkv: int = 0
) -> bool:
    """Return whether every decode step of the newcomer stays within the limit. This check is
    exact."""
    return peak_volume(decoding, newcomer, block_size) <= limit


def accepts_rounded(
    decoding: Sequence[Decoding], newcomer: Newcomer, block_size: int, limit: int, tkv: int = 0
) -> bool:
    """Return whether the newcomer stays within the limit if all blocks of the batch count as full
    whenever a request ends."""
    return rounded_volume(decoding, newcomer, block_size) <= limit


# Neither check reads the tkv of the batch, because the lengths of the members determine it.
CHECKS: dict[str, Check] = {"exact": accepts_exactly, "rounded": accepts_rounded}
