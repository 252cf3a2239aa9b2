"""Who goes first, and who is left out although there is room.

Source: continuous-batching page, "What the scheduler picks each step", "Chunked prefill",
"Prefill priority" and "Gotchas".
"""

from ...model.observation import Step
from ..ledger import Account, Ledger
from ..predicate import Predicate
from ..vllm.decision import admitted, blocks_for, kept, names, nobody_left
from .decision import (
    PAGE,
    budget_left,
    must_not_be_cut,
    promised,
    queue,
    seat_left,
    waited,
    whole,
)


def not_by_arrival(ledger: Ledger, step: Step) -> str | None:
    """Without priorities the batch is filled by arrival (LSS-R08)."""
    return None if ledger.config["prioritize_prefill"] else _out_of_order(ledger, step)


def both_phases(ledger: Ledger, step: Step) -> bool:
    """A request that prefills and a later one that decodes are unfinished, or the other way
    round."""
    phases = {one.emitted > 0 for one in ledger.live.values()}
    return len(phases) == 2 and not ledger.config["prioritize_prefill"]


def prefill_not_first(ledger: Ledger, step: Step) -> str | None:
    """With prioritize_prefill prefills come first, each group by arrival (LSS-R18)."""
    return _out_of_order(ledger, step) if ledger.config["prioritize_prefill"] else None


def prefill_overtakes(ledger: Ledger, step: Step) -> bool:
    """Prefills are prioritised, and one that came after a decode is in the batch with it."""
    decodes = [one.arrival for one in ledger.decode_members(step)]
    prefills = [one.arrival for one in ledger.prefill_members(step)]
    overtakes = bool(decodes) and bool(prefills) and min(decodes) < max(prefills)
    return overtakes and ledger.config["prioritize_prefill"]


def _out_of_order(ledger: Ledger, step: Step) -> str | None:
    """The batch is not in the order of the queue, or passes over one who has started."""
    there = queue(ledger)
    expected = [one.id for one in there if one.id in step.scheduled]
    order = [name for name in step.scheduled if name in ledger.live]
    if order != expected:
        return f"scheduled in the order {', '.join(order)}; expected {', '.join(expected)}"
    last = max((place for place, one in enumerate(there) if one.id in step.scheduled), default=0)
    for one in there[:last]:
        if one.started and one.id not in step.scheduled and not must_not_be_cut(ledger, step, one):
            return f"{one.id} has started and gets nothing, {there[last].id} behind it does"
    return None


def decode_left_out(ledger: Ledger, step: Step) -> str | None:
    """Beside a chunk whoever decodes is in the batch while budget and a seat are left (LSS-R17)."""
    if budget_left(ledger, step) <= 0 or not ledger.prefill_members(step):
        return None
    if ledger.revision == PAGE and not seat_left(ledger, step):
        return None
    missing = [one for one in _decoding(ledger, step) if one.id not in step.scheduled]
    if not missing:
        return None
    return f"{names(missing)} decodes and is left out beside a chunk, with budget left"


def decodes_beside(ledger: Ledger, step: Step) -> bool:
    """A request decodes in a step in which another one prefills."""
    return bool(_decoding(ledger, step)) and bool(ledger.prefill_members(step))


def _decoding(ledger: Ledger, step: Step) -> list[Account]:
    return [one for one in kept(ledger, step) if one.emitted and one.prefilled]


def waits_for_a_seat(ledger: Ledger, step: Step) -> str | None:
    """With max_num_seqs 0 nobody waits for a seat (LSS-R05)."""
    if ledger.config["max_num_seqs"]:
        return None
    return _told(left_out(ledger, step), "max_num_seqs is 0, no cap")


def no_cap(ledger: Ledger, step: Step) -> bool:
    """There is no cap, and three requests run."""
    return not ledger.config["max_num_seqs"] and len(step.running or ()) > 2


def kept_out(ledger: Ledger, step: Step) -> str | None:
    """A request that gets nothing does not keep later ones out (LSS-R09)."""
    there = queue(ledger)
    passed = [place for place, one in enumerate(there) if one.id not in step.scheduled]
    behind = [one for one in left_out(ledger, step) if there.index(one) > min(passed)]
    return _told(behind, f"{there[min(passed)].id} gets nothing") if behind else None


def passed_over(ledger: Ledger, step: Step) -> bool:
    """A request gets nothing, and a later one is in the batch."""
    there = [one.id in step.scheduled for one in queue(ledger)]
    return False in there and True in there[there.index(False) :]


def needless_wait(ledger: Ledger, step: Step) -> str | None:
    """Nobody is left out for whom budget, a seat and blocks are left (LSS-P03)."""
    return _told(left_out(ledger, step), "a seat is left")


def someone_joins(ledger: Ledger, step: Step) -> bool:
    """A request is admitted while another one runs."""
    return bool(admitted(ledger, step)) and bool(kept(ledger, step))


def _told(who: list[Account], why: str) -> str | None:
    return f"{names(who)} gets nothing: {why}, with budget and blocks" if who else None


def left_out(ledger: Ledger, step: Step) -> list[Account]:
    """Those whom nothing can have kept out of the batch. What may be cached is not counted on."""
    if budget_left(ledger, step) <= 0 or step.preempted:
        return []
    if ledger.revision == PAGE:
        if not seat_left(ledger, step):
            return []
        started = [
            one
            for one in queue(ledger)
            if one.started
            and one.id not in step.scheduled
            and not must_not_be_cut(ledger, step, one)
        ]
        return started + _could_start(ledger, step)
    running = [one for one in kept(ledger, step) if one.id not in step.scheduled]
    first = waited(ledger, step)[:1] if seat_left(ledger, step) else []
    return running + [one for one in first if _may_be_admitted(ledger, step, one)]


def _could_start(ledger: Ledger, step: Step) -> list[Account]:
    """By the page: those with room until their last token, past whom nobody waits for blocks."""
    could = []
    for one in waited(ledger, step):
        if must_not_be_cut(ledger, step, one):
            continue
        if ledger.config["num_blocks"] is not None:
            if step.free_blocks is None or not nobody_left(ledger, step):
                break
            if whole(ledger, one) > step.free_blocks - promised(ledger, step):
                break
        could.append(one)
    return could


def _may_be_admitted(ledger: Ledger, step: Step, one: Account) -> bool:
    """At HEAD: what the first in line knows fits into budget and pool."""
    limit = ledger.config["long_prefill_token_threshold"] or one.num_tokens
    uncut = min(one.num_tokens, limit) <= budget_left(ledger, step)
    if not ledger.config["enable_chunked_prefill"] and not uncut:
        return False
    if ledger.config["num_blocks"] is None:
        return True
    if step.free_blocks is None or not nobody_left(ledger, step):
        return False
    return blocks_for(ledger, one.num_tokens) <= step.free_blocks


PREDICATES = {
    "LSS-R18": Predicate(prefill_not_first, prefill_overtakes),
    "LSS-R08": Predicate(not_by_arrival, both_phases),
    "LSS-R17": Predicate(decode_left_out, decodes_beside),
    "LSS-R05": Predicate(waits_for_a_seat, no_cap),
    "LSS-R09": Predicate(kept_out, passed_over),
    "LSS-P03": Predicate(needless_wait, someone_joins),
}
