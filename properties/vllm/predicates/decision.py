"""The decision of vLLM's scheduler in a step, as far as its client can tell.

The client's own account has what was running and how far behind it was; the step shows what ran.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from math import ceil
from typing import Any

from ....model.observation import Step
from ....spec.systems import SYSTEMS
from ...history.per_step_cache import once
from ...history.prefix_hits import caches
from ...rules.pool import blocks_for
from ..history import encoder, in_flight, loads, speculation
from ..history.request_history import VllmRequestHistory
from ..history.run import VllmRun, encoded, outputs_after


@cache
def since(revision: str) -> tuple[str, ...]:
    """The revisions of vLLM from this one on."""
    revisions = SYSTEMS["vllm"].revisions
    return revisions[revisions.index(revision) :]


def key(history: VllmRun, request: VllmRequestHistory) -> tuple[int, int]:
    """Lower goes first: the earlier arrival, by priority the more important one."""
    if history.config.get("policy") == "priority":
        return request.priority, request.arrival
    return 0, request.arrival


@once
def ran_before(history: VllmRun) -> list[VllmRequestHistory]:
    """Unfinished requests that were running after the step before, in the order of that list."""
    names = (history.last.running or ()) if history.last is not None else ()
    return [history.live[name] for name in names if name in history.live]


@once
def waited_before(history: VllmRun) -> list[VllmRequestHistory]:
    """All other unfinished requests, in the order in which they go: parked ones first.

    With more than two decisions in flight preempted requests are set aside in the order of their
    preemptions: there the order that is shown of them counts.
    """
    running = {request.id for request in ran_before(history)}
    waiting = [request for request in history.live.values() if request.id not in running]
    if loads.are_made(history.config):
        return _parked_first(history, waiting)
    if not _set_aside(history):
        return sorted(waiting, key=lambda request: key(history, request))
    shown = (history.last.waiting or ()) if history.last is not None else ()
    places = {name: place for place, name in enumerate(shown)}
    again = [request for request in waiting if request.preemptions]
    again.sort(key=lambda request: places.get(request.id, 0))
    return again + [request for request in waiting if not request.preemptions]


def _parked_first(history: VllmRun, waiting: list[VllmRequestHistory]) -> list[VllmRequestHistory]:
    parked = (history.last.parked or ()) if history.last is not None else ()
    places = {name: place for place, name in enumerate(parked)}
    return sorted(
        waiting, key=lambda request: (places.get(request.id, len(places)), key(history, request))
    )


def place_is_known(history: VllmRun, request: VllmRequestHistory) -> bool:
    """A request stands where its arrival or its priority puts it. Where a connector loads, requests
    are put off, and one that is preempted stands in front of some that came before it; so it does
    where it has passed one that an encoder had no room for."""
    again = request.preemptions > 0 and history.config["policy"] != "priority"
    if not loads.are_made(history.config):
        return not (again and encoder.encodes(history.config))
    return not again and not loads.place_unknown(request)


def _set_aside(history: VllmRun) -> bool:
    """Return preempted requests in the order of their preemptions, the only order that is shown."""
    return in_flight.depth(history.config) >= 3 and history.config["policy"] != "priority"


def order_is_known(history: VllmRun) -> bool:
    """It is known which of the requests that wait goes before which.

    Neither document orders them by priority, and the chapter puts each preempted request in front:
    by priority only an order is known on which all readings agree. Releases sort by priority.
    """
    if history.config.get("policy") == "priority" and history.revision not in since("0.25"):
        line = waited_before(history)
        again = [request.preemptions > 0 for request in line]
        arrivals = [request.arrival for request in line if not request.preemptions]
        return sum(again[1:]) == 0 and arrivals == sorted(arrivals)
    if not _set_aside(history):
        return True
    if loads.are_made(history.config):
        return False
    if history.last is None or history.last.waiting is not None:
        return True
    return sum(bool(request.preemptions) for request in waited_before(history)) < 2


@once
def may_go(history: VllmRun, step: Step) -> list[VllmRequestHistory]:
    """Those that are not admitted in this step although no decision that computes them is on its
    way, no load, and no pause, in the same order."""
    if history.pause:
        return []
    return [
        request
        for request in waited_before(history)
        if request.id not in step.scheduled
        and not in_flight.computed_still(history, request)
        and not _is_loaded(history, step, request)
    ]


def _is_loaded(history: VllmRun, step: Step, request: VllmRequestHistory) -> bool:
    """Return whether a load is in flight, begins in this step, or may have begun, if the request is
    aborted inside the step."""
    if not loads.are_made(history.config):
        return False
    may_begin = request.id in history.aborts_inside and loads.is_new(history.config, request)
    return may_begin or loads.begins_now(request, step) or loads.loading(request)


@once
def preempted(history: VllmRun, step: Step) -> list[VllmRequestHistory]:
    """Requests that lost their blocks in this step."""
    return [history.live[name] for name in step.preempted or () if name in history.live]


@once
def kept(history: VllmRun, step: Step) -> list[VllmRequestHistory]:
    """Requests that were running and were not preempted, in the order of the list."""
    gone = set(step.preempted or ())
    return [request for request in ran_before(history) if request.id not in gone]


@once
def admitted(history: VllmRun, step: Step) -> list[VllmRequestHistory]:
    """Requests that were scheduled and had not been running, in scheduling order."""
    running = {request.id for request in ran_before(history)}
    return [
        history.live[name]
        for name in step.scheduled
        if name in history.live and name not in running
    ]


def behind(history: VllmRun, step: Step, request: VllmRequestHistory) -> int | None:
    """Known tokens of a scheduled request, and its drafts, that were not computed, nor cached, when
    it was scheduled. None where it is not known."""
    hit = 0 if request.started else history.hit_now(step, request)
    if hit is None:
        return None
    drafts = speculation.drafts_to_compute(history.config, request)
    return request.num_tokens + drafts - request.computed - hit


def given(history: VllmRun, step: Step, name: str) -> int:
    """Tokens for which a request was given blocks since it was admitted, at least, where it
    speculates, or was loaded."""
    request = history.live.get(name)
    if request is None or not (speculation.drafts(history.config) or request.slots):
        return 0
    if name not in step.scheduled:
        return request.slots
    computed = computes(history, step, request)
    covered = speculation.slots(history.config, computed) if request.started else computed
    return max(request.slots, covered)


def computes(history: VllmRun, step: Step, request: VllmRequestHistory) -> int:
    """Tokens of a scheduled request that are computed or cached by this step, drafts included."""
    hit = 0 if request.started else history.hit_now(step, request)
    return request.computed + (hit or 0) + step.scheduled[request.id]


def has_output(history: VllmRun, step: Step, image: encoder.Input) -> bool:
    """The worker has the output for an encoder input in this step; False where that is not
    shown."""
    shown = step.encoder_inputs is not None and step.encoder_dropped is not None
    return shown and image.name in outputs_after(history, step)


def input_missing(history: VllmRun, step: Step, request: VllmRequestHistory, token: int) -> bool:
    """This token of a request belongs to an encoder input whose output the worker does not have, or
    may not have."""
    image = encoder.at(request.inputs, token)
    return image is not None and not has_output(history, step, image)


def first_inputs(history: VllmRun, step: Step, request: VllmRequestHistory) -> list[encoder.Input]:
    """The encoder inputs with one of which the work on a waiting request may begin: what it finds
    in the cache is not known."""
    hit = history.max_hit(step, request) if request.inputs and caches(history.config) else 0
    return [image for image in request.inputs if image.start <= hit]


def may_lack_input(history: VllmRun, step: Step, request: VllmRequestHistory) -> bool:
    """The work on a waiting request may begin with an encoder input whose output the worker does
    not have."""
    first = first_inputs(history, step, request)
    return not all(has_output(history, step, image) for image in first)


def encoder_takes(history: VllmRun, step: Step, image: encoder.Input) -> bool:
    """The encoder has budget and room for one more input in this step, in any order of requests:
    the outputs for all inputs of running requests, and of those that ran when the step was decided,
    count as needed. False where the work of the encoder is not shown."""
    if step.encoder_inputs is None or step.encoder_dropped is None:
        return False
    spent = sum(new.tokens for _, new in encoded(history, step))
    may_be_needed = {
        other.name
        for request in history.live.values()
        if request.started or request.id in step.scheduled
        for other in request.inputs
    }
    kept = sum(
        tokens for name, tokens in outputs_after(history, step).items() if name in may_be_needed
    )
    budget = history.config.get("max_num_encoder_input_tokens", 0) - spent
    return bool(image.tokens <= min(budget, history.config.get("encoder_cache_size", 0) - kept))


def waits_for_encoder(history: VllmRun, step: Step, inputs: Iterable[encoder.Input]) -> bool:
    """The encoder may have no budget or no room for one of these inputs, whose output the worker
    does not have."""
    lacks = [image for image in inputs if not has_output(history, step, image)]
    return not all(encoder_takes(history, step, image) for image in lacks)


def threshold(history: VllmRun) -> int:
    """Tokens of one request in one step, at most."""
    budget: int = history.config["max_num_batched_tokens"]
    if is_alone(history):
        return budget
    return min(history.config["long_prefill_token_threshold"] or budget, budget)


def is_alone(history: VllmRun) -> bool:
    """No other request is unfinished, so that the revision has no threshold for this one."""
    return history.revision in since("0.31") and len(history.live) == 1


def may_pad(history: VllmRun) -> bool:
    """The revision may make up drafts for a request that joins a token behind."""
    return history.revision in since("0.25") and speculation.drafts(history.config) > 0


def padding(history: VllmRun, step: Step, request: VllmRequestHistory) -> int:
    """Drafts that may be made up for a scheduled request: it joins in this step, and no request
    that was running computes some of its prompt."""
    if not may_pad(history) or request.started or behind(history, step, request) != 1:
        return 0
    joins = {other.id for other in admitted(history, step)}
    beside = (other for other in history.prefill_members(step) if other.id not in joins)
    return 0 if any(beside) else speculation.drafts(history.config)


def watermark_blocks(config: Mapping[str, Any], *, rounded_up: bool = False) -> int:
    """Blocks that admission leaves free while a request runs."""
    usable = config["num_blocks"]
    rounded = ceil if rounded_up else int
    return rounded(config["watermark"] * (usable + 1)) if usable else 0


def free_unchanged(history: VllmRun, step: Step) -> bool:
    return not step.finished and not history.aborts_inside and not _ended_give_back(history, step)


def _ended_give_back(history: VllmRun, step: Step) -> bool:
    """Return whether blocks of an ended request may come back: its load has landed, or its blocks
    were sent. If blocks are not shown, they may."""
    if not loads.are_made(history.config):
        return False
    held = (history.last.blocks or {}) if history.last is not None else {}
    return step.blocks is None or any(name not in step.blocks for name in held)


def wants(history: VllmRun, request: VllmRequestHistory) -> int:
    """Blocks that a running request takes for what it would compute next, at most."""
    over = in_flight.passed_over(history.config, request)
    tokens = 0 if over else request.num_tokens - request.computed
    tokens += speculation.drafts_to_compute(history.config, request)
    tokens = speculation.slots(history.config, request.computed + min(tokens, threshold(history)))
    return max(blocks_for(history, tokens) - blocks_for(history, request.held_tokens), 0)


def round_may_end(history: VllmRun, request: VllmRequestHistory) -> bool:
    """A running request may lack blocks while those of the victim are written still: then none
    behind it has its turn (V1-R24)."""
    if not loads.meet_decisions(history.config) or history.config["num_blocks"] is None:
        return False
    return wants(history, request) > 0


def names(requests: Iterable[VllmRequestHistory]) -> str:
    return ", ".join(request.id for request in requests)
