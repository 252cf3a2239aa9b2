"""Explain the failures that no other module explains. Show which requests computed tokens in each
step, and what the other requests lacked. If there is nothing to say about that, say what the
requests in the message did last.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial

from ...model.scenario import Request
from ..history.content import in_common
from ..history.prefix_hits import caches
from ..history.request_history import RequestHistory
from ..rules.registry import AT_THE_DOOR
from .cause import Cause, Need, Row
from .failure import Failure, left
from .measures import VOLUME

SINGULAR = re.compile(r"s\b")  # to turn "tokens of the budget" into "token of the budget"
TURNS = 16  # steps before the failure in which the turns of each request are shown
LOST = "LOST: in no queue"
NAMED = 3  # requests that the sentences name


def turns_cause(failure: Failure) -> Cause:
    history, step = failure.history, failure.last
    shown = [*history.live.values()]
    aborted = _given_up(failure)
    gone = [
        name
        for name in history.requests
        if name in step.scheduled or name in aborted or failure.names(name)
    ]
    shown += [history.requests[name] for name in gone if name not in history.live]
    arrived = min((_arrival(failure, account.id) for account in shown), default=0)
    first = max(len(failure.steps) - TURNS, min(arrived, failure.first.step), 0)
    rows = [
        Row(
            account.id,
            _state(failure, account) + _priority(failure, account.id),
            tuple(_turn(failure, account, number) for number in range(first, len(failure.steps))),
            tuple(_plausible(failure, account))
            if account.id in history.live and _is_about_waiting(failure)
            else (),
            failure.names(account.id),
        )
        for account in shown
    ]
    queue = (getattr(failure.before, "running", None) or ()) if _preempted(failure) else ()
    order = {name: place for place, name in enumerate(queue)}
    rows.sort(key=lambda row: (order.get(row.request, len(order)), not row.is_named))
    return Cause(
        _waiting(failure, rows),
        tuple(_reasons(failure, rows)),
        rows=tuple(rows[: 2 * TURNS]),
        first=first,
    )


def _is_about_waiting(failure: Failure) -> bool:
    return not failure.lost and bool(
        not failure.ended_by_it or failure.is_progress or _standstill(failure) or failure.waits
    )


def _progress(failure: Failure) -> int | None:
    """Return the last step in which anything was computed."""
    busy = (
        n for n in range(len(failure.steps) - 1, -1, -1) if any(failure.steps[n].scheduled.values())
    )
    return next(busy, None)


def _standstill(failure: Failure) -> str:
    progress = _progress(failure)
    if failure.ended_by_it and not failure.is_progress:
        return ""
    if not failure.ended_by_it:
        return failure.first.message.partition("': ")[2] or failure.first.message
    if progress is not None and progress < len(failure.steps) - 1:
        return f"nothing is computed after step {progress}"
    return "nothing is ever computed" if progress is None and failure.history.live else ""


def _preempted(failure: Failure) -> list[str]:
    """Return the preempted requests that the broken rule is about."""
    return [name for name in failure.last.preempted or () if failure.names(name)]


def _waiting(failure: Failure, rows: Sequence[Row]) -> str:
    if _preempted(failure):
        return ""
    if lost := failure.lost:
        is_one = len(lost) == 1
        return f"{', '.join(lost)} {'is' if is_one else 'are'} lost: in no queue, and not finished"
    if still := _standstill(failure):
        return still
    if not failure.is_progress and not failure.waits:
        return ""
    for row in rows:
        if row.is_named and row.needs and row.request not in failure.last.scheduled:
            steps = len(failure.steps) - _since(failure, row.request)
            return f"{row.request} waits for {steps} step{'s' * (steps != 1)}{_free_words(row)}"
    return ""


def _reasons(failure: Failure, rows: Sequence[Row]) -> Iterator[str]:
    progress = _progress(failure)
    if gone := _preempted(failure):
        several = len(gone) > 1
        loses = "lose what they computed" if several else "loses what it computed"
        runs = failure.last.running or ()
        stays = f"{', '.join(runs) or 'no request'} keep{'s' * (len(runs) < 2)} running"
        if ends := ", ".join(failure.last.finished or ()):
            stays += f", and this is the last step of {ends}"
        yield f"step {failure.first.step}: {', '.join(gone)} {loses}; {stays}"
        return
    if failure.lost:
        for queue in ("running", "waiting"):
            queued = getattr(failure.before, queue, None) or ()
            if seen := ", ".join(name for name in failure.lost if name in queued):
                yield f"step {failure.first.step - 1}: {seen} still in `{queue}`"
        yield from _clients(failure)
        return
    if failure.first.rule == AT_THE_DOOR:
        free, pool = failure.last.free_blocks, failure.config.get("num_blocks")
        if failure.steps and free is not None and pool is not None:
            yield f"step {len(failure.steps) - 1}: {free} of {pool} blocks are free after it"
    elif _standstill(failure) and progress is not None:
        does = ", ".join(failure.steps[progress].scheduled)
        yield f"step {progress}: tokens are computed for the last time, for {does}"
    for event in failure.scenario.events:
        if event.step == failure.first.step:
            yield f"step {event.step}: the operator calls {event.kind}"
    if not failure.ended_by_it:
        yield from _clients(failure)
    due = () if not failure.ended_by_it else failure.last.scheduled
    waiting = [row for row in rows if row.needs and row.request not in due]
    alike: dict[tuple[int, str], list[str]] = {}
    for row in waiting:
        lacks = any(need.needs > need.free for need in row.needs)
        if lacks or (failure.ended_by_it and (row.is_named or _standstill(failure))):
            words = _in_words(
                row, _blocker_in_front(failure, row, waiting), _known_prefix(failure, row)
            )
            alike.setdefault((_since(failure, row.request), words), []).append(row.request)
    for (since, words), alike_names in [*alike.items()][:NAMED]:
        verb = "gets nothing from here on" if since < len(failure.steps) else "is next"
        who = ", ".join(alike_names)
        if len(alike_names) > 1:
            verb, words = verb.replace("gets", "get").replace("is", "are"), f"each {words[3:]}"
        yield f"step {since}: {who} {verb}; {words}"
    held = {name: len(table) for name, table in (failure.last.blocks or {}).items() if table}
    needs = [need for row in waiting for need in row.needs if need.what == "blocks"]
    if held and any(need.needs > need.free for need in needs):
        holders = ", ".join(f"{name} {many}" for name, many in [*held.items()][: 2 * NAMED])
        yield f"the blocks are held by {holders}"


def _clients(failure: Failure) -> Iterator[str]:
    step = failure.first.step
    for request in failure.scenario.requests[: 2 * TURNS]:
        if request.arrival == step:
            yield f"step {step}: {_arrives(request)}"
        if request.abort_at == step:
            yield f"step {step}: the client of {request.id} aborts it"


def _given_up(failure: Failure) -> list[str]:
    """Return the requests whose clients give up just before the failing step."""
    requests, step = failure.scenario.requests, failure.first.step
    return [request.id for request in requests if request.abort_at == step]


def _arrives(request: Request) -> str:
    return f"{request.id} arrives: prompt {request.prompt_len}, max_tokens {request.max_tokens}"


def _state(failure: Failure, account: RequestHistory) -> str:
    name, step = account.id, failure.last
    for words, queue in (
        ("preempted", step.preempted),
        ("paused", step.paused),
        ("loads", step.parked),
        ("runs", step.running),
        ("waits", step.waiting),
    ):
        if name in (queue or ()):
            return "between turns" if queue is step.parked and account.between_turns else words
    if account.ended:
        return f"left ({account.ended})"
    if name in failure.lost:
        return LOST
    return "runs" if account.started else "waits"


def _priority(failure: Failure, name: str) -> str:
    """Describe the priority of a request, if the message is about priorities and about this
    request."""
    if "priority" not in failure.first.message or not failure.names(name):
        return ""
    named = {r.id: r.priority for r in failure.scenario.requests if failure.names(r.id)}
    more = " (more important)" if len({*named.values()}) > 1 else ""
    return f", priority {named[name]}{more if named[name] == min(named.values()) else ''}"


def _turn(failure: Failure, account: RequestHistory, number: int) -> str:
    step = failure.steps[number]
    got = str(step.scheduled.get(account.id, ""))
    if account.id in (step.preempted or ()):
        return f"× {got}".rstrip()
    if got:
        return got
    return "·" if _arrival(failure, account.id) <= number else ""


def _since(failure: Failure, name: str) -> int:
    """Return the step after the last one in which the request got tokens. If it never got any,
    return the step of its arrival."""
    for number in range(len(failure.steps) - 1, -1, -1):
        if failure.steps[number].scheduled.get(name):
            return number + 1
    return _arrival(failure, name)


def _arrival(failure: Failure, name: str) -> int:
    arrivals = (request.arrival for request in failure.scenario.requests if request.id == name)
    return next(arrivals, 0)


def _plausible(failure: Failure, account: RequestHistory) -> Iterator[Need]:
    """Yield what a request needs. If the rule found room, leave out the needs that exceed what is
    free, because they include tokens of prefix hits, and the rule does not count these."""
    has_room = "although" in failure.first.message and failure.names(account.id)
    yield from (n for n in _needs(failure, account) if n.needs <= n.free or not has_room)


def _needs(failure: Failure, account: RequestHistory) -> Iterator[Need]:
    """Yield what a request needs to compute its next tokens. Leave out each quantity for which the
    target does not show how much is left."""
    config, step, held = (
        failure.config,
        failure.last,
        (failure.last.blocks or {}).get(account.id, ()),
    )
    if failure.ended_by_it and account.id in step.scheduled:
        return  # it had its turn, so what the step left over does not explain anything
    budget = config.get("max_num_batched_tokens")
    # after a crash, the budget of the next step applies
    spent = sum(step.scheduled.values()) if failure.ended_by_it else 0
    unspent = max((budget or 0) - spent, 0)
    computed = max(account.computed, account.tokens_loading)
    turn = missing = max(account.num_tokens - computed, 1)
    for most in (config.get("chunk_size"), budget, config.get("long_prefill_token_threshold")):
        turn = min(turn, most) if most else turn
    if unspent and config.get("enable_chunked_prefill"):
        turn = min(turn, unspent)
    if step.running is not None and config.get("max_num_seqs"):
        running = account.id in step.running
        free = config["max_num_seqs"] - len(step.running)
        if not running:
            yield Need("slots", 1, max(free, 0))
    free_blocks = step.free_blocks
    if free_blocks is None and step.blocks is not None and config.get("num_blocks") is not None:
        held_by_all = {block for table in step.blocks.values() for block in table}
        free_blocks = config["num_blocks"] - len(held_by_all)
    if free_blocks is not None and config.get("num_blocks") is not None:
        loads = (r.external_tokens for r in failure.scenario.requests if r.id == account.id)
        known = missing if config.get("reserve_full_isl") and not held else turn
        coming = max(computed + known, next(loads, 0))  # a load takes all blocks at once
        slots = failure.history.features.slots(config, coming)
        blocks = -(-slots // config["block_size"]) - len(held)
        yield Need("blocks", max(blocks, 0), max(free_blocks, 0))
    refused = [join for join in failure.projections if join.newcomer == account.id]
    if refused and not refused[-1].joined and refused[-1].step == failure.first.step:
        yield Need(f"projected tokens of {VOLUME}", refused[-1].largest, config["max_batch_tkv"])
    if budget:
        yield Need("tokens of the budget", turn, unspent)


def _blocker_in_front(failure: Failure, row: Row, waiting: Sequence[Row]) -> str:
    """Return the first request in the queue if it does not fit and is in front of the request of
    `row`."""
    queue = failure.last.waiting or ()
    short = {r.request for r in waiting if any(need.needs > need.free for need in r.needs)}
    first = queue[0] if queue and queue[0] in short else ""
    return first if row.request in queue[1:] else ""


def _known_prefix(failure: Failure, row: Row) -> str:
    """Describe the tokens that an unstarted request shares with a request that has computed them.
    Return "" without a prefix cache."""
    account = failure.history.requests[row.request]
    if account.started or not caches(failure.config):
        return ""
    others = [
        (min(in_common(account, other), other.max_computed), other.id)
        for other in failure.history.kin(account)
        if other is not account
    ]
    tokens, other = max(others, default=(0, ""))
    if not tokens:
        return ""
    all_of_it = tokens >= account.prompt
    part = "its whole prompt is" if all_of_it else f"the first {_tokens(tokens)} of its prompt are"
    return f"; {part} computed already, for {other}"


def _in_words(row: Row, ahead: str, known: str) -> str:
    needs = [need for need in row.needs if need.needs]
    lacks = [_many(need.needs - need.free, need.what) for need in needs if need.needs > need.free]
    counts = [f"{_many(need.needs, need.what)} ({need.free:,} free)" for need in needs]
    words = " and ".join(filter(None, (", ".join(counts[:-1]), *counts[-1:])))
    if lacks:
        return f"it needs {words}: {' and '.join(lacks)} too few"
    if ahead:
        return f"it needs {words}, but it is behind {ahead}"
    if not needs:
        return "it needs nothing"
    return f"it needs {words}: no limit that is shown holds it back{known}"


def _many(count: int, what: str) -> str:
    return f"{count:,} {SINGULAR.sub('', what, count=1) if count == 1 else what}"


def _free_words(row: Row) -> str:
    """Return the end of a headline: what is missing, or how many slots and blocks are free."""
    for need in row.needs:
        if need.needs > need.free:
            return f": it needs {_many(need.needs, need.what)}, but only {need.free:,} are free"
    free = [
        _many(need.free, need.what) for need in row.needs[:2] if need.what in ("slots", "blocks")
    ]
    return f", with {' and '.join(free)} free" if free else ""


def last_events(failure: Failure) -> list[str]:
    """Return a sentence for each request that the message names, about its last event before the
    failing step. The sentences are in order of steps."""
    named = [request.id for request in failure.scenario.requests if failure.names(request.id)]
    events = [event for name in named[:NAMED] for event in _last_event(failure, name)]
    return [f"step {number}: {words}" for number, words in sorted(events)]


def _last_event(failure: Failure, name: str) -> Iterator[tuple[int, str]]:
    """Yield the step of the request's last event, and a sentence about it. Yield nothing if the
    request arrives in the failing step."""
    account = failure.history.requests.get(name)
    if account is None or account.between_turns:
        return
    failing = failure.first.step
    if account.ended_at is not None and account.ended_at < failing:
        yield account.ended_at, f"{name} ends ({account.ended})"
        return
    for number in range(min(failing, len(failure.steps)) - 1, -1, -1):
        step = failure.steps[number]
        if name in (step.preempted or ()):
            yield number, f"{name} is preempted"
            return
        if tokens := step.scheduled.get(name):
            computed = (step.computed or {}).get(name)
            yield number, f"{name} computes {_tokens(tokens)}{_of(computed, account.prompt)}"
            return
    if hit := (failure.last.prefix_hit or {}).get(name):
        yield from _source_of_hit(failure, account, hit)
    for request in failure.scenario.requests:
        if request.id == name and request.arrival < failing:
            yield request.arrival, _arrives(request)
            return


def _source_of_hit(
    failure: Failure, account: RequestHistory, hit: int
) -> Iterator[tuple[int, str]]:
    """Yield the step in which another request computed the tokens that this request found, and a
    sentence about it."""
    others = [other for other in failure.history.kin(account) if other is not account]
    source = max(others, key=partial(in_common, account), default=None)
    if source is not None and in_common(account, source) >= hit:
        found = f"{source.id} begins, and computes the {hit:,} tokens that {account.id} finds"
        yield max(source.began, 0), found + left(source)


def _tokens(count: int) -> str:
    return f"{count:,} token{'s' * (count != 1)}"


def _of(computed: int | None, prompt: int) -> str:
    if computed is None:
        return ""
    if computed < prompt:
        return f", and has computed {computed:,} of its prompt's {prompt:,} tokens"
    return f", and has computed {computed:,}"
