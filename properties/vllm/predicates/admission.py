"""Reasons to keep a request waiting although blocks are free: the watermark, too little room for
the whole sequence, and a grammar that is not compiled yet.

Source: chunked-prefill chapter, "Admission control"; release 0.33.0 for grammars
(Scheduler._handle_blocked_waiting_request).
"""

from collections.abc import Iterator

from ....model.observation import Step
from ...rules.pool import blocks_before, blocks_for, free_when_decided, held_before, taken_by
from ...rules.predicate import Predicate
from ..history import blocked, groups, in_flight, loads, speculation
from ..history.request_history import VllmRequestHistory
from ..history.run import VllmRun
from .decision import (
    admitted,
    kept,
    may_be_admitted,
    may_pad,
    order_is_known,
    slots,
    waited_before,
    watermark_blocks,
)
from .queues import needless_wait


def admission_rooms(history: VllmRun, step: Step) -> Iterator[tuple[VllmRequestHistory, int, int]]:
    """Yield each admitted request with two numbers: how many blocks it needed for its admission,
    and how many were free at that time.

    Cached blocks that no request holds are free before the admission but not afterwards, so they
    count as needed. The iteration ends at a request whose hit or blocks are unknown. With several
    groups of the KV cache, V1-R54 applies instead.
    """
    new, free = admitted(history, step), free_when_decided(history)
    if not new or free is None or step.blocks is None or step.preempted:
        return
    if groups.further(history.config):
        return
    held = {*held_before(history)}
    size = history.config["block_size"]
    for request in kept(history, step):
        taken, table = taken_by(history, step, request, size), step.blocks.get(request.id)
        if table is None and taken:
            return
        # A request admitted later in this step may hit the blocks that this one has taken.
        free -= taken
        held |= set(table or ())
    for request in new:
        hit, table = history.hit_now(step, request), step.blocks.get(request.id)
        if hit is None or table is None:
            return
        cached = table[: hit // size]
        computed = hit + step.scheduled[request.id]
        covered = request.num_tokens if history.config["reserve_full_isl"] else computed
        unheld = sum(block not in held for block in cached)
        loaded = blocks_before(history, request)
        yield request, blocks_for(history, covered) - max(len(cached), loaded) + unheld, free
        free -= len(set(table) - held)
        held |= set(table)


def reserve_given_away(history: VllmRun, step: Step) -> str | None:
    """A request admitted while another runs leaves the watermark's blocks free (V1CP-R19)."""
    new, reserve = admitted(history, step), watermark_blocks(history.config)
    guarded = new if kept(history, step) else new[1:]
    # Later in the step, blocks only come back.
    if guarded and step.free_blocks is not None and step.free_blocks < reserve:
        remaining = f"{step.free_blocks} blocks left free"
        return f"{guarded[-1].id} admitted, {remaining}, but the watermark is {reserve}"
    for request, needed, free in admission_rooms(history, step):
        if request in guarded and needed <= free < needed + reserve:
            return (
                f"{request.id} admitted: it needs {needed} of the {free} free blocks, which leaves "
                f"fewer than the watermark of {reserve}"
            )
    return None


def reserve_matters(history: VllmRun, step: Step) -> bool:
    """A request waits while another runs, and no more blocks are free than it needs plus the
    watermark."""
    waiting = [request for request in waited_before(history) if request.id not in step.scheduled]
    reserve, free = watermark_blocks(history.config), step.free_blocks
    if not waiting or not reserve or not free or not kept(history, step):
        return False
    return free < blocks_for(history, waiting[0].num_tokens) + reserve


def rest_does_not_fit(history: VllmRun, step: Step) -> str | None:
    """With reserve_full_isl, an admission needs free blocks for all known tokens (V1CP-R22)."""
    if not history.config["reserve_full_isl"] or step.free_blocks is None:
        return None
    if groups.further(history.config):
        return None  # V1-R54
    newly = loads.newly_parked(history.live, step)
    free = step.free_blocks + sum(len((step.blocks or {}).get(name, ())) for name in newly)
    for request in reversed(admitted(history, step)):
        hit = history.hit_now(step, request)
        if hit is None:
            # It was aborted inside the step, so its hit is unknown. At most, it took free blocks
            # for all its tokens.
            free += blocks_for(history, request.num_tokens)
            continue
        start = speculation.slots(history.config, hit + step.scheduled[request.id])
        loaded = blocks_before(history, request)
        rest = blocks_for(history, request.num_tokens) - max(blocks_for(history, start), loaded)
        if rest > free:
            return (
                f"{request.id} admitted with {start} of {request.num_tokens} tokens, but the rest "
                f"needs {rest} blocks (free: {free})"
            )
        # When it was admitted, the blocks that later requests took were still free.
        free += blocks_for(history, start)
    for request, needed, room in admission_rooms(history, step):
        if needed > room:
            return (
                f"{request.id} admitted: its {request.num_tokens} tokens need {needed} blocks "
                f"(free: {room})"
            )
    return None


def first_chunk_alone_fits(history: VllmRun, step: Step) -> bool:
    waiting = [request for request in waited_before(history) if request.id not in step.scheduled]
    free = step.free_blocks
    if not waiting or not free or not history.config["reserve_full_isl"]:
        return False
    if groups.further(history.config):
        return False
    return blocks_for(history, waiting[0].num_tokens) > free


def runs_blocked(history: VllmRun, step: Step) -> str | None:
    """No request is scheduled before its grammar is compiled (V1-R41)."""
    if not blocked.can_be(history.config):
        return None
    for name in step.scheduled:
        request = history.live.get(name)
        if request is not None and blocked.waits(request):
            return f"{name} scheduled {request.blocked} steps before its grammar is compiled"
        if request is not None and request.invalid:
            return f"{name} scheduled, although its grammar cannot be compiled"
    return None


def one_is_blocked(history: VllmRun, step: Step) -> bool:
    if not blocked.can_be(history.config):
        return False
    return any(blocked.waits(request) for request in history.live.values())


def held_up(history: VllmRun, step: Step) -> str | None:
    """Blocked requests do not delay a request behind them for which there is room (V1-R42)."""
    return needless_wait(history, step) if _is_passed(history, step) else None


def passes(history: VllmRun, step: Step) -> bool:
    if not one_is_blocked(history, step):
        return False
    line = [request.blocked > 0 for request in waited_before(history)]
    return True in line and False in line[line.index(True) :]


def _is_passed(history: VllmRun, step: Step) -> bool:
    if not one_is_blocked(history, step):
        return False
    first = next(may_be_admitted(history, step), None)
    if first is None:
        return False
    line = waited_before(history)
    return any(request.blocked for request in line[: line.index(first)])


def outlives_its_grammar(history: VllmRun, step: Step) -> str | None:
    """A request with an invalid grammar ends with an error when the scheduler reaches it, and not
    before (V1-R43)."""
    for name, reason in (step.finished or {}).items():
        request = history.live.get(name)
        if request is None or not request.invalid or name in history.aborts_inside:
            continue
        if reason != "error":
            return f"{name} ends with {reason}, expected error: its grammar cannot be compiled"
        if request.blocked:
            return f"{name} ends {request.blocked} steps before its grammar is compiled"
    request = _comes_to(history, step)
    if request is None:
        return None
    return f"{request.id} waits, although its grammar cannot be compiled: it must end with an error"


def _comes_to(history: VllmRun, step: Step) -> VllmRequestHistory | None:
    """Return the first request that certainly must end in this step."""
    if not blocked.can_be(history.config) or history.pause or step.preempted:
        return None
    run = len(kept(history, step)) + len(admitted(history, step))
    spent = sum(step.scheduled.values())
    full = run >= slots(history) or spent >= history.config["max_num_batched_tokens"]
    if full or may_pad(history) or not in_flight.reports(history, step):
        return None
    line = waited_before(history) if order_is_known(history) else []
    for request in line:
        if request.id in step.scheduled or request.blocked:
            continue
        gone = request.id in (step.finished or {}) or request.id in history.aborts_inside
        if not request.invalid:
            return None
        if not gone:
            return request
    return None


def one_is_invalid(history: VllmRun, step: Step) -> bool:
    return any(request.invalid and not request.blocked for request in history.live.values())


PREDICATES = {
    "V1CP-R19": Predicate(reserve_given_away, reserve_matters),
    "V1CP-R22": Predicate(rest_does_not_fit, first_chunk_alone_fits),
    "V1-R41": Predicate(runs_blocked, one_is_blocked, only_with=blocked.can_be),
    "V1-R42": Predicate(held_up, passes, only_with=blocked.can_be),
    "V1-R43": Predicate(outlives_its_grammar, one_is_invalid, only_with=blocked.can_be),
}
