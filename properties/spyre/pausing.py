"""Decode pausing: who sits out, for how long, and who must not start meanwhile.

Source: release 2.5.2 (rules SPY-R51 and SPY-R52); the scheduling page does not know it.
"""

from math import ceil

from ...model.observation import Step
from ..ledger import Account, Ledger
from ..predicate import Predicate


def prefill_while_paused(ledger: Ledger, step: Step) -> str | None:
    """Nobody starts or goes on prefilling while a request is paused (SPY-R52)."""
    prefills = ledger.prefill_members(step)
    if not prefills:
        return None
    held_back = waiting_to_decode(ledger)
    if held_back:
        return f"{prefills[0].id} prefills while {held_back[0].id} is paused"
    return None


def prefill_wanted_while_paused(ledger: Ledger, step: Step) -> bool:
    """A request is paused and another wants to prefill."""
    return bool(waiting_to_decode(ledger)) and bool(ledger.unstarted() or ledger.ongoing())


def wrong_pause(ledger: Ledger, step: Step) -> str | None:
    """In a step without prefill exactly those decode whom the fairness order admits (SPY-R51)."""
    everyone = waiting_to_decode(ledger) + ledger.decoding()
    if not everyone or ledger.prefill_members(step):
        return None
    if volume(ledger, everyone) > ledger.config["max_batch_tkv"]:
        kept = {one.id for one in admitted(ledger)}
    else:
        kept = {one.id for one in everyone}
    decoded = {one.id for one in ledger.decode_members(step)}
    if kept == decoded:
        return None
    missing, surplus = sorted(kept - decoded), sorted(decoded - kept)
    said = [f"{', '.join(missing)} should decode" if missing else ""]
    said.append(f"{', '.join(surplus)} should be paused" if surplus else "")
    return " and ".join(sentence for sentence in said if sentence)


def admitted(ledger: Ledger) -> list[Account]:
    """Longest paused first, then fewest tokens generated (or most): whoever still fits stays."""
    sign = -1 if ledger.config["long_output_priority"] else 1
    order = sorted(
        [*waiting_to_decode(ledger), *in_running_order(ledger)],
        key=lambda one: (-one.paused_steps, sign * one.emitted),
    )
    kept: list[Account] = []
    for one in order:
        if volume(ledger, [*kept, one]) <= ledger.config["max_batch_tkv"]:
            kept.append(one)
    return kept


def volume(ledger: Ledger, batch: list[Account]) -> int:
    """Requests x tkv of the next decode step of this batch."""
    block = int(ledger.config["block_size"])
    lengths = [one.computed + 1 for one in batch]
    width = ceil(max(lengths) / block)
    tkvs = [(width - ceil(length / block)) * block + length for length in lengths]
    return len(batch) * max(tkvs)


def someone_sits_out(ledger: Ledger, step: Step) -> bool:
    """Everyone who could decode would exceed the limit together."""
    everyone = waiting_to_decode(ledger) + ledger.decoding()
    return bool(everyone) and volume(ledger, everyone) > ledger.config["max_batch_tkv"]


def starved(ledger: Ledger, step: Step) -> str | None:
    """A paused request decodes again within as many steps as max_num_seqs (SPY-P01).

    Who is paused longest is asked first, so at most every other member comes before it.
    """
    seats = ledger.config["max_num_seqs"]
    for one in waiting_to_decode(ledger):
        if one.paused_steps >= seats and one.id not in step.scheduled:
            return f"{one.id} is paused for {one.paused_steps + 1} steps, max_num_seqs is {seats}"
    return None


def stays_paused(ledger: Ledger, step: Step) -> bool:
    """A request that was paused before this step does not decode in it either."""
    return any(one.id not in step.scheduled for one in waiting_to_decode(ledger))


def waiting_to_decode(ledger: Ledger) -> list[Account]:
    """Paused requests, in the order in which the target lists them."""
    if ledger.last is None or not ledger.last.paused:
        return []
    return [ledger.live[name] for name in ledger.last.paused if name in ledger.live]


def in_running_order(ledger: Ledger) -> list[Account]:
    """Requests that decode, in the order in which the target lists them."""
    order = {name: place for place, name in enumerate(_running(ledger))}
    return sorted(ledger.decoding(), key=lambda one: order.get(one.id, len(order)))


def _running(ledger: Ledger) -> tuple[str, ...]:
    return (ledger.last.running or ()) if ledger.last is not None else ()


PREDICATES = {
    "SPY-R52": Predicate(prefill_while_paused, prefill_wanted_while_paused),
    "SPY-R51": Predicate(wrong_pause, someone_sits_out),
    "SPY-P01": Predicate(starved, stays_paused),
}
