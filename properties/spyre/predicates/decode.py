"""The shape of a decode step: each request gets one token, their blocks form a rectangle, and the
volume is within the limit. Also, which requests pause instead.

Source: Spyre scheduling page, "Key concepts" and "Decode padding"; release 2.5.2 for pauses
(SPY-R51, SPY-R52), which the page does not have.
"""

from math import ceil

from ....model.observation import Step
from ...history.per_step_cache import once
from ...history.run_history import RunHistory
from ...rules.predicate import PHASES, Predicate
from ..history import REVISIONS_THAT_PAUSE, SpyreRequestHistory, SpyreRun
from .volume import max_tkv, volume


def not_everyone_decodes(history: RunHistory, step: Step) -> str | None:
    """Check that each decoding request gets one token (SPY-R22)."""
    members = history.decode_members(step)
    if not members or history.prefill_members(step):
        return None
    tokens = step.emitted or {}
    for request in members:
        expected = 0 if request.id in history.aborts_inside else 1
        emitted = tokens.get(request.id, 0)
        if step.scheduled[request.id] != 1 or emitted != expected:
            return (
                f"{request.id} computes {step.scheduled[request.id]} and emits {emitted} tokens "
                f"in a decode step, expected 1 and {expected}"
            )
    left_out = [request.id for request in history.decoding() if request.id not in step.scheduled]
    if left_out and history.revision in REVISIONS_THAT_PAUSE:
        # A request that leaves inside the step may have been paused by it; no list shows this
        # afterwards.
        excused = {*(step.paused or ()), *history.aborts_inside}
        left_out = [name for name in left_out if name not in excused]
    if left_out:
        return f"{', '.join(left_out[:5])} decode but are left out of the decode step"
    return None


def several_decode(history: RunHistory, step: Step) -> bool:
    return len(history.decode_members(step)) > 1


def not_rectangular(history: RunHistory, step: Step) -> str | None:
    """Check that all decoded requests, including padding, occupy the same number of blocks
    (SPY-R09)."""
    members = history.decode_members(step)
    if len(members) < 2:
        return None
    block, pads = history.config["block_size"], step.left_pad_blocks or {}
    widths = {
        request.id: pads.get(request.id, 0)
        + ceil((request.computed + step.scheduled[request.id]) / block)
        for request in members
    }
    if len(set(widths.values())) > 1:
        return f"blocks with padding differ: {_numbers(widths)}"
    return None


@once
def lengths_differ(history: RunHistory, step: Step) -> bool:
    block = history.config["block_size"]
    return len({request.computed // block for request in history.decode_members(step)}) > 1


def padding_not_minimal(history: RunHistory, step: Step) -> str | None:
    """Check that the longest decoded request has no left padding (SPY-R24)."""
    shown = step.left_pad_blocks or {}
    pads = {request.id: shown.get(request.id, 0) for request in history.decode_members(step)}
    if pads and 0 not in pads.values():
        return f"every request is padded, {min(pads.values())} blocks too many: {_numbers(pads)}"
    return None


def padding_negative(history: RunHistory, step: Step) -> str | None:
    """Check that left padding is a number of blocks, never negative (SPY-R10)."""
    negative = {name: pad for name, pad in (step.left_pad_blocks or {}).items() if pad < 0}
    if negative:
        return f"negative left padding in blocks: {_numbers(negative)}"
    return None


def wrong_tkv(history: RunHistory, step: Step) -> str | None:
    """Check that max-tkv is the maximum of padding + tokens, including this step's token
    (SPY-R26)."""
    if step.kind != "decode":
        return None
    block, pads = history.config["block_size"], step.left_pad_blocks or {}
    tkvs = {
        request.id: pads.get(request.id, 0) * block + request.computed + step.scheduled[request.id]
        for request in history.decode_members(step)
    }
    if tkvs and step.tkv != max(tkvs.values()):
        return f"tkv is reported as {step.tkv}, but padding plus tokens give {_numbers(tkvs)}"
    return None


def volume_over_limit(history: RunHistory, step: Step) -> str | None:
    """Check that the number of decoded requests x max-tkv is at most max_batch_tkv (SPY-R07)."""
    limit, reached = history.config["max_batch_tkv"], volume(step)
    if reached <= limit:
        return None
    batch = len(step.scheduled)
    return f"{batch} requests x tkv {step.tkv} = {reached} > {limit} (by {reached - limit})"


def limit_binds(history: RunHistory, step: Step) -> bool:
    """Return whether the oldest max_num_seqs unfinished requests, decoded together, would exceed
    the limit."""
    block, slots = history.config["block_size"], history.config["max_num_seqs"]
    oldest = list(history.live.values())[:slots]
    lengths = [max(request.computed, request.prompt) + 1 for request in oldest]
    tkv = max_tkv(lengths, block)
    return bool(len(oldest) * tkv > history.config["max_batch_tkv"])


def wrong_blocks(history: RunHistory, step: Step) -> str | None:
    """Check that a request holds a block for every block_size tokens that it has computed
    (SPY-R02).

    In release 2.5.2, a request holds blocks in advance only for the tokens of a prefix hit.
    Elsewhere, it may get the blocks of its whole prompt at once, and the block of its next token.
    """
    block = history.config["block_size"]
    for name, held in (step.blocks or {}).items():
        request = history.live.get(name)
        if request is None:
            continue
        hit = 0 if request.started else history.hit_now(step, request) or 0
        tokens = request.computed + step.scheduled.get(name, 0) + hit
        if history.revision in REVISIONS_THAT_PAUSE:
            cached = request.prefix_hit if request.started else hit
            most = ceil(min(tokens + cached, max(request.prompt, tokens)) / block)
            ahead = len(held) > most
        else:
            ahead = len(held) > ceil((max(tokens, request.prompt) + 1) / block)
        if len(held) * block < tokens or ahead:
            return (
                f"{name} has computed {tokens} tokens and holds {len(held)} blocks of {block} "
                "tokens"
            )
    return None


def block_filled(history: RunHistory, step: Step) -> bool:
    block = history.config["block_size"]
    return any(request.computed % block == 0 for request in history.decode_members(step))


def _numbers(values: dict[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def prefill_while_paused(history: SpyreRun, step: Step) -> str | None:
    """Check that no request starts or continues to prefill while a request is paused (SPY-R52)."""
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
    """Unless a prefill runs, check that the decoding requests are exactly those admitted by the
    fairness order (SPY-R51)."""
    all_requests = waiting_to_decode(history) + history.decoding()
    if not all_requests or history.prefill_members(step):
        return None
    if next_volume(history, all_requests) > history.config["max_batch_tkv"]:
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
    """Return the requests that may decode. Requests are tried in order: longest paused first, then
    fewest (or most) tokens generated. A request may decode if it still fits."""
    sign = -1 if history.config["long_output_priority"] else 1
    order = sorted(
        [*waiting_to_decode(history), *in_running_order(history)],
        key=lambda request: (-request.paused_steps, sign * request.emitted),
    )
    kept: list[SpyreRequestHistory] = []
    for request in order:
        if next_volume(history, [*kept, request]) <= history.config["max_batch_tkv"]:
            kept.append(request)
    return kept


def next_volume(history: SpyreRun, batch: list[SpyreRequestHistory]) -> int:
    """Return requests x tkv of the next decode step of this batch."""
    block = int(history.config["block_size"])
    lengths = [request.computed + 1 for request in batch]
    width = ceil(max(lengths) / block)
    tkvs = [(width - ceil(length / block)) * block + length for length in lengths]
    return len(batch) * max(tkvs)


def someone_sits_out(history: SpyreRun, step: Step) -> bool:
    all_requests = waiting_to_decode(history) + history.decoding()
    return (
        bool(all_requests) and next_volume(history, all_requests) > history.config["max_batch_tkv"]
    )


def starved(history: SpyreRun, step: Step) -> str | None:
    """Check that a paused request decodes again within max_num_seqs steps (SPY-P01).

    The request that has been paused longest is considered first, so every other request goes before
    it at most once.
    """
    slots = history.config["max_num_seqs"]
    for request in waiting_to_decode(history):
        if request.paused_steps >= slots and request.id not in step.scheduled:
            return (
                f"{request.id} has been paused for {request.paused_steps + 1} steps, "
                f"but max_num_seqs is {slots}"
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
    "SPY-R02": Predicate(wrong_blocks, block_filled),
    "SPY-R22": Predicate(
        not_everyone_decodes, several_decode, "decode", reads=("emitted", "paused")
    ),
    "SPY-R09": Predicate(not_rectangular, lengths_differ, "decode"),
    "SPY-R24": Predicate(padding_not_minimal, lengths_differ, "decode"),
    "SPY-R10": Predicate(padding_negative, lengths_differ),
    "SPY-R26": Predicate(wrong_tkv, several_decode, "decode"),
    "SPY-R07": Predicate(volume_over_limit, limit_binds, "decode"),
    "SPY-R52": Predicate(
        prefill_while_paused, prefill_wanted_while_paused, reads=("paused", PHASES, "scheduled")
    ),
    "SPY-R51": Predicate(wrong_pause, someone_sits_out),
    "SPY-P01": Predicate(starved, stays_paused),
}
