"""The order of requests, and requests that are left out although there is room.

Source: continuous-batching page, "What the scheduler picks each step", "Chunked prefill", "Prefill
priority" and "Gotchas"; serving/core/scheduler.py at HEAD, which follows vLLM V1: running requests
come first, and the last of them is preempted. Rules that HEAD has in common with vLLM's documents
use vLLM's predicates.
"""

from ....model.observation import Step
from ...rules.pool import blocks_for
from ...rules.predicate import Predicate
from ...vllm.history.request_history import VllmRequestHistory
from ...vllm.history.run import VllmRun, state_of
from ...vllm.predicates.decision import admitted, kept, names, preempted, ran_before
from ...vllm.predicates.free_blocks import least_free
from ...vllm.predicates.preemption import needless_preemption, victim_keeps_something
from ...vllm.predicates.queues import admitted_after_preemption
from .budget import (
    PAGE,
    blocks_in_all,
    budget_left,
    is_blocked_in_flight,
    left_waiting,
    must_not_be_cut,
    promised_before_ends,
    queue,
    seat_left,
)
from .memory import hit_at_least


def not_by_arrival(history: VllmRun, step: Step) -> str | None:
    """Check that, without prioritize_prefill, the batch is filled in order of arrival (LSS-R08)."""
    return None if history.config["prioritize_prefill"] else _out_of_order(history, step)


def both_phases(history: VllmRun, step: Step) -> bool:
    phases = {request.emitted > 0 for request in history.live.values()}
    return len(phases) == 2 and not history.config["prioritize_prefill"]


def prefill_not_first(history: VllmRun, step: Step) -> str | None:
    """Check that, with prioritize_prefill, prefills come before decodes, each group in order of
    arrival (LSS-R18)."""
    return _out_of_order(history, step) if history.config["prioritize_prefill"] else None


def prefill_overtakes(history: VllmRun, step: Step) -> bool:
    decodes = [request.arrival for request in history.decode_members(step)]
    prefills = [request.arrival for request in history.prefill_members(step)]
    overtakes = bool(decodes) and bool(prefills) and min(decodes) < max(prefills)
    return overtakes and history.config["prioritize_prefill"]


def _out_of_order(history: VllmRun, step: Step) -> str | None:
    line = queue(history)
    expected = [request.id for request in line if request.id in step.scheduled]
    order = [name for name in step.scheduled if name in history.live]
    if order != expected:
        return f"scheduled in the order {', '.join(order)}; expected {', '.join(expected)}"
    last = max(
        (place for place, request in enumerate(line) if request.id in step.scheduled), default=0
    )
    passed = [
        request
        for request in line[:last]
        if request.id not in step.scheduled
        and not is_blocked_in_flight(history, request)
        and not must_not_be_cut(history, step, request)
    ]
    # Only these fields show which requests have room to start.
    is_known = step.running is not None and step.finished is not None
    could_start = _could_start(history, step) if passed and is_known else []
    for request in passed:
        if request.started or request in could_start:
            why = "has started" if request.started else "could start"
            return f"{request.id} {why} but gets no tokens, while {line[last].id} behind it does"
    return None


def decode_left_out(history: VllmRun, step: Step) -> str | None:
    """Check that, in a batch with a prompt chunk, every decoding request is scheduled while there
    is room (LSS-R17)."""
    if budget_left(history, step) <= 0 or not history.prefill_members(step):
        return None
    if history.revision == PAGE and not seat_left(history, step):
        return None
    missing = [request for request in _decoding(history, step) if request.id not in step.scheduled]
    if not missing:
        return None
    return (
        f"{names(missing)} decodes, but is left out of a batch with a prompt chunk, although "
        "budget is left"
    )


def decodes_beside(history: VllmRun, step: Step) -> bool:
    return bool(_decoding(history, step)) and bool(history.prefill_members(step))


def _decoding(history: VllmRun, step: Step) -> list[VllmRequestHistory]:
    return [
        request
        for request in kept(history, step)
        if request.emitted and request.prefilled and not is_blocked_in_flight(history, request)
    ]


def waits_for_a_slot(history: VllmRun, step: Step) -> str | None:
    """Check that, with max_num_seqs 0, no request waits for a slot (LSS-R05)."""
    if history.config["max_num_seqs"]:
        return None
    return _gets_nothing(left_out(history, step), "max_num_seqs is 0, no cap")


def no_cap(history: VllmRun, step: Step) -> bool:
    return not history.config["max_num_seqs"] and len(step.running or ()) > 2


def kept_out(history: VllmRun, step: Step) -> str | None:
    """Check that a request without tokens keeps no later request out (LSS-R09)."""
    line = queue(history)
    passed = [place for place, request in enumerate(line) if request.id not in step.scheduled]
    behind = [request for request in left_out(history, step) if line.index(request) > min(passed)]
    return _gets_nothing(behind, f"{line[min(passed)].id} gets nothing") if behind else None


def passed_over(history: VllmRun, step: Step) -> bool:
    line = [request.id in step.scheduled for request in queue(history)]
    return False in line and True in line[line.index(False) :]


def needless_wait(history: VllmRun, step: Step) -> str | None:
    """Check that no request is left out while there are budget, a slot and blocks for it
    (LSS-P03)."""
    return _gets_nothing(left_out(history, step), "a slot is left")


def someone_joins(history: VllmRun, step: Step) -> bool:
    return bool(admitted(history, step)) and bool(kept(history, step))


def _gets_nothing(who: list[VllmRequestHistory], why: str) -> str | None:
    return (
        (f"{names(who)} gets no tokens, although budget and blocks are left: {why}")
        if who
        else None
    )


def left_out(history: VllmRun, step: Step) -> list[VllmRequestHistory]:
    """Return the requests that were left out of the batch although nothing prevented them from
    running.

    A waiting request needs fewer blocks if it finds some in the cache. Only cached blocks that
    running requests hold are taken into account.
    """
    if budget_left(history, step) <= 0 or step.preempted or pipeline_is_full(history):
        return []
    if history.revision == PAGE:
        if not seat_left(history, step):
            return []
        started = [
            request
            for request in queue(history)
            if request.started
            and request.id not in step.scheduled
            and not is_blocked_in_flight(history, request)
            and not must_not_be_cut(history, step, request)
        ]
        return started + _could_start(history, step)
    running = [
        request
        for request in kept(history, step)
        if request.id not in step.scheduled and not is_blocked_in_flight(history, request)
    ]
    first = left_waiting(history, step)[:1] if seat_left(history, step) else []
    return running + [request for request in first if _may_be_admitted(history, step, request)]


def _could_start(history: VllmRun, step: Step) -> list[VllmRequestHistory]:
    """Return the waiting requests that could start, because the pool has room for all their tokens,
    including the last one. A request behind one that waits for blocks could not start."""
    could, free = [], least_free(history, step)
    for request in left_waiting(history, step):
        if must_not_be_cut(history, step, request):
            continue
        if history.config["num_blocks"] is not None:
            if free is None or request.id in history.aborts_inside:
                break
            missing = blocks_in_all(history, request, 1) - _shared_blocks(history, step, request)
            if missing > free - promised_before_ends(history, step):
                break
        could.append(request)
    return could


def _may_be_admitted(history: VllmRun, step: Step, request: VllmRequestHistory) -> bool:
    limit = history.config["long_prefill_token_threshold"] or request.num_tokens
    uncut = min(request.num_tokens, limit) <= budget_left(history, step)
    if not history.config["enable_chunked_prefill"] and not uncut:
        return False
    if history.config["num_blocks"] is None:
        return True
    free = least_free(history, step)
    if free is None or request.id in history.aborts_inside:
        return False
    missing = blocks_for(history, request.num_tokens) - _shared_blocks(history, step, request)
    return missing <= free


def _shared_blocks(history: VllmRun, step: Step, request: VllmRequestHistory) -> int:
    return hit_at_least(history, step, request) // int(history.config["block_size"])


def pipeline_is_full(history: VllmRun) -> bool:
    stages = history.config["pp_size"]
    return bool(stages > 1) and len(state_of(history).flights) >= stages


def starts_in_a_full_pipeline(history: VllmRun, step: Step) -> str | None:
    """Check that at most pp_size batches are in flight (LSS-R19)."""
    if not step.scheduled or not pipeline_is_full(history):
        return None
    return (
        f"a batch with {', '.join(step.scheduled)} starts, while {history.config['pp_size']} "
        "batches are in flight, one for each stage"
    )


def work_for_a_full_pipeline(history: VllmRun, step: Step) -> bool:
    idle = (
        request for request in history.live.values() if not is_blocked_in_flight(history, request)
    )
    return pipeline_is_full(history) and any(idle)


def not_as_vllm(history: VllmRun, step: Step) -> str | None:
    """Check that running requests come first, in their order. If too few blocks are free, the last
    of them must be preempted and give back all its blocks, and no request must be admitted in that
    step. No request must be preempted for a waiting one (LSS-R30)."""
    return (
        _running_out_of_order(history, step)
        or _not_the_tail(history, step)
        or victim_keeps_something(history, step)
        or admitted_after_preemption(history, step)
        or needless_preemption(history, step)
    )


def preempts_or_admits(history: VllmRun, step: Step) -> bool:
    return bool(step.preempted) or bool(admitted(history, step) and kept(history, step))


def _running_out_of_order(history: VllmRun, step: Step) -> str | None:
    old = [request.id for request in ran_before(history) if request.id in step.scheduled]
    order = [name for name in step.scheduled if name in history.live]
    if order[: len(old)] == old:
        return None
    return f"scheduled in the order {', '.join(order)}; {', '.join(old)} were running"


def _not_the_tail(history: VllmRun, step: Step) -> str | None:
    gone, before = preempted(history, step), ran_before(history)
    tail = before[len(before) - len(gone) :]
    if {request.id for request in tail} == {request.id for request in gone}:
        return None
    return f"{names(gone)} preempted instead of {names(tail)}; {names(before)} ran, in this order"


def waiting_not_by_arrival(history: VllmRun, step: Step) -> str | None:
    """Check that waiting requests are listed and admitted in order of arrival (LSS-R34)."""
    listed = [history.live[name] for name in step.waiting or () if name in history.live]
    listed = [request for request in listed if not request.blocked]
    by_arrival = sorted(listed, key=lambda request: request.arrival)
    if listed != by_arrival:
        return f"{names(listed)} wait in this order, but came in the order {names(by_arrival)}"
    new, waiting = admitted(history, step), left_waiting(history, step)
    arrivals = [request.arrival for request in new]
    if arrivals != sorted(arrivals):
        return f"{names(new)} are admitted in this order, which is not that of their arrival"
    if new and waiting and waiting[0].arrival < arrivals[-1]:
        return f"{new[-1].id} is admitted, but {waiting[0].id} came before it and waits"
    return None


def two_wait_or_one_joins(history: VllmRun, step: Step) -> bool:
    waiting = len(step.waiting or ())
    return waiting > 1 or (waiting > 0 and bool(admitted(history, step)))


PREDICATES = {
    "LSS-R19": Predicate(starts_in_a_full_pipeline, work_for_a_full_pipeline),
    "LSS-R18": Predicate(prefill_not_first, prefill_overtakes),
    "LSS-R08": Predicate(not_by_arrival, both_phases),
    "LSS-R17": Predicate(decode_left_out, decodes_beside),
    "LSS-R05": Predicate(waits_for_a_slot, no_cap),
    "LSS-R09": Predicate(kept_out, passed_over),
    "LSS-P03": Predicate(needless_wait, someone_joins),
    "LSS-R30": Predicate(not_as_vllm, preempts_or_admits),
    "LSS-R34": Predicate(waiting_not_by_arrival, two_wait_or_one_joins),
}
