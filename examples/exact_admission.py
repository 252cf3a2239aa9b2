"""Exact volumetric admission for sendnn-inference (2.1.2, 2.5.2, 2.6.3): a scheduler class.

The release overestimates the largest tkv of every request, and refuses requests that would fit.
This class computes the largest batch x tkv that can occur, and refuses only what exceeds the limit.
Only the methods below differ from the release; nothing else is imported.

    schedproof gate sendnn-inference==2.1.2:examples/exact_admission.py:ExactAdmission

`docs/explanation/exact-admission.md` of schedproof has the proof, and the steps that it saves.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from typing import Any

from sendnn_inference.v1.core.scheduler import (  # type: ignore[import-not-found]
    ChunkedPrefillSpyreScheduler,
)

BLOCK = 64  # tokens


class ExactAdmission(ChunkedPrefillSpyreScheduler):  # type: ignore[misc]
    """The release's scheduler with another volumetric check, on the batch that the newcomer would
    join."""

    tkv: int

    def check_batch_tkv_limit_cp(self, request: Any, new_req_tkv: int, running: Any) -> bool:
        """Return whether no decode step with the request can exceed the limit."""
        joins = (request.max_tokens - 1, request.num_prompt_tokens)
        decoding = [(steps_left(sequence), sequence.num_computed_tokens) for sequence in running]
        return largest_volume(decoding, joins) <= int(self.max_batch_tkv_limit)

    def _satisfies_last_chunk_constraints(self, request: Any) -> bool:
        """Decide as the release does, but with the batch's own tkv.

        The remembered tkv may be that of a request that has left; 2.1.2 then admits less, and
        idles.
        """
        remembered, self.tkv = self.tkv, self._own_tkv()
        try:
            return bool(super()._satisfies_last_chunk_constraints(request))
        finally:
            self.tkv = remembered

    def _own_tkv(self) -> int:
        decoding = [sequence for sequence in self.running if sequence not in self.ongoing_prefills]
        lengths = [sequence.num_computed_tokens for sequence in decoding]
        if not lengths:
            return 0
        before_last = (max(lengths) - 1) // BLOCK * BLOCK
        return int(before_last + max((length - 1) % BLOCK for length in lengths) + 1)


def steps_left(request: Any) -> int:
    """Return the decode steps that a decoding request can still run."""
    return int(request.num_prompt_tokens + request.max_tokens - 1 - request.num_computed_tokens)


def largest_volume(decoding: Iterable[tuple[int, int]], joins: tuple[int, int]) -> int:
    """Return the largest batch x tkv of any decode step that the joining request takes part in.

    A request is a pair (decode steps left, tokens computed). The batch stays the same until the
    next request ends, so it is enough to look at each end, from the last to the first.
    """
    longest, peak = 0, 0
    offsets: list[int] = []
    for ends, tokens in sorted([*decoding, joins], reverse=True):
        longest = max(longest, tokens)
        insort(offsets, tokens % BLOCK)
        if 0 < ends <= joins[0]:
            peak = max(peak, len(offsets) * largest_tkv(longest, offsets, ends))
    return peak


def largest_tkv(longest: int, offsets: Sequence[int], ends: int) -> int:
    """Return the largest tkv within `ends` steps of the same requests.

    It is reached in the last step, or in the last one before it in which a request fills a block.
    `offsets` are the tokens beyond whole blocks before the first step, ascending.
    """
    below = offsets[bisect_left(offsets, (1 - ends) % BLOCK) - 1]
    last = (longest + ends - 1) // BLOCK * BLOCK + (below + ends - 1) % BLOCK + 1
    above = offsets[bisect_left(offsets, -ends % BLOCK) % len(offsets)]
    back = (above + ends) % BLOCK
    if back >= ends:
        return last
    return max(last, ((longest + ends - back - 1) // BLOCK + 1) * BLOCK)
