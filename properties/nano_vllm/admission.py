"""Who is admitted: the two gates, the order, and the priority of prefills.

Source: deck, chapters 4 "Prefill vs Decode" and 6 "Reading schedule()".
"""

from ...model.observation import Step
from ..ledger import Account, Ledger
from ..predicate import Predicate
from .decision import (
    WHOLE_PROMPTS,
    behind,
    blocks_for,
    completes,
    free_before,
    kept,
    names,
    prefilled,
    ran_before,
    waited_before,
)


def phases_mixed(ledger: Ledger, step: Step) -> str | None:
    """A step prefills or decodes, never both (NAN-R11)."""
    new = prefilled(ledger, step)
    old = [one for one in ran_before(ledger) if one.id in step.scheduled]
    if new and old:
        return f"{names(new)} prefilled and {names(old)} decoded in one step"
    if step.kind == "mixed":
        return "the step calls itself mixed"
    return None


def both_phases_wanted(ledger: Ledger, step: Step) -> bool:
    """Somebody waits while others run."""
    return bool(ran_before(ledger) and waited_before(ledger))


def budget_exceeded(ledger: Ledger, step: Step) -> str | None:
    """The tokens of a prefill step are within the budget (NAN-R08)."""
    tokens = sum(step.scheduled[one.id] for one in prefilled(ledger, step))
    budget = ledger.config["max_num_batched_tokens"]
    if tokens <= budget:
        return None
    return f"{tokens} tokens prefilled > max_num_batched_tokens {budget}"


def budget_binds(ledger: Ledger, step: Step) -> bool:
    """Those who wait have more tokens than the budget."""
    wanted = sum(one.num_tokens for one in waited_before(ledger))
    return bool(wanted > ledger.config["max_num_batched_tokens"])


def too_many_run(ledger: Ledger, step: Step) -> str | None:
    """At most max_num_seqs sequences run (NAN-R40)."""
    seats = ledger.config["max_num_seqs"]
    done = [one for one in prefilled(ledger, step) if completes(ledger, step, one)]
    run = max(len(kept(ledger, step)) + len(done), len(step.running or ()))
    if run <= seats:
        return None
    return f"{run} sequences run, max_num_seqs is {seats}"


def every_seat_taken(ledger: Ledger, step: Step) -> bool:
    """A request waits while max_num_seqs run."""
    run = len(kept(ledger, step)) + len(prefilled(ledger, step))
    return run >= ledger.config["max_num_seqs"] and len(ledger.live) > run


def cut_wrongly(ledger: Ledger, step: Step) -> str | None:
    """A prefill computes all that is left of a sequence; where chunks are known, the first one of
    a step may be cut to the budget (NAN-R12)."""
    budget = ledger.config["max_num_batched_tokens"]
    for place, one in enumerate(prefilled(ledger, step)):
        missing, tokens = behind(ledger, step, one), step.scheduled[one.id]
        if missing is None or tokens == missing:
            continue
        if ledger.revision == WHOLE_PROMPTS:
            return f"{one.id} computes {tokens} tokens in a step, {missing} are left"
        if place or tokens != budget or tokens > missing:
            return (
                f"{one.id}, number {place + 1} of the step, computes {tokens} tokens, {missing} "
                f"are left and max_num_batched_tokens is {budget}"
            )
    return None


def long_prompt(ledger: Ledger, step: Step) -> bool:
    """A prefill is longer than a block."""
    block = ledger.config["block_size"]
    return any(one.num_tokens > block for one in prefilled(ledger, step))


def overtaken(ledger: Ledger, step: Step) -> str | None:
    """Nobody is admitted past one who waits in front of it (NAN-R07)."""
    order = waited_before(ledger)
    new = prefilled(ledger, step)
    if new == order[: len(new)]:
        return None
    first = next(one for one in order if one not in new or new.index(one) != order.index(one))
    return f"{names(new)} admitted; in the queue {names(order)} {first.id} is in front"


def the_head_waits(ledger: Ledger, step: Step) -> bool:
    """The first in line is not admitted, and somebody is behind it."""
    return len(waited_before(ledger)) - len(prefilled(ledger, step)) > 1


def needless_wait(ledger: Ledger, step: Step) -> str | None:
    """Who is next in line fails a gate (NAN-R10). What it may find in the cache is not counted on,
    so nobody is accused who may have failed."""
    new, order = prefilled(ledger, step), waited_before(ledger)
    if ledger.aborts_inside or len(new) >= len(order):
        return None
    one, free = order[len(new)], free_before(ledger)
    if not _passes(ledger, step, one, new, free):
        return None
    return (
        f"{one.id} waits although a seat and the budget are left for its {one.num_tokens} tokens, "
        f"and {blocks_for(ledger, one.num_tokens)} blocks are free"
    )


def _passes(ledger: Ledger, step: Step, one: Account, new: list[Account], free: int | None) -> bool:
    """Nothing can have kept it from being admitted behind those who are `new`."""
    if free is None or one.computed or any(behind(ledger, step, other) is None for other in new):
        return False
    left = ledger.config["max_num_batched_tokens"] - sum(step.scheduled[n.id] for n in new)
    taken = sum(blocks_for(ledger, other.num_tokens) for other in new if not other.computed)
    if ledger.revision == WHOLE_PROMPTS:
        seats = ledger.config["max_num_seqs"] - len(ran_before(ledger)) - len(new)
        fits = one.num_tokens <= left
    else:
        seats = ledger.config["max_num_seqs"] - len(new)
        fits = one.num_tokens <= left or not new
    return seats > 0 and fits and blocks_for(ledger, one.num_tokens) <= free - taken


def someone_runs_and_waits(ledger: Ledger, step: Step) -> bool:
    """Somebody is admitted, or waits, while another sequence runs."""
    return bool(waited_before(ledger)) and bool(ran_before(ledger))


def memory_gate_passed_by(ledger: Ledger, step: Step) -> str | None:
    """As many blocks are free as all tokens of a newcomer need, shared ones included
    (NAN-R09)."""
    free = free_before(ledger)
    if free is None or ledger.aborts_inside or step.blocks is None:
        return None
    held = _held_before(ledger)
    for one in prefilled(ledger, step):
        needed = blocks_for(ledger, one.num_tokens)
        if needed > free:
            return f"{one.id} admitted: its {one.num_tokens} tokens need {needed} blocks of {free}"
        table = set(step.blocks.get(one.id, ()))
        if not table:
            return None  # it has finished, so nobody knows what it shared
        free -= len(table - held)
        held |= table
    return None


def pool_too_small_for_now(ledger: Ledger, step: Step) -> bool:
    """A sequence waits that needs more blocks than are free."""
    waiting = [one for one in waited_before(ledger) if one.id not in step.scheduled]
    free = free_before(ledger)
    return bool(waiting) and free is not None and blocks_for(ledger, waiting[0].num_tokens) > free


def _held_before(ledger: Ledger) -> set[int]:
    tables = (ledger.last.blocks or {}) if ledger.last is not None else {}
    return {block for name, table in tables.items() if name in ledger.live for block in table}


PREDICATES = {
    "NAN-R11": Predicate(phases_mixed, both_phases_wanted),
    "NAN-R08": Predicate(budget_exceeded, budget_binds),
    "NAN-R40": Predicate(too_many_run, every_seat_taken),
    "NAN-R12": Predicate(cut_wrongly, long_prompt),
    "NAN-R07": Predicate(overtaken, the_head_waits),
    "NAN-R10": Predicate(needless_wait, someone_runs_and_waits),
    "NAN-R09": Predicate(memory_gate_passed_by, pool_too_small_for_now),
}
