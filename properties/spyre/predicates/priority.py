"""The order of execution: one prefill at a time, first come first served, interleaved, never idle.

Source: Spyre scheduling page, "Priority rules" and "First-chunk constraints".
"""

from ....model.observation import Step
from ...history.request_history import RequestHistory
from ...history.run_history import RunHistory
from ...rules.predicate import PHASES, Predicate
from ..history import REVISIONS_THAT_PAUSE


def two_prefills(history: RunHistory, step: Step) -> str | None:
    """Check that at most one request is between its first and its last chunk (SPY-R30)."""
    # A request that is partly computed after the step was so before, or is prefilled in this step.
    if len(history.ongoing()) + len(history.prefill_members(step)) > 1:
        partial = [
            request.id
            for request in history.unstarted() + history.ongoing()
            if 0 < tokens_after(history, step, request) < request.prompt
            and request.id not in history.aborts_inside
        ]
        if len(partial) > 1:
            return f"{', '.join(partial)} are all between their first and last chunk"
    if step.prefilling and len(step.prefilling) > 1:
        return f"prefilling lists {', '.join(step.prefilling)}"
    return None


def tokens_after(history: RunHistory, step: Step, request: RequestHistory) -> int:
    """Return how many tokens of a request are computed or cached after the step."""
    if request.id not in step.scheduled:
        return request.computed
    return request.computed + (history.hit_now(step, request) or 0) + step.scheduled[request.id]


def prefill_slot_wanted(history: RunHistory, step: Step) -> bool:
    return bool(history.ongoing()) and bool(history.unstarted())


def shared_prefill_step(history: RunHistory, step: Step) -> str | None:
    """Check that a prefill step has one member, and that no step both prefills and decodes
    (SPY-R13)."""
    prefills = history.prefill_members(step)
    if prefills and len(step.scheduled) > 1:
        return f"the prefill step of {prefills[0].id} schedules {len(step.scheduled)} requests"
    if step.scheduled:
        kind = "prefill" if prefills else "decode"
        if step.kind != kind:
            return f"the step is reported as {step.kind}, but its members make it a {kind} step"
    return None


def prefill_has_company(history: RunHistory, step: Step) -> bool:
    return bool(history.prefill_members(step)) and len(history.live) > 1


def ongoing_overtaken(history: RunHistory, step: Step) -> str | None:
    """Check that, while a prefill is ongoing, no other request gets prefill tokens (SPY-R31)."""
    ongoing = history.ongoing()
    if not ongoing:
        return None
    names = [request.id for request in ongoing]
    others = [request.id for request in history.prefill_members(step) if request.id not in names]
    if others:
        return f"{others[0]} prefills while {names[0]} is between its chunks"
    return None


def ongoing_and_waiting(history: RunHistory, step: Step) -> bool:
    return prefill_slot_wanted(history, step) and bool(history.prefill_members(step))


def not_interleaved(history: RunHistory, step: Step) -> str | None:
    """Check that no two prefill steps follow each other while a request decodes (SPY-R32)."""
    if not history.config["interleave"] or not history.last_was_prefill:
        return None
    prefills, decoding = history.prefill_members(step), history.decoding()
    if prefills and decoding:
        before = "" if history.last is None else f" of {', '.join(history.last.scheduled)}"
        return (
            f"{prefills[0].id} prefills right after a prefill step{before}, while "
            f"{decoding[0].id} decodes"
        )
    return None


def interleaving_due(history: RunHistory, step: Step) -> bool:
    return (
        bool(history.config["interleave"])
        and history.last_was_prefill
        and bool(history.decoding())
        and bool(history.ongoing() or history.unstarted())
    )


def prefill_interrupted(history: RunHistory, step: Step) -> str | None:
    """Check that, without interleaving or pauses, an ongoing prefill continues at once
    (SPY-R34)."""
    ongoing = history.ongoing()
    if history.config["interleave"] or not ongoing or history.paused:
        return None
    if history.prefill_members(step):
        return None
    request = ongoing[0]
    return (
        f"{request.id} has {request.computed} of {request.prompt} tokens computed, but no chunk "
        "of it runs"
    )


def ongoing_beside_a_batch(history: RunHistory, step: Step) -> bool:
    free = not history.config["interleave"] and not history.paused
    return free and bool(history.ongoing()) and bool(history.decoding())


def overtaken(history: RunHistory, step: Step) -> str | None:
    """Check that prefills start in order of arrival (SPY-R53).

    Some revisions can pause requests. If pausing is off in such a revision, a request may be
    overtaken while a constraint that concerns only this request holds it back.
    """
    if history.revision in REVISIONS_THAT_PAUSE and not history.config["pausing"]:
        return None
    starting = [request.id for request in history.prefill_members(step) if not request.started]
    # A faulty target may list as paused a request that has never run; then no request is unstarted.
    if not starting or not history.unstarted():
        return None
    first = history.unstarted()[0].id
    if starting[0] != first:
        return f"{starting[0]} starts its prefill before {first}, which arrived earlier"
    return None


def queue_order_matters(history: RunHistory, step: Step) -> bool:
    starting = any(not request.started for request in history.prefill_members(step))
    strict = history.revision not in REVISIONS_THAT_PAUSE or history.config["pausing"]
    return starting and strict and len(history.unstarted()) > 1


def over_capacity(history: RunHistory, step: Step) -> str | None:
    """Check that a request starts only while fewer than max_num_seqs are running (SPY-R36)."""
    starting = [request for request in history.prefill_members(step) if not request.started]
    if not starting:
        return None
    slots, running = history.config["max_num_seqs"], len(history.running())
    if running + len(starting) > slots:
        return f"{starting[0].id} starts while {running} of max_num_seqs {slots} are running"
    return None


def batch_full(history: RunHistory, step: Step) -> bool:
    running = len(history.running())
    return running >= history.config["max_num_seqs"] and bool(history.unstarted())


def idle_while_pending(history: RunHistory, step: Step) -> str | None:
    """Check that a step with an unfinished request schedules something (SPY-R35)."""
    if step.scheduled or not history.live:
        return None
    return f"nothing is scheduled, unfinished: {', '.join(list(history.live)[:5])}"


def prefill_held_back(history: RunHistory, step: Step) -> bool:
    return bool(history.ongoing() or history.unstarted()) and not history.prefill_members(step)


PREDICATES = {
    "SPY-R30": Predicate(
        two_prefills,
        prefill_slot_wanted,
        reads=("finished", PHASES, "prefilling", "prefix_hit", "scheduled"),
    ),
    "SPY-R13": Predicate(
        shared_prefill_step, prefill_has_company, reads=("kind", PHASES, "scheduled")
    ),
    "SPY-R31": Predicate(ongoing_overtaken, ongoing_and_waiting, "prefill", reads=()),
    "SPY-R32": Predicate(not_interleaved, interleaving_due, reads=(PHASES, "scheduled")),
    "SPY-R34": Predicate(prefill_interrupted, ongoing_beside_a_batch, reads=(PHASES, "scheduled")),
    "SPY-R53": Predicate(overtaken, queue_order_matters, "prefill", reads=()),
    "SPY-R36": Predicate(over_capacity, batch_full, reads=(PHASES, "scheduled")),
    "SPY-R35": Predicate(idle_while_pending, prefill_held_back, reads=(PHASES, "scheduled")),
}
