"""When the simulator is through, and when it jumps ahead.

Source: continuous-batching page, "Where the scheduler stops". Times are in whatever unit the
simulator's clock has.
"""

from collections.abc import Sequence

from .state import Decision


def is_over(decisions: Sequence[Decision], pending: bool, deferred: bool) -> bool:
    """No scheduler has a batch, no request will arrive, and no session waits for a tool
    (LSS-R20)."""
    return not pending and not deferred and all(one.batch is None for one in decisions)


def next_time(
    now: int, decisions: Sequence[Decision], deferred: Sequence[int], pending: bool = False
) -> int:
    """The clock for the next round: if sessions that wait for a tool are all that is left, the
    time at which the first of them is due (LSS-R21)."""
    busy = pending or any(one.batch is not None for one in decisions)
    return now if busy or not deferred else max(now, min(deferred))
