"""Decode pausing: which requests pause, how long, and that none starts while one is paused.

Source: release 2.5.2 (rules SPY-R51 and SPY-R52); the scheduling page has no pausing.
"""

from math import ceil

from ....model.observation import Step
from ...rules.predicate import PHASES, Predicate
from ..history import SpyreRequestHistory, SpyreRun


def prefill_while_paused(history: SpyreRun, step: Step) -> str | None:
    """No request starts or continues to prefill while a request is paused (SPY-R52)."""
    prefills = history.prefill_members(step)
    if not prefills:
        return None
    held_back = waiting_to_decode(history)
    if held_back:
        return f"{prefills[0].id} prefills while {held_back[0].id} is paused"
    return None


def prefill_wanted_while_paused(history: SpyreRun, step: Step) -> bool:
    return bool(waiting_to_decode(history)) and bool(history.unstarted() or history.ongoing())


def wrong_pause(history: SpyreRun, step: Step) -> str | None:
    """In a step without a prefill, a request decodes if and only if the fairness order admits it
    (SPY-R51)."""
    all_requests = waiting_to_decode(history) + history.decoding()
    if not all_requests or history.prefill_members(step):
        return None
    if volume(history, all_requests) > history.config["max_batch_tkv"]:
        kept = {request.id for request in admitted(history)}
    else:
        kept = {request.id for request in all_requests}
    decoded = {request.id for request in history.decode_members(step)}
    if kept == decoded:
        return None
    missing, surplus = sorted(kept - decoded), sorted(decoded - kept)
    parts = [f"{', '.join(missing)} should decode" if missing else ""]
    parts.append(f"{', '.join(surplus)} should be paused" if surplus else "")
    return " and ".join(sentence for sentence in parts if sentence)


def admitted(history: SpyreRun) -> list[SpyreRequestHistory]:
    """Return the requests that may decode. They are tried in order: longest paused first, then
    fewest (or most) tokens generated. A request stays if it still fits.
    """
    sign = -1 if history.config["long_output_priority"] else 1
    order = sorted(
        [*waiting_to_decode(history), *in_running_order(history)],
        key=lambda request: (-request.paused_steps, sign * request.emitted),
    )
    kept: list[SpyreRequestHistory] = []
    for request in order:
        if volume(history, [*kept, request]) <= history.config["max_batch_tkv"]:
            kept.append(request)
    return kept


def volume(history: SpyreRun, batch: list[SpyreRequestHistory]) -> int:
    """Return requests x tkv of the next decode step of this batch."""
    block = int(history.config["block_size"])
    lengths = [request.computed + 1 for request in batch]
    width = ceil(max(lengths) / block)
    tkvs = [(width - ceil(length / block)) * block + length for length in lengths]
    return len(batch) * max(tkvs)


def someone_sits_out(history: SpyreRun, step: Step) -> bool:
    all_requests = waiting_to_decode(history) + history.decoding()
    return bool(all_requests) and volume(history, all_requests) > history.config["max_batch_tkv"]


def starved(history: SpyreRun, step: Step) -> str | None:
    """A paused request decodes again within max_num_seqs steps (SPY-P01).

    The request that has been paused longest is considered first, so every other request goes before
    it at most once.
    """
    slots = history.config["max_num_seqs"]
    for request in waiting_to_decode(history):
        if request.paused_steps >= slots and request.id not in step.scheduled:
            return (
                f"{request.id} is paused for {request.paused_steps + 1} steps, but max_num_seqs is "
                f"{slots}"
            )
    return None


def stays_paused(history: SpyreRun, step: Step) -> bool:
    return any(request.id not in step.scheduled for request in waiting_to_decode(history))


def waiting_to_decode(history: SpyreRun) -> list[SpyreRequestHistory]:
    if history.last is None or not history.last.paused:
        return []
    return [history.live[name] for name in history.last.paused if name in history.live]


def in_running_order(history: SpyreRun) -> list[SpyreRequestHistory]:
    order = {name: place for place, name in enumerate(_running(history))}
    return sorted(history.decoding(), key=lambda request: order.get(request.id, len(order)))


def _running(history: SpyreRun) -> tuple[str, ...]:
    return (history.last.running or ()) if history.last is not None else ()


PREDICATES = {
    "SPY-R52": Predicate(
        prefill_while_paused, prefill_wanted_while_paused, reads=("paused", PHASES, "scheduled")
    ),
    "SPY-R51": Predicate(wrong_pause, someone_sits_out),
    "SPY-P01": Predicate(starved, stays_paused),
}
