"""Rules of every system: observation, conservation of requests and tokens, and progress.

Source: target protocol, "The step observation" and "Fine points".
"""

from collections import Counter
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

from ...model.observation import Step
from ..history.content import in_common
from ..history.per_step_cache import once
from ..history.request_history import RequestHistory
from ..history.run_history import RunHistory, makes_progress
from .pool import held_after, held_of_group
from .predicate import AdapterMessage, Predicate


def shown_wrongly(history: RunHistory[Any], step: Step) -> str | None:
    """Check that a step shows computed tokens and blocks of exactly those requests that have
    computed tokens, and that it shows the blocks that each request writes.

    Check as well that the kind of the step matches the work of its requests, and that prefilling
    requests are listed as such.
    """
    stay = list(_computed_after(history, step))
    if wrong := _other_kind(history, step) or _other_phase(history, stay, step):
        return wrong
    for request, tokens in stay:
        if request.id in (step.parked or ()):
            continue  # it waits, but holds the blocks of its load
        shown = None if step.computed is None else step.computed.get(request.id, 0)
        held = None if step.blocks is None else len(step.blocks.get(request.id, ()))
        if (shown == 0 or not tokens) and history.features.may_lose_tokens(history, step, request):
            continue  # it holds blocks for tokens that no longer count
        if tokens and shown == 0:
            return f"{request.id} has {tokens} tokens computed, but shows none"
        if tokens and held == 0:
            return f"{request.id} has {tokens} tokens computed, but shows no block"
        if not tokens and (shown or held):
            return (
                f"{request.id} waits, but shows {shown or 0} tokens computed and {held or 0} blocks"
            )
        writes = step.scheduled.get(request.id, 0)
        if writes and step.slot_blocks is not None and not step.slot_blocks:
            return f"{request.id} computes {writes} tokens, but no request shows where it writes"
    return None


def something_shown(history: RunHistory[Any], step: Step) -> bool:
    if not step.scheduled or (step.computed is None and step.blocks is None):
        return False
    return any(request.id not in step.scheduled for request in history.unstarted())


def _other_kind(history: RunHistory[Any], step: Step) -> AdapterMessage | None:
    members = [history.live[name] for name in step.scheduled if name in history.live]
    again = [request.id for request in members if _begins_again(history, step, request)]
    first = [
        request.id for request in members if not request.emitted + request.tokens_in_flight
    ] + again
    further = [
        request.id
        for request in members
        if request.emitted + request.tokens_in_flight > request.regenerated
    ]
    alone = "prefill" if first else "decode"
    right = "mixed" if first and further else alone
    why = ""
    if first and step.kind == "decode":
        lost = f"computes {step.scheduled[first[0]]} lost tokens"
        why = f"{first[0]} {lost if first[0] in again else 'has emitted no token yet'}"
    elif further and step.kind == "prefill":
        why = f"{further[0]} already generates"
    elif members and step.kind == "mixed" and len(members) in (len(first), len(further)):
        why = f"its only work is {alone}"
    if not why:
        return None
    return AdapterMessage(f"kind is {step.kind} in step {history.step}, but {why}: say {right}")


def _begins_again(history: RunHistory[Any], step: Step, request: RequestHistory) -> bool:
    """Return whether a preempted request recomputes more than its last token.

    If only the last token is left, either kind is right. With several steps in flight, the kind is
    not judged.
    """
    if (
        not request.regenerated
        or request.emitted > request.regenerated
        or history.features.depth(history.config) > 1
    ):
        return False
    hit = history.hit_now(step, request)
    return hit is not None and request.num_tokens - request.computed - hit > 1


def _other_phase(
    history: RunHistory[Any], stay: list[tuple[RequestHistory, int]], step: Step
) -> str | None:
    if step.prefilling is None or step.emitted is None:
        return None
    depth = history.features.depth(history.config)
    for request, tokens in stay:
        if depth > 2 and request.preemptions:
            continue  # a token may be in flight from an earlier step
        emitted = request.emitted + (request.tokens_in_flight or step.emitted.get(request.id, 0))
        named = request.id in step.prefilling
        come = request.emitted + step.emitted.get(request.id, 0)
        if named and come > request.regenerated:
            return f"{request.id} already generates, but is listed as prefilling"
        comes = depth > 1 and tokens >= request.num_tokens  # its first token is in flight
        if not named and tokens and not emitted and not comes:
            return f"{request.id} has emitted no token yet, but is not listed as prefilling"
    return None


def _computed_after(history: RunHistory[Any], step: Step) -> Iterator[tuple[RequestHistory, int]]:
    """Yield the requests that stay, each with a lower bound on its computed tokens after the step.
    Omit requests preempted in this step, and waiting ones for which the step shows nothing."""
    names = {request.id for request in history.running()}
    names.update(step.scheduled, step.computed or (), step.blocks or (), step.prefix_hit or ())
    names.update(history.paused, step.prefilling or ())
    names.difference_update(step.finished or (), history.aborts_inside, step.preempted or ())
    requests = [history.live[name] for name in names if name in history.live]
    for request in sorted(requests, key=attrgetter("arrival")):
        hit = 0 if request.started else history.hit_now(step, request) or 0
        yield request, request.computed + hit + step.scheduled.get(request.id, 0)


def request_lost(history: RunHistory[Any], step: Step) -> str | None:
    """Check that every unfinished request is in exactly one queue, and that no other request is in
    any queue (ALL-R03)."""
    if not step.scheduled.keys() <= history.live.keys():
        strangers = [name for name in step.scheduled if name not in history.live]
        return f"{_names(strangers)} scheduled, although ended or never accepted"
    strangers = [name for name in step.preempted or () if name not in history.live]
    if strangers:
        return f"{_names(strangers)} preempted, although ended or never accepted"
    finished = step.finished or {}
    foreign = [n for n in finished if n not in history.live and n not in history.aborts_to_report]
    if foreign:
        return f"{_names(foreign)} reported as finished, although already ended or never accepted"
    places = (*(step.waiting or ()), *(step.running or ()), *(step.paused or ()))
    queued = set(places)
    if len(queued) < len(places):
        doubled = [name for name, count in Counter(places).items() if count > 1]
        return f"{_names(doubled)} in more than one place of waiting, running and paused"
    unfinished = set(history.live).difference(finished, history.aborts_inside)
    if queued != unfinished:
        lost, kept = sorted(unfinished - queued), sorted(queued - unfinished)
        if lost:
            return f"{_names(lost)} unfinished, but neither waiting nor running nor paused"
        return f"{_names(kept)} still queued, although ended or never accepted"
    misplaced = [name for name in step.prefilling or () if name not in queued]
    if misplaced:
        return f"{_names(misplaced)} prefilling, but neither running nor waiting"
    return None


def requests_meet(history: RunHistory[Any], step: Step) -> bool:
    return bool(step.finished) and len(history.live) > 1


def _past_the_end(history: RunHistory[Any], name: str, tokens: int) -> str | None:
    """Return a message if a token is at a position beyond max_model_len. The last token of a
    request may be one position beyond it, because this token is never computed."""
    account, longest = history.live[name], history.config.get("max_model_len")
    computed = account.prompt + account.emitted + tokens - 1
    if longest is None or computed <= longest:
        return None
    return f"{name} emits a token after {computed} others, but max_model_len is {longest}"


def tokens_wrong(history: RunHistory[Any], step: Step) -> str | None:
    """Check that a request emits all its tokens, and ends with the last one, for the right reason
    (ALL-R04)."""
    endings = (_ending_wrong(history, step, account) for account in history.live.values())
    return (
        _emission_wrong(history, step)
        or next(filter(None, endings), None)
        or _abort_unreported(history, step)
    )


def _emission_wrong(history: RunHistory[Any], step: Step) -> str | None:
    """Return a message if a request emits tokens that it cannot have computed."""
    completing = history.features.completing(history, step)
    for name, tokens in (step.emitted or {}).items():
        if name not in completing:
            return f"{name} is not scheduled, but emitted {tokens}"
        if name not in history.live:
            return f"{name} emitted {tokens} although it has ended or was never accepted"
        if name in history.aborts_inside:
            return f"{name} emitted {tokens} although it was aborted inside the step"
        if history.live[name].never_runnable and (why := _past_the_end(history, name, tokens)):
            return why
    return None


def _ending_wrong(history: RunHistory[Any], step: Step, account: RequestHistory) -> str | None:
    """Return a message if the request ends too early, too late or for the wrong reason."""
    name, emitted = account.id, step.emitted or {}
    total = account.emitted + emitted.get(name, 0)
    reason = (step.finished or {}).get(name)
    if name in history.aborts_inside:
        if reason == "aborted":
            return None
        says = f"says {reason}" if reason else "does not list it"
        return f"{name} was aborted inside the step, but finished {says}"
    due = account.output_len
    if reason is None and (total == 0 or (due is not None and total < due)):
        return None  # it continues
    if account.never_runnable and reason is not None and total <= account.max_tokens:
        return None  # it can never run to its end, so ending it is right
    if reason == "error" and not total and history.features.may_end_early(history, account):
        return None
    open_ended = due is None
    if due is None:  # the number of its tokens is known only at its end
        at_once = reason == "eos" and name in emitted
        due = min(total, account.max_tokens) if at_once else account.max_tokens
    if total > due:
        return f"{name} emitted {total} tokens of {due}"
    if total < due:
        return f"{name} finished ({reason}) after {total} tokens of {due}" if reason else None
    if history.features.goes_on(account):
        return f"{name} finished ({reason}) before its last turn" if reason else None
    expected = "eos" if due < account.max_tokens else "length"
    if reason == expected or (open_ended and reason == "eos"):
        return None  # the last allowed token may also be an EOS
    last = f"{name} emitted its last token ({total} of {due}), "
    if reason is None:
        return last + f"but finished does not list it (expected {expected})"
    return last + f"finished says {reason}, expected {expected}"


def _abort_unreported(history: RunHistory[Any], step: Step) -> str | None:
    """Return a message if requests were aborted before the step, but are not reported."""
    finished = step.finished or {}
    unreported = [
        name
        for name in history.aborts_to_report
        if finished.get(name) != "aborted"
        and not (name in finished and history.requests[name].never_runnable)
    ]
    if not unreported:
        return None
    names = _names(sorted(unreported))
    return f"{names} aborted before the step, but not reported as aborted in it"


def token_due(history: RunHistory[Any], step: Step) -> bool:
    return any(reason != "aborted" for reason in (step.finished or {}).values())


def waits_too_long(history: RunHistory[Any], step: Step) -> str | None:
    """Check that the first request in line waits for at most as many steps as the work ahead of it
    can take (ALL-R05)."""
    if history.first_in_line is None:
        return None
    name, since, allowance = history.first_in_line
    if name in step.scheduled or history.step - since < allowance:
        return None
    return (
        f"{name} has been first in line since step {since}, and must be scheduled by step "
        f"{since + allowance}, {allowance} steps later"
    )


def someone_waits(history: RunHistory[Any], step: Step) -> bool:
    return history.first_in_line is not None and history.first_in_line[0] not in step.scheduled


def never_ends(history: RunHistory[Any], step: Step) -> str | None:
    """Check that all accepted requests together take no more steps than their work can take
    (ALL-R06)."""
    if history.busy_steps < history.work:
        return None  # the bound on all work together is never lower than this
    allowance = history.max_steps
    if history.busy_steps < allowance:
        return None
    unfinished = [n for n in history.live if n not in (step.finished or {})]
    if not unfinished:
        return None
    return (
        f"{_names(unfinished)} unfinished after {history.busy_steps + 1} busy steps; "
        f"all work together takes at most {allowance}"
    )


def everything_ends(history: RunHistory[Any], step: Step) -> bool:
    finished = step.finished or {}
    return bool(history.live and finished) and all(name in finished for name in history.live)


def hit_never_computed(history: RunHistory[Any], step: Step) -> str | None:
    """Check that a prefix hit covers only tokens that some request has computed (ALL-R08)."""
    for own, hit in first_hits(history, step):
        if hit <= 0:
            continue
        known = 0
        for other in history.kin(own):
            known = max(known, computed_of(history, step, own, other))
            if hit <= known:
                break
        if hit > known and hit > loaded_now(history, step).get(own.id, 0):
            since = " and can still be in a block" if history.forgotten else ""
            limit = f"of which only {known} were" if known else "none of which were"
            limit = f"{limit} ever computed{since}"
            return f"{own.id} takes {hit} tokens from the cache, {limit}"
    return None


def loaded_now(history: RunHistory[Any], step: Step) -> dict[str, int]:
    """Return how many tokens are loaded into the blocks of each request in this step."""
    return {request.id: tokens for request, tokens in history.features.loads_in(history, step)}


def computed_of(
    history: RunHistory[Any], step: Step, request: RequestHistory, other: RequestHistory
) -> int:
    """Return how many leading tokens of a request another request has computed by this step."""
    computed = other.max_computed if other is request else history.reached(step, other)
    return min(in_common(request, other), computed) if computed else 0


def something_cached(history: RunHistory[Any], step: Step) -> bool:
    return any(hit > 0 for _, hit in first_hits(history, step))


@once
def first_hits(history: RunHistory[Any], step: Step) -> list[tuple[Any, int]]:
    """Return the requests that start in this step without a load, each with its hit in tokens."""
    return [
        (request, hit)
        for name in step.scheduled
        if (request := history.live.get(name)) is not None
        and not request.started
        and not request.tokens_loading
        if (hit := history.hit_now(step, request)) is not None
    ]


def blocks_lost(history: RunHistory[Any], step: Step) -> str | None:
    """Check that held and free blocks add up to the pool, and that ended requests hold none
    (ALL-R09)."""
    size = history.config["num_blocks"]
    if size is None or step.free_blocks is None:
        return None
    held_by = held_after(history, step)
    if not history.features.held_after_end(history.config):
        for name, blocks in held_by.items():
            if blocks and name not in history.live:
                return f"{name} has ended, but still holds {len(blocks)} blocks"
    held = history.holders.count(held_by)
    if held + step.free_blocks != size:
        return f"{held} blocks held and {step.free_blocks} free, but the pool has {size}"
    return _lost_in_a_group(history, step)


def _lost_in_a_group(history: RunHistory[Any], step: Step) -> str | None:
    pools = history.features.group_pools(history.config)
    for name, tables in (step.group_blocks or {}).items() if pools else ():
        if name not in history.live and any(block for table in tables for block in table):
            return f"{name} has ended, but still holds blocks"
    for number, (size, free) in enumerate(zip(pools, step.group_free_blocks or (), strict=False)):
        held = len(held_of_group(step, number))
        if held + free != size:
            pool = f"the pool of group {number + 1} has {size}"
            return f"{held} blocks of group {number + 1} held and {free} free, but {pool}"
    return None


def blocks_come_back(history: RunHistory[Any], step: Step) -> bool:
    held_before = (history.last.blocks or {}) if history.last is not None else {}
    leaving = [*(step.finished or {})]
    return history.config["num_blocks"] is not None and any(n in held_before for n in leaving)


def no_progress(history: RunHistory[Any], step: Step) -> str | None:
    """Check that, while a request is unfinished, at least one of three consecutive steps computes
    or emits a token, or ends a request. With several decisions in flight, more steps in a row may
    make no progress (ALL-R10)."""
    if not history.live or makes_progress(step):
        return None
    if history.barren_steps <= history.features.idle_steps(history):
        return None
    return f"no token was computed in {history.barren_steps + 1} steps in a row"


def someone_is_left_out(history: RunHistory[Any], step: Step) -> bool:
    return any(name not in step.scheduled for name in history.live)


def reads_other_tokens(history: RunHistory[Any], step: Step) -> str | None:
    """Check that a request reads only blocks with its own tokens (ALL-R11)."""
    changes = history.cache_changes(step)
    return changes.conflict if changes is not None else None


def blocks_change_hands(history: RunHistory[Any], step: Step) -> bool:
    changes = history.cache_changes(step)
    return changes is not None and changes.meets


def _names(ids: list[str]) -> str:
    shown = ", ".join(ids[:5])
    return shown if len(ids) <= 5 else f"{shown} and {len(ids) - 5} more"


PREDICATES = {
    "ALL-R03": Predicate(
        request_lost,
        requests_meet,
        reads=(
            *("finished", "paused", "preempted", "prefilling", "running", "scheduled", "waiting"),
        ),
    ),
    "ALL-R04": Predicate(tokens_wrong, token_due),
    "ALL-R05": Predicate(waits_too_long, someone_waits),
    "ALL-R06": Predicate(never_ends, everything_ends),
    "ALL-R08": Predicate(hit_never_computed, something_cached),
    "ALL-R09": Predicate(
        blocks_lost,
        blocks_come_back,
        reads=("blocks", "finished", "free_blocks", "group_blocks", "group_free_blocks"),
    ),
    "ALL-R10": Predicate(no_progress, someone_is_left_out),
    "ALL-R11": Predicate(reads_other_tokens, blocks_change_hands),
    "ALL-R13": Predicate(shown_wrongly, something_shown),
}
