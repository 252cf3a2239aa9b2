"""The scheduler's messages to the worker: each request that it computes, with its blocks, counts
and tokens.

Source: release 0.33.0: SchedulerOutput, CachedRequestData and GPUModelRunner._update_states, with
the comments on what is appended, replaced and removed.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ....model.observation import Sent, Step
from ...rules.predicate import Predicate
from ..history import in_flight, speculation
from ..history.groups import NULL_BLOCK
from ..history.request_history import VllmRequestHistory
from ..history.run import VllmRun, encoded, state_of, worker_after
from ..history.worker import Tables, without_dropped

NOTHING = Sent(computed={})


def with_placeholders(config: Mapping[str, Any]) -> bool:
    return bool(speculation.drafts(config)) and speculation.decides_ahead(config)


def told(step: Step) -> Sent:
    return step.sent or NOTHING


def requests_in_message(history: VllmRun, step: Step) -> Iterator[VllmRequestHistory]:
    """Yield the unfinished requests about which the worker gets a message."""
    for name in told(step).computed:
        if (request := history.live.get(name)) is not None:
            yield request


def unknown_to_the_worker(history: VllmRun, step: Step) -> str | None:
    """The worker is sent each scheduled request: as a whole if it does not have the request,
    otherwise only the changes (V1-R70)."""
    sent = told(step)
    if not step.scheduled.keys() <= sent.computed.keys():
        name = next(name for name in step.scheduled if name not in sent.computed)
        return f"{name} is scheduled, but the worker is not told about it"
    holds = without_dropped(state_of(history).worker, sent)
    for request in requests_in_message(history, step):
        name = request.id
        if name in sent.new:
            if name in holds:
                return f"{name} is sent as a new request, but the worker still has it"
        elif name not in holds:
            return f"{name} is sent in part, but the worker does not have it"
        elif (name in sent.resumed) == request.started:
            if request.started:
                return f"{name} is sent as a resumed request, but it was not preempted"
            return f"{name} starts again, but the worker is told to continue it"
    return None


def worker_is_told(history: VllmRun, step: Step) -> bool:
    return any(name in history.live and history.live[name].started for name in told(step).computed)


def table_differs(history: VllmRun, step: Step) -> str | None:
    """The worker's block tables are those of the scheduler, in every group (V1-R71)."""
    shown, worker = step.blocks or {}, worker_after(history, step)
    groups = step.group_blocks or {}
    # Without `group_blocks`, only the tables of the first group are known.
    known = 1 if step.group_blocks is None else None
    for name in told(step).computed:
        if name not in shown or name not in worker or name not in history.live:
            continue
        own, tables = (shown[name], *groups.get(name, ())), worker[name].tables[:known]
        if own != tables and (place := difference(own, tables)) is not None:
            number, block = place
            return (
                f"block {block} of {name} in group {number}: the scheduler has "
                f"{_shown(own, number, block)}, the worker {_shown(tables, number, block)}"
            )
    return None


def difference(own: Tables, other: Tables) -> tuple[int, int] | None:
    """Return the group and the index of the first block in which two tables differ. Blocks that the
    scheduler has taken back do not count as a difference. Return None if there is none."""
    for number in range(max(len(own), len(other))):
        table = own[number] if number < len(own) else ()
        others = other[number] if number < len(other) else ()
        for place in range(max(len(table), len(others))):
            block = at(own, number, place)
            if block != at(other, number, place) and not (number and block == NULL_BLOCK):
                return number, place
    return None


def at(tables: Tables, number: int, place: int) -> int | None:
    table = tables[number] if number < len(tables) else ()
    return table[place] if place < len(table) else None


def _shown(tables: Tables, number: int, place: int) -> str:
    block = at(tables, number, place)
    return "none" if block is None else str(block)


def table_grows(history: VllmRun, step: Step) -> bool:
    return any(name in history.live and history.live[name].started for name in told(step).blocks)


def count_differs(history: VllmRun, step: Step) -> str | None:
    """The worker is told how many tokens of a request the scheduler has computed (V1-R72)."""
    before = (history.last.computed if history.last is not None else None) or {}
    if told(step).computed.items() <= before.items():
        return None
    for request in requests_in_message(history, step):
        sent = told(step).computed[request.id]
        own = before.get(request.id, 0) if request.started else history.hit_now(step, request)
        if own is not None and sent != own:
            return f"{request.id} has {own} computed tokens, but the worker is told {sent}"
    return None


def token_not_sent(history: VllmRun, step: Step) -> str | None:
    """The first stage of a pipeline has the tokens that it computes (V1-R73)."""
    worker, sent = worker_after(history, step), told(step)
    if not sent.tokens:
        return None
    for request in requests_in_message(history, step):
        if request.id not in sent.tokens or request.id not in step.scheduled:
            continue
        needed = sent.computed[request.id] + step.scheduled[request.id]
        if worker[request.id].tokens < needed:
            return (
                f"{request.id} computes up to token {needed - 1}, but the first stage of the "
                f"pipeline has only {worker[request.id].tokens} of its tokens"
            )
    return None


def token_is_sent(history: VllmRun, step: Step) -> bool:
    return any(history.live[name].emitted for name in told(step).tokens if name in history.live)


def ended_but_kept(history: VllmRun, step: Step) -> str | None:
    """The worker drops an ended request before it computes anything else (V1-R74)."""
    for name in _ended(history, step):
        if name not in told(step).dropped:
            return f"{name} has ended, but the worker is not told to drop it"
    return None


def ended_request_is_dropped(history: VllmRun, step: Step) -> bool:
    return any(True for _ in _ended(history, step))


def _ended(history: VllmRun, step: Step) -> Iterator[str]:
    if not step.scheduled or state_of(history).worker.keys() <= history.live.keys():
        return
    ends = step.finished or {}
    for name in state_of(history).worker:
        if name not in history.live and ends.get(name, "aborted") == "aborted":
            yield name


def dropped_and_computed(history: VllmRun, step: Step) -> str | None:
    """A step does not drop an encoder output that it computes (V1-R75)."""
    dropped = step.encoder_dropped or ()
    for request, image in encoded(history, step):
        if image.name in dropped:
            return (
                f"encoder input {image.name} is computed for {request.id}, and its output is "
                "dropped in the same step"
            )
    return None


def needed_soon_after_it_is_dropped(history: VllmRun, step: Step) -> bool:
    return bool(step.encoder_dropped) and any(True for _ in encoded(history, step))


def encoded_without_data(history: VllmRun, step: Step) -> str | None:
    """The worker has the data of each input that it encodes (V1-R66)."""
    if told(step).inputs is None:
        return None
    worker = worker_after(history, step)
    for request, image in encoded(history, step):
        held = worker[request.id].inputs if request.id in worker else None
        if held is not None and image.number not in held:
            return (
                f"encoder input {image.name} is computed for {request.id}, but the worker does "
                "not have its data"
            )
    return None


def input_of_a_known_request_is_encoded(history: VllmRun, step: Step) -> bool:
    known = state_of(history).worker
    return any(request.id in known for request, _ in encoded(history, step))


def drafts_differ(history: VllmRun, step: Step) -> str | None:
    """The worker verifies as many drafts as the scheduler computes (V1-R67)."""
    drafts = told(step).drafts
    if drafts is None:
        return None
    for request in requests_in_message(history, step):
        tokens, start = step.scheduled.get(request.id, 0), told(step).computed[request.id]
        own = max(start + tokens - request.num_tokens, 0)
        if drafts.get(request.id, 0) != own:
            return (
                f"{request.id} computes {own} drafts, but the worker is sent "
                f"{drafts.get(request.id, 0)}"
            )
    return None


def drafts_are_sent(history: VllmRun, step: Step) -> bool:
    return any(name in history.live for name in told(step).drafts or ())


def placeholder_stays(history: VllmRun, step: Step) -> str | None:
    """The worker replaces all placeholders with drafts that it has proposed (V1-R68)."""
    for name in told(step).placeholders:
        if name in history.live and name not in _with_drafts(history):
            return (
                f"the drafts of {name} are sent as placeholders, but the worker has no drafts to "
                "replace them"
            )
    return None


def _with_drafts(history: VllmRun) -> Collection[str]:
    """Return the requests whose drafts the worker has. The first model runner has only those of the
    last decision. Since 0.25.0, the worker treats a placeholder that it cannot replace as a wrong
    draft."""
    if in_flight.loses_drafts(history):
        return state_of(history).proposed
    return state_of(history).worker.keys()


def placeholder_is_sent(history: VllmRun, step: Step) -> bool:
    return any(name in history.live for name in told(step).placeholders)


PREDICATES = {
    "V1-R70": Predicate(unknown_to_the_worker, worker_is_told),
    "V1-R71": Predicate(table_differs, table_grows),
    "V1-R72": Predicate(count_differs, worker_is_told),
    "V1-R73": Predicate(token_not_sent, token_is_sent),
    "V1-R74": Predicate(ended_but_kept, ended_request_is_dropped),
    "V1-R66": Predicate(encoded_without_data, input_of_a_known_request_is_encoded),
    "V1-R67": Predicate(drafts_differ, drafts_are_sent, only_with=speculation.drafts),
    "V1-R68": Predicate(placeholder_stays, placeholder_is_sent, only_with=with_placeholders),
    "V1-R75": Predicate(dropped_and_computed, needed_soon_after_it_is_dropped),
}
