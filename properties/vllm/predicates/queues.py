"""Which queue a request is in, the order of the queues, and which request goes first.

Source: cheat-sheet, "schedule() shape", "The four/five invariants" and "Gotchas".
"""

from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import Any

from ....model.observation import Step
from ...history.content import surely_shared
from ...history.per_step_cache import once
from ...history.prefix_hits import caches
from ...rules.pool import blocks_before, blocks_for, perhaps_preempted
from ...rules.predicate import PHASES, Predicate
from ..history import cadence, groups, in_flight, loads, speculation
from ..history.request_history import VllmRequestHistory
from ..history.run import VllmRun, requests_of, shown_behind
from .decision import (
    admitted,
    behind,
    first_inputs,
    input_missing,
    kept,
    lacks_budget_for_a_block,
    may_be_admitted,
    may_lack_input,
    may_pad,
    names,
    order_is_known,
    place_is_known,
    places_are_known,
    preempted,
    ran_before,
    round_may_end,
    since,
    slots,
    surely_in_front,
    threshold,
    waited_before,
    waits_for_encoder,
    watermark_blocks,
)
from .free_blocks import least_free
from .groups import held_by_running
from .kept_in_groups import kept_for


def not_in_one_queue(history: VllmRun, step: Step) -> str | None:
    """An unfinished request is in exactly one of the queues `waiting` and `running` (V1-I1)."""
    places = Counter((*(step.waiting or ()), *(step.running or ())))
    for name in history.live:
        if name in (step.finished or {}) or name in history.aborts_inside:
            continue
        if places[name] != 1:
            return f"{name} is unfinished, but listed {places[name]} times in waiting and running"
    return None


def someone_moves(history: VllmRun, step: Step) -> bool:
    return bool(admitted(history, step) or preempted(history, step))


def too_many_run(history: VllmRun, step: Step) -> str | None:
    """At most max_num_seqs requests run (V1-I3)."""
    slots = history.config["max_num_seqs"]
    run = len(kept(history, step)) + len(admitted(history, step))
    if run <= slots and len(step.running or ()) <= slots:
        return None
    return f"{max(run, len(step.running or ()))} requests run, but max_num_seqs is {slots}"


def every_slot_taken(history: VllmRun, step: Step) -> bool:
    run = kept(history, step) + admitted(history, step)
    return len(run) >= history.config["max_num_seqs"] and len(history.live) > len(run)


def active_requests_are_limited(config: Mapping[str, Any]) -> bool:
    return bool(config.get("max_num_active_seqs"))


def too_many_active(history: VllmRun, step: Step) -> str | None:
    """At most max_num_active_seqs requests run (V1-R87)."""
    most = history.config["max_num_active_seqs"]
    run = len(kept(history, step)) + len(admitted(history, step))
    if run <= most:
        return None
    return f"{run} requests run, but max_num_active_seqs is {most}"


def every_active_slot_taken(history: VllmRun, step: Step) -> bool:
    run = kept(history, step) + admitted(history, step)
    most: int = history.config["max_num_active_seqs"]
    return most == len(run) < len(history.live)


def out_of_order(history: VllmRun, step: Step) -> str | None:
    """Running requests come first, then admitted ones, each in their own order (V1-R01).

    A running request that could compute is out of order as well if it gets nothing, although a
    request behind it is scheduled.
    """
    before = ran_before(history)
    old = [request.id for request in before if request.id in step.scheduled]
    if old and len(old) < len(before):
        place = {request.id: at for at, request in enumerate(before)}
        for request in left_out(history, step):
            if place[request.id] < place[old[-1]]:
                return f"{old[-1]} is scheduled, but {request.id}, which runs before it, is not"
    if not admitted(history, step) and old == [*step.scheduled]:
        return None
    joins = [request for request in waited_before(history) if request.id in step.scheduled]
    new = [request.id for request in joins if place_is_known(history, request)]
    placed = {*old, *new}
    order = [name for name in step.scheduled if name in placed]
    if not order_is_known(history):
        joining = set(new)
        new = [name for name in order if name in joining]
    if order == old + new:
        return None
    return f"scheduled in the order {', '.join(order)}; expected {', '.join(old + new)}"


def old_and_new_run(history: VllmRun, step: Step) -> bool:
    return bool(admitted(history, step)) and len(admitted(history, step)) < len(step.scheduled)


def overtaken(history: VllmRun, step: Step) -> str | None:
    """No request is admitted before one that waits in front of it (V1-R09)."""
    new = admitted(history, step)
    if not new:
        return None
    still = (
        request
        for request in may_be_admitted(history, step)
        if place_is_known(history, request) and not may_lack_input(history, step, request)
    )
    if order_is_known(history):
        first = next(still, None)
        line = waited_before(history)
        behind = line[line.index(first) :] if first is not None else []
    else:
        wait = list(still)
        late = (request for request in new if any(surely_in_front(history, request, wait)))
        behind = [*islice(late, 1)]
        first = next(surely_in_front(history, behind[0], wait)) if behind else None
    if first is None:
        return None
    passed = [
        request
        for request in behind
        if request.id in step.scheduled and place_is_known(history, request)
    ]
    if not loads.are_made(history.config):
        later = shown_behind(history, first)
        passed += [r for r in new if r.id in later and not place_is_known(history, r)]
    if not passed:
        return None
    return f"{names(passed)} admitted, but {first.id} in front of it still waits"


def the_head_waits(history: VllmRun, step: Step) -> bool:
    return len([*islice(may_be_admitted(history, step), 2)]) > 1


def admitted_after_preemption(history: VllmRun, step: Step) -> str | None:
    """A step that preempts a request admits none (V1-R16)."""
    again = [request for request in preempted(history, step) if request.id in step.scheduled]
    new = admitted(history, step) + again
    gone = preempted(history, step)
    if not new or not gone:
        return None
    return f"{names(new)} admitted in the step that preempted {names(gone)}"


def preempts_with_a_queue(history: VllmRun, step: Step) -> bool:
    """A step preempts a request, although budget and a slot are left for a waiting request."""
    budget = history.config["max_num_batched_tokens"] - sum(step.scheduled.values())
    left = slots(history) - len(kept(history, step))
    return bool(step.preempted) and budget > 0 and left > 0


def prefill_too_early(history: VllmRun, step: Step) -> str | None:
    """While requests decode, no prefill is computed less than prefill_schedule_interval steps after
    the last one (V1-R97)."""
    if not cadence.holds(history):
        return None
    early = [r for r in kept(history, step) if cadence.goes_on(history, r)]
    early += [r for r in admitted(history, step) if (behind(history, step, r) or 0) > 1]
    for request in early:
        if tokens := step.scheduled.get(request.id):
            every = cadence.interval(history.config)
            return (
                f"{request.id} computes {tokens} tokens of its prefill less than {every} steps "
                "after the last prefill, while others decode"
            )
    return None


def prefills_are_held(history: VllmRun, step: Step) -> bool:
    return bool(cadence.holds(history)) and any(
        request.id not in step.scheduled
        for request in (*waited_before(history), *ran_before(history))
        if cadence.goes_on(history, request) or not request.started
    )


def needless_wait(history: VllmRun, step: Step) -> str | None:
    """The first in line is admitted if there are a slot, enough budget, and blocks for all its
    known tokens in addition to the watermark (V1-R07).

    Only cache hits that are shared with running requests count. If several requests may be first,
    one of them is admitted if these conditions hold for each of them.
    """
    request = _could_go(history, step)
    if request is None:
        return None
    remaining = history.config["max_num_batched_tokens"] - sum(step.scheduled.values())
    tokens, free = _must_fit(history, step, request, remaining), least_free(history, step)
    return (
        f"{request.id} waits although {remaining} tokens of the budget and a slot are left: "
        f"{tokens} of its {request.num_tokens} tokens need "
        f"{_blocks_needed(history, step, request, tokens)} blocks, and "
        f"{'the pool is unbounded' if free is None else f'{free} are free'}"
    )


def _could_go(history: VllmRun, step: Step) -> VllmRequestHistory | None:
    """Return a waiting request that this step should have admitted, or None if there is none."""
    line = may_be_admitted(history, step)
    first = next(line, None)
    if first is None or step.preempted or cadence.holds(history) is not False:  # V1-R97
        return None
    run = kept(history, step) + admitted(history, step)
    remaining = history.config["max_num_batched_tokens"] - sum(step.scheduled.values())
    if remaining <= 0 or len(run) >= slots(history):
        return None
    if may_pad(history) and remaining <= speculation.drafts(history.config):
        return None
    if lacks_budget_for_a_block(history, step) or _a_load_may_fail(history):
        return None
    surely = _is_surely_first(history, step, first) and places_are_known(history)
    tried = [first] if surely else [first, *line]
    if not all(_lacks_nothing(history, step, request, remaining) for request in tried):
        return None
    return next((request for request in tried if not _may_be_deferred(history, request)), None)


def _lacks_nothing(
    history: VllmRun, step: Step, request: VllmRequestHistory, remaining: int
) -> bool:
    """Return whether a waiting request would certainly be admitted, or parked until it is loaded,
    if it were tried now, with `remaining` tokens of the budget and a slot left."""
    is_parked = _would_be_parked(history, request)
    if loads.are_made(history.config) and not is_parked and _may_need_its_load(history, request):
        return False
    if waits_for_encoder(history, step, first_inputs(history, step, request)):
        return False
    if _state_may_be_missing(history, step, request):
        return False
    # In the chapter, a prompt that the budget would cut does not start; releases first cut it to
    # the threshold.
    cut = threshold(history) if history.revision in since("0.25") else request.num_tokens
    if not history.config["enable_chunked_prefill"] and min(request.num_tokens, cut) > remaining:
        return False
    if history.config["num_blocks"] is None:
        return True
    free = least_free(history, step)
    if free is None or request.id in {*(step.finished or ()), *history.aborts_inside}:
        return False
    up = history.revision not in since("0.25")  # no document says how the watermark is rounded
    run = kept(history, step) + admitted(history, step)
    reserve = watermark_blocks(history.config, rounded_up=up) if run else 0
    if is_parked:
        reserve += _promised_at_most(history, step)
    tokens = _must_fit(history, step, request, remaining)
    return _blocks_needed(history, step, request, tokens) + reserve <= free


def _state_may_be_missing(history: VllmRun, step: Step, request: VllmRequestHistory) -> bool:
    """Return whether another request may be computing, in this very step, the Mamba state from
    which this request would start (V1-R57)."""
    unit = min(int(history.config["block_size"]), groups.match_unit(history.config))
    return groups.caches_states(history.config) and history.max_hit(step, request) >= unit


def _is_surely_first(history: VllmRun, step: Step, request: VllmRequestHistory) -> bool:
    """Return whether this request is in front of all other waiting requests, no matter how the
    documents are read."""
    if order_is_known(history):
        return True
    return all(
        any(surely_in_front(history, other, (request,)))
        for other in waited_before(history)
        if other is not request and other.id not in step.scheduled
    )


def _may_need_its_load(history: VllmRun, request: VllmRequestHistory) -> bool:
    """Return whether a waiting request was parked, or has tokens that a connector may load."""
    parked = (history.last.parked or ()) if history.last is not None else ()
    new = loads.is_new(history.config, request)
    return new or request.id in parked or loads.has_failed(request)


def _would_be_parked(history: VllmRun, request: VllmRequestHistory) -> bool:
    """Return whether a request is parked when its turn comes, since a connector has tokens of it.
    Return False with features that change how many blocks a load needs."""
    config = history.config
    if groups.further(config) or speculation.drafts(config) or loads.are_synchronous(config):
        return False
    return loads.is_new(config, request) and not loads.has_failed(request)


def _promised_at_most(history: VllmRun, step: Step) -> int:
    """Return an upper bound on the blocks that must stay free when a load begins, for the requests
    that are parked or run (V1-R21)."""
    shown = step.blocks or {}
    return sum(
        max(
            blocks_for(history, speculation.slots(history.config, other.num_tokens + 1))
            - len(held),
            0,
        )
        for name, held in shown.items()
        if (other := requests_of(history.live).get(name)) is not None
    )


def _may_be_deferred(history: VllmRun, request: VllmRequestHistory) -> bool:
    return loads.are_made(history.config) and loads.place_unknown(request)


def _a_load_may_fail(history: VllmRun) -> bool:
    parked = (history.last.parked or ()) if history.last is not None else ()
    if not parked or not loads.are_made(history.config):
        return False
    return any(name in history.live and loads.may_fail(history.live[name]) for name in parked)


def _blocks_needed(history: VllmRun, step: Step, request: VllmRequestHistory, tokens: int) -> int:
    """Return an upper bound on how many free blocks the request takes for these tokens."""
    shared, block = 0, int(history.config["block_size"])
    if caches(history.config):
        there, kin = ran_before(history), history.kin(request)
        shared = surely_shared(request, there, kin, block, of_prompts=True, completed=True)
    if groups.further(history.config):
        needed = groups.blocks_if_all_kept(history.config, tokens)
        if not shared:
            return needed
        found = max(held_by_running(history, step, request), kept_for(history, step, request))
        return needed - groups.saved_by_hit(history.config, shared, found)
    if speculation.lookahead(history.config):
        shared = max(shared - block, 0)  # the last block may be computed again (V1-R61)
    held = blocks_before(history, request)  # by a session between two turns
    return max(blocks_for(history, tokens) - max(shared // block, held), 0)


def _must_fit(history: VllmRun, step: Step, request: VllmRequestHistory, remaining: int) -> int:
    """Return an upper bound on the number of tokens that need free blocks."""
    if _would_be_parked(history, request):
        return speculation.slots(history.config, request.num_tokens)
    ahead = speculation.lookahead(history.config) or may_pad(history)
    if history.config["reserve_full_isl"] and not ahead:
        return request.num_tokens
    hit = history.max_hit(step, request) if caches(history.config) else request.kept_tokens
    chunk = min(request.num_tokens, hit + min(threshold(history), remaining))
    if may_pad(history):
        chunk += speculation.drafts(history.config)
    slots = speculation.slots(history.config, chunk)
    return max(request.num_tokens, slots) if history.config["reserve_full_isl"] else slots


def someone_joins(history: VllmRun, step: Step) -> bool:
    return bool(admitted(history, step)) and bool(kept(history, step))


def passed_by(history: VllmRun, step: Step) -> str | None:
    """Every running request is scheduled while budget is left (V1-P01).

    Under the priority policy, requests behind one that preempted itself may get no tokens. In some
    revisions, they are still scheduled.
    """
    budget = history.config["max_num_batched_tokens"]
    if history.pause == "pause_all" or sum(step.scheduled.values()) >= budget:
        return None
    before = ran_before(history)
    without = _without_tokens(history, step)
    skipped = left_out(history, step)
    if not skipped or any(
        round_may_end(history, request) for request in without[: without.index(skipped[0]) + 1]
    ):
        return None
    if history.config["policy"] == "priority" and history.revision not in since("0.33"):
        last = max(
            (place for place, request in enumerate(before) if request.id in step.scheduled),
            default=-1,
        )
        victims = {request.id for request in preempted(history, step)}
        ended_at = [
            place for place, request in enumerate(before) if request.id in victims and place > last
        ]
        if ended_at and before.index(skipped[0]) > ended_at[0]:
            return None
    return f"{names(skipped)} not scheduled, although running and budget is left"


@once
def left_out(history: VllmRun, step: Step) -> list[VllmRequestHistory]:
    """Return the running requests that are not scheduled, although they have something to compute
    and may have it computed."""
    gone = perhaps_preempted(history, step)
    return [
        request
        for request in _without_tokens(history, step)
        if request.id not in gone
        and not input_missing(history, step, request, request.computed)
        and not lacks_budget_for_a_block(history, step)
        and not cadence.may_wait(history, request)
    ]


@once
def _without_tokens(history: VllmRun, step: Step) -> list[VllmRequestHistory]:
    return [
        request
        for request in kept(history, step)
        if request.id not in step.scheduled and not in_flight.passed_over(history.config, request)
    ]


def several_run(history: VllmRun, step: Step) -> bool:
    spent = sum(step.scheduled.values()) >= history.config["max_num_batched_tokens"]
    return len(kept(history, step)) > 1 and not spent


PREDICATES = {
    "V1-I3": Predicate(too_many_run, every_slot_taken, reads=("preempted", "running", "scheduled")),
    "V1-R87": Predicate(
        too_many_active, every_active_slot_taken, only_with=active_requests_are_limited
    ),
    "V1-R16": Predicate(admitted_after_preemption, preempts_with_a_queue),
    "V1-R09": Predicate(overtaken, the_head_waits),
    "V1-R01": Predicate(out_of_order, old_and_new_run),
    "V1-I1": Predicate(
        not_in_one_queue,
        someone_moves,
        reads=(PHASES, "finished", "preempted", "running", "scheduled", "waiting"),
    ),
    "V1-P01": Predicate(passed_by, several_run),
    "V1-R97": Predicate(prefill_too_early, prefills_are_held, only_with=cadence.is_kept),
    "V1-R07": Predicate(needless_wait, someone_joins),
}
