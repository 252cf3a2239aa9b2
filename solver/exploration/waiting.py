"""Bounded wait (ALL-R05) and completion (ALL-R06), judged by the steps that were wasted.

The bounds of both rules grow with the work ahead, and each chunk or token that is computed takes at
least one step off it. So only steps that compute none of that work can exceed a bound, and these
are few enough to be part of a state.
"""

from __future__ import annotations

from typing import NamedTuple

from ...model.observation import Step
from ...properties.history.run_history import RunHistory

# ALL-R05 leaves the first in line two steps for its own chunk, and two to spare.
WASTE_IN_LINE = 4


class Wait(NamedTuple):
    """Steps wasted so far.

    Attributes:
        head: the request that waits first in line.
        in_line: steps since then in which no earlier request computed anything.
        idle: steps in which no request computed anything although one was unfinished.
    """

    head: str | None = None
    in_line: int = 0
    idle: int = 0

    def after(self, before: RunHistory, step: Step, order: dict[str, int]) -> Wait:
        """Return the wait after a step; `order` numbers the requests by arrival."""
        idle = self.idle + (bool(before.live) and not any(step.scheduled.values()))
        head = head_of(before)
        if head is None or head in step.scheduled:
            return Wait(None, 0, idle)
        helped = any(
            tokens and order.get(name, 0) < order[head] for name, tokens in step.scheduled.items()
        )
        so_far = self.in_line if head == self.head else 0
        return Wait(head, so_far + (not helped), idle)

    def counted(self, before: RunHistory, requests: int) -> tuple[int, int]:
        """Return the steps in line and idle, each no larger than what matters.

        Steps wasted on a request that is no longer first in line do not count.
        """
        in_line = self.in_line if self.head == head_of(before) else 0
        return min(in_line, WASTE_IN_LINE), min(self.idle, max_idle(requests))


def max_idle(requests: int) -> int:
    """Return the idle steps with which so many requests take longer than their work."""
    return 2 * requests + 2


def head_of(history: RunHistory) -> str | None:
    """Return the first in line, the request that has waited longest unstarted."""
    unstarted = history.unstarted()
    return unstarted[0].id if unstarted else None


def waits_too_long(wait: Wait) -> str | None:
    """Return a message if the first in line may have waited beyond its bound (ALL-R05)."""
    if wait.in_line < WASTE_IN_LINE:
        return None
    return (
        f"{wait.head} is first in line, and in {wait.in_line} steps nothing before it was computed"
    )


def never_ends(wait: Wait, accepted: int) -> str | None:
    """Return a message if all requests together may take longer than their work (ALL-R06)."""
    if wait.idle < max_idle(accepted):
        return None
    return f"{wait.idle} steps computed nothing, of {accepted} requests"
