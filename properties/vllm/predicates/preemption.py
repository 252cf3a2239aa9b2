"""Preemption: which request gives up its blocks, when, and what happens to it.

Source: chunked-prefill chapter, "When the cache, not the budget, runs out"; cheat-sheet, "The
four/five invariants".
"""

from ....model.observation import Step
from ...rules.pool import free_when_decided, perhaps_preempted, released_by, taken_by
from ...rules.predicate import PHASES, Predicate
from ..history import groups, in_flight, loads, sessions, speculation, synchronous
from ..history.request_history import VllmRequestHistory
from ..history.run import VllmRun
from .decision import (
    admitted,
    kept,
    key,
    most_new_blocks,
    names,
    preempted,
    ran_before,
    was_set_aside,
)


def victim_not_the_tail(history: VllmRun, step: Step) -> str | None:
    """Under FCFS, the requests admitted last are preempted (V1CP-R13)."""
    gone, unknown = preempted(history, step), perhaps_preempted(history, step)
    before = [request for request in ran_before(history) if request.id not in unknown]
    if history.config["policy"] == "priority" or not gone:
        return None
    tail = before[len(before) - len(gone) :]
    if {request.id for request in tail} == {request.id for request in gone}:
        stay = [request for request in kept(history, step) if request.id not in unknown]
        return _admitted_before(history, gone, stay)
    return f"{names(gone)} preempted instead of {names(tail)}; {names(before)} ran, in this order"


def _admitted_before(
    history: VllmRun, gone: list[VllmRequestHistory], stay: list[VllmRequestHistory]
) -> str | None:
    """Return a message if a preempted request was admitted before one that stays. The target may
    list running requests in any order, but the admissions themselves were observed.
    """
    first = min(gone, key=_admission)
    last = max(stay, key=_admission, default=None)
    if last is None or _admission(last) <= _admission(first):
        return None
    later = " after it" if last.began == first.began else ""
    return (
        f"{first.id}, admitted in step {first.began}, is preempted; {last.id}, admitted{later} in "
        f"step {last.began}, stays"
    )


def _admission(request: VllmRequestHistory) -> tuple[int, int]:
    """Return the step in which a request was admitted, and its place among the requests scheduled
    in that step."""
    return request.began, request.began_at


def tail_preempted(history: VllmRun, step: Step) -> bool:
    several = len(ran_before(history)) > 1
    return bool(step.preempted) and several and history.config["policy"] == "fcfs"


def victim_not_least_important(history: VllmRun, step: Step) -> str | None:
    """Under the priority policy, no preempted request is more important than one that stays; among
    equally important ones, the latest arrival is preempted first (V1CP-R14)."""
    gone, unknown = preempted(history, step), perhaps_preempted(history, step)
    stay = [request for request in kept(history, step) if request.id not in unknown]
    if history.config["policy"] != "priority" or not gone or not stay:
        return None
    victim = min(gone, key=lambda request: key(history, request))
    other = max(stay, key=lambda request: key(history, request))
    if key(history, victim) > key(history, other):
        return None
    return (
        f"{victim.id} (priority {victim.priority}, arrival {victim.arrival}) preempted, "
        f"{other.id} (priority {other.priority}, arrival {other.arrival}) stays"
    )


def preempts_by_priority(history: VllmRun, step: Step) -> bool:
    several = len({request.priority for request in ran_before(history)}) > 1
    return bool(step.preempted) and several and history.config["policy"] == "priority"


def needless_preemption(history: VllmRun, step: Step) -> str | None:
    """A request is preempted only if running requests need more blocks than are free, including the
    blocks freed by earlier preemptions (V1-R05).

    If a preempted request may keep its blocks, V1-R24 applies instead.
    """
    return None if keeps_blocks(history, step) else taken_without_need(history, step)


def keeps_blocks(history: VllmRun, step: Step) -> bool:
    """Return whether a preempted request keeps its blocks because a step in flight still computes
    it.

    This happens only with a connector.
    """
    return loads.meet_decisions(history.config) and any(
        in_flight.is_still_computed(history, request) for request in preempted(history, step)
    )


def taken_without_need(history: VllmRun, step: Step) -> str | None:
    gone, free = preempted(history, step), free_when_decided(history)
    if not gone or free is None:
        return None
    last = last_victim(history, gone)
    free += released_by(history, [request for request in gone if request is not last])
    size = history.config["block_size"]
    needed = sum(taken_by(history, step, request, size) for request in kept(history, step))
    wanted = [last]
    if loads.meet_decisions(
        history.config
    ):  # the scheduler may have stopped at a request that needed more
        wanted += [request for request in kept(history, step) if request.id not in step.scheduled]
    needed += sum(most_new_blocks(history, request) for request in wanted)
    # blocks that have left a window are free as well
    computing = len(kept(history, step)) + len(wanted)
    needed += groups.most_taken(history.config, needed, computing)
    if groups.hits_inside(history.config):  # a state in a prompt's last block is copied
        needed += computing * groups.number_of_mamba(history.config)
    if needed > free:
        return None
    others = names(request for request in gone if request is not last)
    return (
        f"{names(gone)} preempted, although running requests needed at most {needed} blocks, and "
        f"{free}{f' (including those of {others})' if others else ''} were free before "
        f"{last.id} gave back its blocks"
    )


def last_victim(history: VllmRun, gone: list[VllmRequestHistory]) -> VllmRequestHistory:
    """Return the request preempted last in a step: under the priority policy, the most important
    one; under FCFS, the one admitted first."""
    if history.config.get("policy") == "priority":
        return min(gone, key=lambda request: key(history, request))
    ran = [request.id for request in ran_before(history)]
    return min(gone, key=lambda request: ran.index(request.id) if request.id in ran else len(ran))


def blocks_run_out(history: VllmRun, step: Step) -> bool:
    """A step preempts a request, or leaves no block free while a request runs."""
    return bool(step.preempted) or (step.free_blocks == 0 and bool(step.running))


def victim_keeps_something(history: VllmRun, step: Step) -> str | None:
    """A preempted request waits, holds no block, and has nothing computed (V1-I5)."""
    for request in preempted(history, step):
        if request.id in history.aborts_inside:
            continue
        may_end = step.finished is None or request.id in step.finished
        if may_end and in_flight.is_still_computed(history, request):
            continue  # the token that was in flight may be its last
        if step.waiting is not None and request.id not in step.waiting:
            return f"{request.id} was preempted, but does not wait"
        if computed := (step.computed or {}).get(request.id):
            return f"{request.id} was preempted but still has {computed} computed tokens"
        if held := (step.blocks or {}).get(request.id):
            return f"{request.id} was preempted and holds {len(held)} blocks"
    return None


def someone_is_preempted(history: VllmRun, step: Step) -> bool:
    return bool(preempted(history, step))


def newcomer_before_preempted(history: VllmRun, step: Step) -> str | None:
    """Under FCFS, a preempted request waits in front of all requests that have never started or
    were preempted in an earlier step (V1CP-R17).

    A session that lost its blocks between two turns keeps its place; one whose turn ends gets a new
    place (V1-R47).
    """
    if history.config["policy"] == "priority":
        return None
    gone = {request.id for request in preempted(history, step)}
    keep_places = sessions.are_held(history.config)
    newcomer = earlier = None
    for name in step.waiting or ():
        request = history.live.get(name)
        if request is None or name in (step.parked or ()) or loads.place_unknown(request):
            continue
        if was_set_aside(history, request) and not request.preemptions:
            continue
        if keep_places and (request.between_turns or sessions.ends_turn(step, request)):
            continue
        if request.id in gone or (request.preemptions and not keep_places):
            if newcomer is not None:
                return f"{newcomer}, never started, waits in front of {name}, which was preempted"
            if request.id in gone and earlier is not None:
                return f"{earlier}, preempted before this step, waits in front of {name}"
            if request.id not in gone and not _set_aside_again(history, request):
                earlier = earlier or name
        elif newcomer is None:
            newcomer = name
    return None


def _set_aside_again(history: VllmRun, request: VllmRequestHistory) -> bool:
    """Return whether a preempted request may have been set aside, in front of others, because it
    waits for something other than blocks."""
    return was_set_aside(history, request) or in_flight.depth(history.config) > 1


def preempted_and_new_wait(history: VllmRun, step: Step) -> bool:
    gone = set(step.preempted or ())
    waiting = [history.live[name] for name in step.waiting or () if name in history.live]
    again = [request for request in waiting if request.id in gone or request.preemptions]
    return bool(again) and len(again) < len(waiting) and history.config["policy"] == "fcfs"


def stops_running(history: VllmRun, step: Step) -> str | None:
    """A request runs from its admission until it ends or is preempted (V1CP-R03)."""
    running = step.running or ()
    gone = {*(step.finished or ()), *(step.preempted or ()), *history.aborts_inside}
    for request in (*kept(history, step), *admitted(history, step)):
        if request.id in running or request.id in gone or request.id in _parked(history, step):
            continue
        began = "was admitted" if request in admitted(history, step) else "was running"
        return f"{request.id} {began}, did not end and was not preempted, but does not run"
    return None


def prompt_goes_on(history: VllmRun, step: Step) -> bool:
    return any(request.started and not request.prefilled for request in kept(history, step))


def _parked(history: VllmRun, step: Step | None) -> tuple[str, ...]:
    """Return the parked sessions, or all sessions if the step does not show which requests are
    parked. V1-R45 judges whether a turn of a parked session has ended."""
    if step is None or not sessions.are_held(history.config):
        return ()
    return tuple(history.live) if step.parked is None else step.parked


def preemption_not_counted(history: VllmRun, step: Step) -> str | None:
    """A request counts as preempted if and only if it ran and is waiting again (V1CP-R29)."""
    before = {request.id for request in ran_before(history)}
    gone = set(step.preempted or ())
    parked = _parked(history, step)
    for name in step.waiting or ():
        if name in before and name not in gone and name not in parked:
            return f"{name} was running and waits, but is not counted as preempted"
    strangers = sorted(gone - before.union(_parked(history, history.last)))
    if strangers:
        return f"{', '.join(strangers)} counted as preempted, but was not running"
    return None


def counter_wrong(history: VllmRun, step: Step) -> str | None:
    """A request's computed tokens are its hit plus all scheduled tokens, minus wrong drafts
    (V1CP-R05)."""
    gone = set(step.preempted or ())
    due = in_flight.completing_decision(history, step)
    for name, computed in (step.computed or {}).items():
        request = history.live.get(name)
        if request is None or name in gone or name in (step.parked or ()):
            continue
        hit = 0 if request.started or name not in step.scheduled else history.hit_now(step, request)
        if hit is None:
            continue
        most = expected = request.computed + hit + step.scheduled.get(name, 0)
        coming = due.get(name)
        drafts = 0 if coming is None else coming.drafts
        if step.emitted is None and (expected > request.num_tokens or drafts):
            continue  # the number of right drafts is not shown
        if emitted := (step.emitted or {}).get(name):
            if (
                speculation.drafts(history.config)
                and request.tokens_in_flight
                and coming is not None
            ):
                expected -= drafts - (emitted - 1)
            else:
                expected = min(expected, request.num_tokens + emitted - 1)
        if computed != expected:
            back = synchronous.may_fall_back(history, step)
            if name in back and computed >= back[name]:
                continue  # judged by V1-R92
            wrong = most - expected if speculation.drafts(history.config) else 0
            less = f" minus {wrong} rejected" if wrong else ""
            return (
                f"{name} has {computed} computed tokens; {request.computed} before, {hit} "
                f"cached and {step.scheduled.get(name, 0)} scheduled{less} make {expected}"
            )
    return None


def someone_runs(history: VllmRun, step: Step) -> bool:
    return any(name in (step.computed or {}) for name in step.scheduled)


PREDICATES = {
    "V1CP-R13": Predicate(
        victim_not_the_tail,
        tail_preempted,
        reads=(PHASES, "preempted", "running", "scheduled"),
    ),
    "V1CP-R14": Predicate(
        victim_not_least_important,
        preempts_by_priority,
        reads=(PHASES, "preempted", "running", "scheduled"),
    ),
    "V1-R05": Predicate(needless_preemption, blocks_run_out),
    "V1-I5": Predicate(victim_keeps_something, someone_is_preempted),
    "V1CP-R17": Predicate(newcomer_before_preempted, preempted_and_new_wait),
    "V1CP-R03": Predicate(
        stops_running,
        prompt_goes_on,
        reads=("finished", "parked", PHASES, "preempted", "running", "scheduled"),
    ),
    "V1CP-R29": Predicate(
        preemption_not_counted,
        someone_is_preempted,
        reads=(PHASES, "parked", "preempted", "running", "waiting"),
    ),
    "V1CP-R05": Predicate(counter_wrong, someone_runs),
}
