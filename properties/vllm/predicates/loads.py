"""Parked requests: they keep their blocks until the load has finished, take no blocks that others
need, and go first.

Source: release 0.33.0, comments of the scheduler on asynchronous KV loads.
"""

from collections.abc import Callable

from ....model.observation import Step
from ....model.pool import blocks_for
from ...history.content import in_common
from ...history.prefix_hits import caches
from ...rules.pool import held_after, tables_before
from ...rules.predicate import Predicate
from ..history import groups, in_flight, loads, speculation, synchronous
from ..history.request_history import VllmRequestHistory
from ..history.run import VllmRun
from .decision import (
    admitted,
    key,
    may_pad,
    ran_before,
    since,
    slots,
    waits_for_encoder,
    watermark_blocks,
)
from .free_blocks import free_unchanged
from .preemption import keeps_blocks, taken_without_need


def runs_too_early(history: VllmRun, step: Step, *, until_next: bool = True) -> str | None:
    """Until its load has finished, a parked request keeps its blocks and is not scheduled. With
    `until_next`, this lasts until the next decision. If the request was aborted, its blocks become
    free when the load finishes, and not earlier (V1-R20, GEN-R16)."""
    now, before = step.blocks or {}, (history.last.blocks if history.last else None) or {}
    for request in history.requests.values():
        if not loads.loading(request) or loads.is_sent(request):
            continue
        if request.id in step.scheduled:
            return f"{request.id} is scheduled, but its load takes {request.load_left} more steps"
        gone = request.id not in history.live or request.id in history.aborts_inside
        gone = gone or loads.ends_on_failure(history.config, request)  # judged by V1-R28
        if (gone or not until_next) and request.load_left == 1:
            continue
        if before.get(request.id) and now.get(request.id) != before[request.id]:
            held = len(now.get(request.id, ()))
            return (
                f"{request.id} held {len(before[request.id])} blocks, which are loaded for "
                f"{request.load_left} more steps, but they have changed: it now holds {held}"
            )
    for name in now:
        ended = history.requests.get(name)
        if ended is None or name in history.live or not ended.load_steps or ended.load_left:
            continue
        if loads.is_sent(ended):
            continue
        if history.step > (ended.ended_at or 0) + decisions_still_to_come(history):
            return f"{name} was aborted and its load has finished, but it still holds blocks"
    return None


def decisions_still_to_come(history: VllmRun) -> int:
    """Return the largest number of steps until the decisions in flight, and as many after them,
    have completed. Return 0 if no load can begin while a decision is in flight."""
    return 2 * in_flight.depth(history.config) if loads.meet_decisions(history.config) else 0


def one_is_loading(history: VllmRun, step: Step) -> bool:
    return any(loads.loading(request) for request in history.requests.values())


def takes_what_others_need(history: VllmRun, step: Step) -> str | None:
    """A load begins only if enough blocks stay free for other parked requests, for prefills, and
    for the lookahead in the first step of the request itself (V1-R21)."""
    newly, most = loads.newly_parked(history.live, step), step.free_blocks
    if not newly or step.preempted or step.blocks is None or most is None:
        return None
    last = newly[-1]  # if several loads begin in one step, each must leave room for the others
    ran = {request.id for request in ran_before(history)}
    new = admitted(history, step)
    before = {*ran, *(r.id for r in new if surely_tried_before(history, r, history.live[last]))}
    parked = [history.live[name] for name in step.parked or () if name in history.live]
    prefills = [history.live[name] for name in step.prefilling or () if name in history.live]
    needs = {r.id: missing_blocks(history, step, r) for r in prefills if r.id in before}
    needs |= {request.id: first_step(history, step, request) for request in parked}
    if missing_blocks(history, step, history.live[last]):
        del needs[last]  # the part that is not loaded may be computed later, chunk by chunk
    most += perhaps_taken_since(history, step, before) - given_back_since(history, step)
    needed, most = sum(needs.values()), max(most, 0)
    if needed <= most:
        return None
    names = ", ".join(name for name, blocks in needs.items() if blocks)
    return f"{last} begins to load and leaves {most} blocks free; {names} still need {needed}"


def surely_tried_before(
    history: VllmRun, request: VllmRequestHistory, other: VllmRequestHistory
) -> bool:
    """Return whether the scheduler considers a waiting request before `other`, which has never been
    scheduled."""
    first_come = history.config["policy"] != "priority"
    parked = (history.last.parked if history.last else None) or ()
    if first_come and request.id in parked:
        return True
    known = first_come or history.revision in since("0.25")
    if not known or loads.place_unknown(request) or other.deferrals or other.preemptions:
        return False
    return key(history, request) < key(history, other)


def perhaps_taken_since(history: VllmRun, step: Step, before: set[str]) -> int:
    """Return the largest number of blocks that requests may have received after the last load of
    the step began. `before` contains the running requests, and those that were surely admitted
    earlier."""
    shown, earlier = held_after(history, step), tables_before(history)
    parked = {*before, *(step.parked or ())}
    taken = {
        block
        for name, table in shown.items()
        if name not in parked
        for block in {*table}.difference(earlier.get(name, ()))
    }
    return len(taken.difference(*(shown.get(name, ()) for name in parked)))


def given_back_since(history: VllmRun, step: Step) -> int:
    """Return how many blocks became free only after the decision, because a request left in this
    step, or because its blocks had been sent or loaded. The result is a lower bound."""
    if groups.further(history.config):
        return 0  # a window may have given them back earlier
    now, earlier = held_after(history, step), tables_before(history)
    left = {name for name, reason in (step.finished or {}).items() if reason in ("length", "eos")}
    left |= {*history.aborts_inside} & {*step.scheduled}
    left |= {*earlier} - {*history.live} - {*history.aborts_to_report}
    gone = {block for name in left.intersection(earlier) for block in earlier[name]}
    return len(gone.difference(*now.values()))


def one_begins_beside_others(history: VllmRun, step: Step) -> bool:
    newly = loads.newly_parked(history.live, step)
    others = {*(step.parked or ()), *(step.prefilling or ())}.difference(newly)
    known = [history.live[name] for name in others if name in history.live]
    return bool(newly) and any(first_step(history, step, request) for request in known)


def waits_though_loaded(history: VllmRun, step: Step) -> str | None:
    """The first request whose load has finished is admitted before all others (V1-R22). The rule
    applies if nothing was preempted, and budget, a slot and blocks for all tokens of that request
    are left."""
    request = first_landed(history, step)
    if request is None or request.id in step.scheduled or not nothing_else_changes(history, step):
        return None
    running = step.running or ()
    budget = history.config["max_num_batched_tokens"] - sum(step.scheduled.values())
    if len(running) >= slots(history) or budget <= 0:
        return None
    drafts = speculation.drafts(history.config) if may_pad(history) else 0
    if budget <= drafts:
        return None
    if not history.config["enable_chunked_prefill"] or waits_for_encoder(
        history, step, request.inputs
    ):
        return None
    covered = speculation.slots(history.config, request.num_tokens + drafts)
    needed = blocks_lacking(history, step, request, covered)
    needed += lacks_beside(history, step, request, lambda group: group.blocks_for(covered))
    reserve = watermark_blocks(history.config) if running else 0
    free = step.free_blocks or 0
    if needed + reserve > free:
        return None
    return (
        f"{request.id}, whose load has finished, waits although {budget} tokens of the budget "
        f"and a slot are left: it needs {needed} blocks, and {free} are free"
    )


def one_has_landed(history: VllmRun, step: Step) -> bool:
    return first_landed(history, step) is not None


def fills_what_is_written(history: VllmRun, step: Step) -> str | None:
    """No load fills a block that a decision in flight writes to (V1-R23)."""
    if not loads.meet_decisions(history.config):
        return None
    for name in loads.newly_parked(history.live, step):
        request, its = history.live[name], (step.blocks or {}).get(name, ())
        for writer in gone_and_computed(history, step):
            block = last_written(history, writer)
            if block not in its or block in (step.blocks or {}).get(writer.id, ()):
                continue
            end = (its.index(block) + 1) * history.config["block_size"]
            if in_common(request, writer) < end:
                return (
                    f"{name} begins to load into block {block}, which a step in flight writes "
                    f"for {writer.id}"
                )
    return None


def one_begins_beside_a_writer(history: VllmRun, step: Step) -> bool:
    if not loads.meet_decisions(history.config) or not loads.newly_parked(history.live, step):
        return False
    return bool(gone_and_computed(history, step))


def gone_and_computed(history: VllmRun, step: Step) -> list[VllmRequestHistory]:
    running = step.running or ()
    return [
        request
        for request in history.requests.values()
        if request.id not in running and in_flight.is_still_computed(history, request)
    ]


def last_written(history: VllmRun, request: VllmRequestHistory) -> int | None:
    """Return the block of a request's last computed token, if the target has shown that the request
    has this block."""
    number = ((request.computed or request.recompute_from) - 1) // history.config["block_size"]
    return request.blocks[number] if 0 <= number < len(request.blocks) else None


def preempted_for_nothing(history: VllmRun, step: Step) -> str | None:
    """A request that is still being computed loses its blocks only if they are needed at once
    (V1-R24)."""
    return taken_without_need(history, step) if keeps_blocks(history, step) else None


def blocks_run_out_in_flight(history: VllmRun, step: Step) -> bool:
    if not loads.meet_decisions(history.config) or step.free_blocks != 0:
        return False
    return any(in_flight.is_still_computed(history, request) for request in ran_before(history))


def freed_while_sent(history: VllmRun, step: Step) -> str | None:
    """From its last step on, a finished request keeps its blocks until they have been sent, and no
    longer (V1-R25)."""
    for name, reason in (step.finished or {}).items():
        request = history.live.get(name)
        is_sent = request is not None and request.send_steps is not None
        if is_sent and reason in ("length", "eos") and not (step.blocks or {}).get(name):
            return f"{name} has ended and its blocks are to be sent, but it holds none"
    now, before = step.blocks or {}, (history.last.blocks if history.last else None) or {}
    for request in history.requests.values():
        if not loads.is_sent(request):
            continue
        if (
            request.load_left > 1
            and not loads.may_be_loaded_unseen(request)  # sent for a shorter time, if it was not
            and before.get(request.id)
            and now.get(request.id) != before[request.id]
        ):
            use = "sent or loaded" if request.ended == "aborted" else "sent"
            return (
                f"{request.id} held {len(before[request.id])} blocks, which are {use} for "
                f"{request.load_left} more steps, but they have changed: it now holds "
                f"{len(now.get(request.id, ()))}"
            )
        late = history.step > (request.ended_at or 0) + decisions_still_to_come(history)
        if request.id in now and not request.load_left and late:
            return f"{request.id} has ended and its blocks have been sent, but it still holds them"
    return None


def one_is_sent(history: VllmRun, step: Step) -> bool:
    return any(
        loads.is_sent(request) and request.load_left for request in history.requests.values()
    )


def builds_on_what_failed(history: VllmRun, step: Step) -> str | None:
    """After a load that failed in part, a request skips only tokens that were loaded or are cached
    (V1-R26)."""
    for request in joins_after_a_failure(history, step):
        start = (step.computed or {}).get(request.id, 0) - step.scheduled[request.id]
        right = loads.tokens_loaded(history.config, request)
        most = max(right, cached_elsewhere(history, step, request))
        if start > most:
            return (
                f"{request.id} starts at token {start}, although its load failed from token "
                f"{request.load_fails_at} on"
            )
    return None


def one_joins_after_a_failure(history: VllmRun, step: Step) -> bool:
    return any(joins_after_a_failure(history, step))


def joins_after_a_failure(history: VllmRun, step: Step) -> list[VllmRequestHistory]:
    """Return the requests that start for the first time in this step, after a load that failed in
    part.

    V1-R26 does not say where a preempted request restarts. ALL-R11 checks the content of its
    blocks.
    """
    return [
        request
        for name in step.scheduled
        if (request := history.live.get(name)) is not None
        and not (request.started or request.preemptions)
        and request.parked_since is not None
        and request.load_fails_at is not None
        and name in (step.computed or {})
    ]


def cached_elsewhere(history: VllmRun, step: Step, request: VllmRequestHistory) -> int:
    """Return the largest number of tokens of a request that may be cached."""
    return history.max_hit(step, request) if caches(history.config) else 0


def outlives_its_failed_load(history: VllmRun, step: Step) -> str | None:
    """Under the policy `fail`, a request ends with an error if and only if its load has failed
    (V1-R28)."""
    failed = fail_now(history, step)
    for request in failed:
        ended = (step.finished or {}).get(request.id)
        if ended != "error":
            why = f"finishes with {ended!r}" if ended else "continues"
            return (
                f"{request.id} {why}, although its load failed from token "
                f"{request.load_fails_at} on: it must end with an error"
            )
    may_end = {
        *[request.id for request in failed],
        *[n for n, o in history.requests.items() if o.never_runnable],
        *synchronous.may_fall_back(history, step),
    }
    for name, reason in (step.finished or {}).items():
        if reason == "error" and name not in may_end:
            return f"{name} ends with an error, but none of its loads fails in this step"
    return None


def one_fails_now(history: VllmRun, step: Step) -> bool:
    return bool(fail_now(history, step))


def fail_now(history: VllmRun, step: Step) -> list[VllmRequestHistory]:
    """Return the requests whose load ends with a failure in this step, if the policy ends them."""
    if not in_flight.reports(history, step):
        return []
    if loads.are_synchronous(history.config):
        end = loads.end_on_failure(history.config)
        names = synchronous.must_fall_back(history, step) if end else ()
        return [history.live[name] for name in names if name not in history.aborts_inside]
    return [
        request
        for request in history.live.values()
        if request.id not in history.aborts_inside
        and loads.ends_on_failure(history.config, request)
        and (request.load_left == 1 or (not request.load_steps and loads.begins_now(request, step)))
    ]


def computes_what_can_be_loaded(history: VllmRun, step: Step) -> str | None:
    """A request is parked for a load if the connector has more of its tokens than the cache
    (V1-R27)."""
    for request in admitted(history, step):
        hit = history.hit_now(step, request)
        if hit is None or request.started or not loads.is_new(history.config, request):
            # if `running` is hidden, a request that has started looks like one that is admitted
            continue
        if (loadable := loads.offered(history.config, request)) > hit:
            return (
                f"{request.id} computes its tokens from token {hit} on, although the connector "
                f"has {loadable} tokens"
            )
    return None


def one_begins(history: VllmRun, step: Step) -> bool:
    return bool(loads.newly_parked(history.live, step))


def reads_what_failed_to_load(history: VllmRun, step: Step) -> str | None:
    """A token is computed only when all tokens before it are loaded or computed (V1-R92)."""
    size, unfilled = history.config["block_size"], synchronous.blocks_to_fill_after(history, step)
    for name in step.scheduled if unfilled else ():
        if (request := history.live.get(name)) is None:
            continue
        start = synchronous.start_of(history, step, request)
        blocks = synchronous.table(history, step, name)[: blocks_for(start, size)]
        for place, block in enumerate(blocks):
            if unfilled.get(block, size) < min(start - place * size, size):
                return (
                    f"{name} computes its tokens from {start} on, but its tokens {place * size} to "
                    f"{min(start, place * size + size) - 1} in block {block} failed to load, and "
                    f"only {unfilled[block]} of them have been computed since"
                )
    for name in synchronous.must_fall_back(history, step):
        if (step.emitted or {}).get(name):
            return f"{name} emits a token of the step in which its load fails"
    return None


def one_fails_in_its_step(history: VllmRun, step: Step) -> bool:
    return bool(synchronous.must_fall_back(history, step))


def first_landed(history: VllmRun, step: Step) -> VllmRequestHistory | None:
    """Return the first request whose load has finished, among those that were parked before the
    step. Return None if it may have to wait behind a request that has lost its blocks after a
    failed load."""
    if not loads.are_made(history.config):
        return None  # sessions may be parked
    before = (history.last.parked if history.last else None) or ()
    if any(
        lost_its_blocks(request) and request.id not in before for request in history.live.values()
    ):
        return None
    landed = (history.live[name] for name in before if name in history.live)
    return next((request for request in landed if not loads.loading(request)), None)


def lost_its_blocks(request: VllmRequestHistory) -> bool:
    """Return whether the load of an unstarted request has failed. A failure in the first block
    counts too."""
    over = request.parked_since is not None and not loads.loading(request)
    return over and request.load_fails_at is not None and not request.started


def nothing_else_changes(history: VllmRun, step: Step) -> bool:
    """Return whether the blocks that are free after the step were already free during the step.

    No request may leave, be preempted, or join, and no blocks of earlier requests may become free.
    """
    before = (history.last.running or ()) if history.last is not None else ()
    same = not step.preempted and set(before) == set(step.running or ())
    return same and free_unchanged(history, step)


def missing_blocks(history: VllmRun, step: Step, request: VllmRequestHistory) -> int:
    """Return how many blocks a request lacks for all its known tokens. For a group after the first,
    count at most the blocks that admission reserves."""
    tokens = request.num_tokens
    return blocks_lacking(history, step, request, tokens) + lacks_beside(
        history, step, request, lambda group: groups.at_most(history.config, group, tokens)
    )


def first_step(history: VllmRun, step: Step, request: VllmRequestHistory) -> int:
    """Return how many blocks a parked request lacks for its known tokens and the lookahead."""
    return blocks_lacking(
        history, step, request, speculation.slots(history.config, request.num_tokens)
    )


def blocks_lacking(history: VllmRun, step: Step, request: VllmRequestHistory, tokens: int) -> int:
    """Return how many blocks a request lacks for its first `tokens` tokens."""
    held = len((step.blocks or {}).get(request.id, ()))
    return max(blocks_for(tokens, history.config["block_size"]) - held, 0)


def lacks_beside(
    history: VllmRun,
    step: Step,
    request: VllmRequestHistory,
    needs: Callable[[groups.Group], int],
) -> int:
    """Return how many blocks a request lacks in the groups after the first. `needs` returns how
    many blocks it needs in a group."""
    tables = (step.group_blocks or {}).get(request.id, ())
    further = zip(groups.further(history.config), tables, strict=False)
    return sum(max(needs(group) - len(table), 0) for group, table in further)


PREDICATES = {
    "V1-R20": Predicate(runs_too_early, one_is_loading, only_with=loads.are_made),
    "V1-R21": Predicate(takes_what_others_need, one_begins_beside_others, only_with=loads.are_made),
    "V1-R22": Predicate(waits_though_loaded, one_has_landed, only_with=loads.are_made),
    "V1-R23": Predicate(
        fills_what_is_written, one_begins_beside_a_writer, only_with=loads.are_made
    ),
    "V1-R24": Predicate(preempted_for_nothing, blocks_run_out_in_flight, only_with=loads.are_made),
    "V1-R25": Predicate(freed_while_sent, one_is_sent, only_with=loads.are_made),
    "V1-R26": Predicate(builds_on_what_failed, one_joins_after_a_failure, only_with=loads.are_made),
    "V1-R27": Predicate(computes_what_can_be_loaded, one_begins, only_with=loads.are_made),
    "V1-R28": Predicate(outlives_its_failed_load, one_fails_now, only_with=loads.are_made),
    "V1-R92": Predicate(
        reads_what_failed_to_load, one_fails_in_its_step, only_with=loads.are_synchronous
    ),
}
