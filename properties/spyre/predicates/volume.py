"""Predict whether a request that joins the decode batch can exceed the volumetric limit.

Source: Spyre scheduling page, "Admission constraints", Volumetric constraint. The prediction is
exact for the worst case: every request generates all tokens that it may, and no other request
joins.
"""

from typing import NamedTuple

from ....model.observation import Step
from ...history.request_history import RequestHistory
from ...history.run_history import RunHistory
from ...rules.predicate import Predicate
from ..history import REVISIONS_THAT_PAUSE
from .admission import joining


class Member(NamedTuple):
    """A request of the batch before it decodes: its length and remaining output, in tokens."""

    length: int
    remaining: int


class Overrun(NamedTuple):
    """A decode step beyond the limit: its number from 1, its requests, and its max-tkv in
    tokens."""

    step: int
    requests: int
    tkv: int


def volume(step: Step) -> int:
    """Return batch x tkv of a decode step, in tokens (SPY-R07); 0 for other steps."""
    return len(step.scheduled) * (step.tkv or 0) if step.kind == "decode" else 0


def joins_beyond_volume(history: RunHistory, step: Step) -> str | None:
    """Check that a request joins only if no decode step with it can exceed max_batch_tkv
    (SPY-R47)."""
    if pauses(history):
        return None
    for request in joining(history, step):
        over = overrun_with(history, request)
        if over is not None:
            limit = history.config["max_batch_tkv"]
            return (
                f"{request.id} joins although the batch can exceed the limit: if no request ends "
                f"early, in decode step {over.step} from here {over.requests} requests x tkv "
                f"{over.tkv} = {over.requests * over.tkv} > {limit}"
            )
    return None


def volume_binds(history: RunHistory, step: Step) -> bool:
    """Return whether the decode batch could exceed the limit if the next request joined it."""
    if pauses(history) or not history.decoding():
        return False
    wanted = (history.ongoing() or history.unstarted())[:1]
    return any(overrun_with(history, request) is not None for request in wanted)


def pauses(history: RunHistory) -> bool:
    """Return whether requests can be paused. If they can, they join unchecked (SPY-R51)."""
    return history.revision in REVISIONS_THAT_PAUSE and bool(history.config["pausing"])


def overrun_with(history: RunHistory, newcomer: RequestHistory) -> Overrun | None:
    """Return the first decode step that includes the newcomer and can exceed the limit, or None if
    there is no such step."""
    batch = [
        Member(request.computed, request.max_tokens - request.emitted)
        for request in history.decoding()
    ]
    joined = Member(newcomer.prompt, newcomer.max_tokens - 1)
    return overrun(batch, joined, history.config["block_size"], history.config["max_batch_tkv"])


def overrun(batch: list[Member], newcomer: Member, block: int, limit: int) -> Overrun | None:
    """Return a step beyond the limit while the newcomer decodes with the batch, or None.

    Between two steps in which requests end, the batch stays the same. Its max-tkv then grows from
    step to step, except after a step in which a request has filled its block. The max-tkv is
    therefore largest either in the last of these steps, or in the last one in which a request fills
    its block.
    """
    alive = [*batch, newcomer]
    most = max(member.length for member in alive) + newcomer.remaining + block - 1
    if len(alive) * most <= limit:
        return None
    before = 0
    for end in sorted(
        {member.remaining for member in alive if 0 < member.remaining <= newcomer.remaining}
    ):
        alive = [member for member in alive if member.remaining >= end]
        longest = max(member.length for member in alive) + end
        if len(alive) * (longest + block - 1) > limit:
            filled = end - min((member.length + end) % block for member in alive)
            for step in (filled, end):
                reached = max_tkv([member.length + step for member in alive], block)
                if step > before and len(alive) * reached > limit:
                    return Overrun(step, len(alive), reached)
        before = end
    return None


def max_tkv(lengths: list[int], block: int) -> int:
    """Return the largest tkv of a batch in which each member is padded to as many blocks as the
    longest one fills."""
    width = -(-max(lengths) // block)
    return (width - 1) * block + max((length - 1) % block + 1 for length in lengths)


PREDICATES = {"SPY-R47": Predicate(joins_beyond_volume, volume_binds)}
