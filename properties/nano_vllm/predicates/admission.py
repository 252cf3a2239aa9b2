"""Admission and queues: the two checks (budget and memory), the priority of prefills, and the
places of requests.

Source: the slide deck on nano-vLLM, chapters 3 "Sequences and Queues", 4 "Prefill vs Decode", 6
"Reading schedule()" and "The Decode Path", and 8 "Preemption".
"""

from ....model.observation import Step
from ...history.request_history import RequestHistory
from ...history.run_history import RunHistory
from ...rules.pool import blocks_for
from ...rules.predicate import Predicate
from .blocks import hit_at_least
from .decision import (
    WHOLE_PROMPTS,
    behind,
    completes,
    free_before,
    kept,
    least_free_before,
    names,
    preempted,
    prefilled,
    ran_before,
    waited_before,
)


def phases_mixed(history: RunHistory, step: Step) -> str | None:
    """Check that a step prefills or decodes, never both (NAN-R11).

    If only the last token of a preempted sequence has to be computed, either kind is right.
    """
    new = prefilled(history, step)
    old = [request for request in ran_before(history) if request.id in step.scheduled]
    if new and old:
        return f"{names(new)} prefilled and {names(old)} decoded in one step"
    if step.kind == "mixed" and not any(_may_decode(history, step, request) for request in new):
        return "the kind of the step is mixed"
    return None


def _may_decode(history: RunHistory, step: Step, request: RequestHistory) -> bool:
    """Return whether a sequence was preempted and may have only its last token left to compute."""
    is_resumed = 0 < request.emitted <= request.regenerated
    return is_resumed and behind(history, step, request) in (None, 1)


def both_phases_wanted(history: RunHistory, step: Step) -> bool:
    return bool(ran_before(history) and waited_before(history))


def budget_exceeded(history: RunHistory, step: Step) -> str | None:
    """Check that the tokens of a prefill step are within the budget (NAN-R08)."""
    tokens = sum(step.scheduled[request.id] for request in prefilled(history, step))
    budget = history.config["max_num_batched_tokens"]
    if tokens <= budget:
        return None
    return f"{tokens} tokens prefilled > max_num_batched_tokens {budget}"


def budget_binds(history: RunHistory, step: Step) -> bool:
    wanted = sum(request.num_tokens for request in waited_before(history))
    return bool(wanted > history.config["max_num_batched_tokens"])


def too_many_run(history: RunHistory, step: Step) -> str | None:
    """Check that at most max_num_seqs sequences run (NAN-R40)."""
    slots = history.config["max_num_seqs"]
    done = [request for request in prefilled(history, step) if completes(history, step, request)]
    run = max(len(kept(history, step)) + len(done), len(step.running or ()))
    if run <= slots:
        return None
    return f"{run} sequences run, but max_num_seqs is {slots}"


def every_slot_taken(history: RunHistory, step: Step) -> bool:
    run = len(kept(history, step)) + len(prefilled(history, step))
    return run >= history.config["max_num_seqs"] and len(history.live) > run


def cut_wrongly(history: RunHistory, step: Step) -> str | None:
    """Check that a prefill computes all remaining tokens of a sequence. From 0.2.0, the first
    sequence of a step may be cut (NAN-R12)."""
    budget = history.config["max_num_batched_tokens"]
    for place, request in enumerate(prefilled(history, step)):
        missing, tokens = behind(history, step, request), step.scheduled[request.id]
        if missing is None or tokens == missing:
            continue
        if history.revision == WHOLE_PROMPTS:
            return f"{request.id} computes {tokens} tokens in a step, but {missing} are left"
        if place or tokens != budget or tokens > missing:
            return (
                f"{request.id}, number {place + 1} of the step, computes {tokens} tokens, "
                f"{missing} are left and max_num_batched_tokens is {budget}"
            )
    return None


def long_prompt(history: RunHistory, step: Step) -> bool:
    block = history.config["block_size"]
    return any(request.num_tokens > block for request in prefilled(history, step))


def overtaken(history: RunHistory, step: Step) -> str | None:
    """Check that no request is admitted before one that waits in front of it (NAN-R07)."""
    order = waited_before(history)
    new = prefilled(history, step)
    if new == order[: len(new)]:
        return None
    first = next(
        request
        for request in order
        if request not in new or new.index(request) != order.index(request)
    )
    return f"{names(new)} admitted, but {first.id} is ahead in the queue {names(order)}"


def the_head_waits(history: RunHistory, step: Step) -> bool:
    return len(waited_before(history)) - len(prefilled(history, step)) > 1


def needless_wait(history: RunHistory, step: Step) -> str | None:
    """Check that the next request in line waits only if it fails a check (NAN-R10).

    To avoid false alarms, only cache hits that are shared with running sequences count.
    """
    new, order = prefilled(history, step), waited_before(history)
    if history.aborts_inside or len(new) >= len(order):
        return None
    request = order[len(new)]
    if not _would_be_admitted(history, step, request, new, request.num_tokens):
        return None
    return (
        f"{request.id} waits although a slot and the budget are left for its "
        f"{request.num_tokens} tokens, and {_blocks_needed(history, request)} blocks are free"
    )


def hit_costs_budget(history: RunHistory, step: Step) -> str | None:
    """Check that cached tokens cost no budget: the next request in line must not wait because of
    them (NAN-R38). Only tokens that it must find in the cache count as cached."""
    new, order = prefilled(history, step), waited_before(history)
    if history.aborts_inside or len(new) >= len(order):
        return None
    request = order[len(new)]
    hit = _must_find(history, step, request)
    tokens = request.num_tokens - hit
    if not hit or not _would_be_admitted(history, step, request, new, tokens):
        return None
    if _would_be_admitted(history, step, request, new, request.num_tokens):
        return None  # NAN-R10
    return (
        f"{request.id} waits; {hit} of its {request.num_tokens} tokens are cached, and the budget "
        f"left is enough for the other {tokens}"
    )


def fits_by_its_hit(history: RunHistory, step: Step) -> bool:
    """Return whether a waiting request fits into the remaining budget when its turn comes, but
    would not fit if its cached tokens counted."""
    budget = history.config["max_num_batched_tokens"]
    for request in waited_before(history):
        hit = _must_find(history, step, request)
        if not request.computed and request.num_tokens - hit <= budget < request.num_tokens:
            return True
        if request.id not in step.scheduled:
            return False
        budget -= step.scheduled[request.id]
    return False


def _must_find(history: RunHistory, step: Step, request: RequestHistory) -> int:
    """Return how many tokens an unstarted request must find in the cache if it starts in this
    step."""
    found = 0 if history.kept is None else history.kept.must_find(history, step, request)
    return max(found, hit_at_least(history, request))


def _would_be_admitted(
    history: RunHistory,
    step: Step,
    request: RequestHistory,
    new: list[RequestHistory],
    tokens: int,
) -> bool:
    """Return whether an unstarted request passes every check when its turn comes after the requests
    in `new`. It would compute `tokens` tokens."""
    free = least_free_before(history)
    if request.computed or any(behind(history, step, other) is None for other in new):
        return False
    budget = history.config["max_num_batched_tokens"] - sum(step.scheduled[n.id] for n in new)
    taken = sum(blocks_for(history, other.num_tokens) for other in new if not other.computed)
    if history.revision == WHOLE_PROMPTS:
        slots = history.config["max_num_seqs"] - len(ran_before(history)) - len(new)
        fits = tokens <= budget
    else:
        slots = history.config["max_num_seqs"] - len(new)
        fits = tokens <= budget or not new
    return slots > 0 and fits and _blocks_needed(history, request) <= free - taken


def _blocks_needed(history: RunHistory, request: RequestHistory) -> int:
    """Return an upper bound on the number of free blocks that a newcomer needs.

    In revisions that compute prompts in chunks, shared blocks need no free blocks. In all other
    revisions, the check counts all blocks (NAN-R09).
    """
    needed = blocks_for(history, request.num_tokens)
    if history.revision == WHOLE_PROMPTS:
        return needed
    return needed - hit_at_least(history, request) // int(history.config["block_size"])


def someone_runs_and_waits(history: RunHistory, step: Step) -> bool:
    return bool(waited_before(history)) and bool(ran_before(history))


def memory_gate_passed_by(history: RunHistory, step: Step) -> str | None:
    """Check that an admitted request has blocks for all its tokens, shared ones included
    (NAN-R09)."""
    free = free_before(history)
    if free is None or history.aborts_inside or step.blocks is None:
        return None
    held = _held_before(history)
    for request in prefilled(history, step):
        needed = blocks_for(history, request.num_tokens)
        if needed > free:
            return (
                f"{request.id} admitted: its {request.num_tokens} tokens need {needed} blocks "
                f"(free: {free})"
            )
        table = set(step.blocks.get(request.id, ()))
        if not table:
            return None  # it has finished, so it is unknown what it shared
        free -= len(table - held)
        held |= table
    return None


def pool_too_small_for_now(history: RunHistory, step: Step) -> bool:
    waiting = [request for request in waited_before(history) if request.id not in step.scheduled]
    free = free_before(history)
    return bool(waiting) and free is not None and blocks_for(history, waiting[0].num_tokens) > free


def _held_before(history: RunHistory) -> set[int]:
    tables = (history.last.blocks or {}) if history.last is not None else {}
    return {block for name, table in tables.items() if name in history.live for block in table}


def victim_not_in_front(history: RunHistory, step: Step) -> str | None:
    """Check that preempted sequences wait in front of all others, in the order in which they ran
    (NAN-R22)."""
    gone = [
        request.id
        for request in preempted(history, step)
        if request.id not in history.aborts_inside
    ]
    waiting = list(step.waiting or ())
    if waiting[: len(gone)] == gone:
        return None
    return f"{', '.join(gone)} preempted; the queue is {', '.join(waiting)}"


def preempts_while_others_wait(history: RunHistory, step: Step) -> bool:
    return bool(preempted(history, step)) and len(step.waiting or ()) > len(step.preempted or ())


def newcomer_not_at_the_back(history: RunHistory, step: Step) -> str | None:
    """Check that a waiting request keeps its place behind earlier ones (NAN-R06)."""
    expected = [request.id for request in waited_before(history)]
    seen = [name for name in step.waiting or () if name in set(expected)]
    expected = [name for name in expected if name in set(seen)]
    if seen == expected:
        return None
    return f"the queue is {', '.join(seen)}; they arrived as {', '.join(expected)}"


def someone_arrives(history: RunHistory, step: Step) -> bool:
    queued = (history.last.waiting or ()) if history.last is not None else ()
    return bool(queued) and len(waited_before(history)) > len(queued)


def running_out_of_order(history: RunHistory, step: Step) -> str | None:
    """Check that running requests keep their order, and newcomers join at the end (NAN-R15)."""
    new = [request for request in prefilled(history, step) if completes(history, step, request)]
    gone = {*(step.finished or {}), *history.aborts_inside}
    expected = [request.id for request in kept(history, step) + new if request.id not in gone]
    if list(step.running or ()) != expected:
        running = ", ".join(step.running or ()) or "none"
        return f"running: {running}; expected: {', '.join(expected) or 'none'}"
    order = [request.id for request in ran_before(history) if request.id in step.scheduled]
    decoded = [name for name in step.scheduled if name in set(order)]
    if decoded != order:
        return f"scheduled in the order {', '.join(decoded)}; expected {', '.join(order)}"
    return None


def several_run(history: RunHistory, step: Step) -> bool:
    return len(step.running or ()) > 1


def waiting_holds_blocks(history: RunHistory, step: Step) -> str | None:
    """Check that only the first request in line holds blocks, while its prompt is partly computed
    (NAN-R03)."""
    for place, name in enumerate(step.waiting or ()):
        held = (step.blocks or {}).get(name)
        in_part = place == 0 and name in (step.prefilling or ())
        if held and (history.revision == WHOLE_PROMPTS or not in_part):
            return f"{name} waits, number {place + 1} in line, and holds {len(held)} blocks"
    return None


def someone_waits_and_blocks_are_held(history: RunHistory, step: Step) -> bool:
    return bool(step.waiting) and bool(step.blocks)


PREDICATES = {
    "NAN-R11": Predicate(
        phases_mixed, both_phases_wanted, reads=("kind", "running", "scheduled", "waiting")
    ),
    "NAN-R08": Predicate(budget_exceeded, budget_binds),
    "NAN-R38": Predicate(hit_costs_budget, fits_by_its_hit, reads_kept=True),
    "NAN-R40": Predicate(too_many_run, every_slot_taken),
    "NAN-R12": Predicate(cut_wrongly, long_prompt),
    "NAN-R07": Predicate(overtaken, the_head_waits),
    "NAN-R10": Predicate(needless_wait, someone_runs_and_waits),
    "NAN-R09": Predicate(memory_gate_passed_by, pool_too_small_for_now),
    "NAN-R22": Predicate(
        victim_not_in_front, preempts_while_others_wait, reads=("preempted", "running", "waiting")
    ),
    "NAN-R06": Predicate(newcomer_not_at_the_back, someone_arrives, reads=("running", "waiting")),
    "NAN-R15": Predicate(running_out_of_order, several_run),
    "NAN-R03": Predicate(
        waiting_holds_blocks,
        someone_waits_and_blocks_are_held,
        reads=("blocks", "prefilling", "waiting"),
    ),
}
