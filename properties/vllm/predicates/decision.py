"""The decision of vLLM's scheduler in a step, as far as a client can tell.

The client's history tells which requests ran before the step, and how many tokens they still had to
compute. The step shows which of them were scheduled.

While a request waits for something other than blocks, such as its grammar, it is *set aside*: other
requests may overtake it, and preempted requests are put behind it.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from math import ceil
from typing import Any

from ....model.observation import Step
from ....spec.systems import SYSTEMS
from ...history.per_step_cache import once
from ...history.prefix_hits import caches
from ...rules.pool import blocks_for
from ..history import blocked, encoder, groups, in_flight, loads, partitions, sessions, speculation
from ..history.request_history import VllmRequestHistory
from ..history.run import VllmRun, encoded, outputs_after, shown_behind


@cache
def since(revision: str) -> tuple[str, ...]:
    """Return the names of this revision of vLLM and of all later ones."""
    revisions = SYSTEMS["vllm"].revisions
    return revisions[revisions.index(revision) :]


def key(history: VllmRun, request: VllmRequestHistory) -> tuple[int, int]:
    """Return the sort key of a request: its arrival or, under the priority policy, its importance.
    Lower keys come first."""
    if history.config.get("policy") == "priority":
        return request.priority, request.arrival
    return 0, request.arrival


@once
def ran_before(history: VllmRun) -> list[VllmRequestHistory]:
    """Return the unfinished requests of the previous step's `running`, in the order of that
    list."""
    names = (history.last.running or ()) if history.last is not None else ()
    return [history.live[name] for name in names if name in history.live]


@once
def waited_before(history: VllmRun) -> list[VllmRequestHistory]:
    """Return the unfinished requests that did not run, in the order in which they are considered,
    parked ones first.

    In three cases, the order is taken from the target, because it cannot be computed: with
    sessions; with more than two decisions in flight, because preempted requests are then set aside
    in the order of their preemptions; and if requests wait for a grammar, because admission might
    then not be in order of arrival.
    """
    running = {request.id for request in ran_before(history)}
    waiting = [request for request in history.live.values() if request.id not in running]
    if loads.are_made(history.config):
        return _parked_first(history, waiting)
    if sessions.are_held(history.config):
        line = (history.last.waiting or ()) if history.last is not None else ()
        places = {name: place for place, name in enumerate(line)}
        return sorted(waiting, key=lambda request: places.get(request.id, len(places)))
    if not _order_is_shown(history):
        if history.config.get("policy") != "priority":
            return waiting  # unfinished requests are in order of arrival
        return sorted(waiting, key=lambda request: key(history, request))
    shown = (history.last.waiting or ()) if history.last is not None else ()
    places = {name: place for place, name in enumerate(shown)}
    again = [request for request in waiting if request.preemptions]
    again.sort(key=lambda request: places.get(request.id, 0))
    new = [request for request in waiting if not request.preemptions]
    first = [request for request in new if _goes_ahead(history, request, waiting, places)]
    return first + again + [request for request in new if request not in first]


def _goes_ahead(
    history: VllmRun,
    request: VllmRequestHistory,
    waiting: list[VllmRequestHistory],
    places: Mapping[str, int],
) -> bool:
    """Return whether a request that was set aside is in front of all others.

    No document says whether such a request keeps its place, so the target's queue decides.
    """
    if not was_set_aside(history, request):
        return False
    later = places.get(request.id, len(places))
    return not any(
        places.get(other.id, len(places)) < later and other.arrival < request.arrival
        for other in waiting
        if not (other.preemptions or was_set_aside(history, other))
    )


def _parked_first(history: VllmRun, waiting: list[VllmRequestHistory]) -> list[VllmRequestHistory]:
    parked = (history.last.parked or ()) if history.last is not None else ()
    places = {name: place for place, name in enumerate(parked)}
    return sorted(
        waiting, key=lambda request: (places.get(request.id, len(places)), key(history, request))
    )


def place_is_known(history: VllmRun, request: VllmRequestHistory) -> bool:
    """Return whether a request's place follows from its arrival or its priority.

    With a connector, requests may be deferred, and a preempted request may be in front of some that
    arrived earlier. A preempted request may also have overtaken a request that lacked room in the
    encoder's cache, or a slot for its adapter.
    """
    again = request.preemptions > 0 and history.config["policy"] != "priority"
    if not loads.are_made(history.config):
        return not (again and _may_overtake(history))
    return not again and not loads.place_unknown(request)


def places_are_known(history: VllmRun) -> bool:
    if not loads.are_made(history.config) and not _may_overtake(history):
        return True
    return all(place_is_known(history, request) for request in waited_before(history))


@once
def _may_overtake(history: VllmRun) -> bool:
    """Return whether an unfinished request may have been overtaken because it lacked room in the
    encoder's cache or a slot for its adapter."""
    requests = history.live.values()
    if partitions.adapters_are_limited(history.config) and partitions.have_adapters(requests):
        return True
    return any(request.inputs for request in requests)


def lacks_adapter_slot(history: VllmRun, step: Step, request: VllmRequestHistory) -> bool:
    """Return whether no adapter slot was left for this request when its turn came: the running
    requests, and those that the step admits before it, use all slots for other adapters."""
    slots, (adapter, _) = history.config.get("max_loras"), request.partition
    if not slots or adapter is None:
        return False
    later = shown_behind(history, request)
    before = (other for other in admitted(history, step) if other.id not in later)
    used = {other.partition[0] for other in (*kept(history, step), *before)} - {None}
    return len(used) >= slots and adapter not in used


def _set_aside(history: VllmRun) -> bool:
    """Return whether preempted requests are set aside. Only the target can show their order
    then."""
    return in_flight.depth(history.config) >= 3 and history.config["policy"] != "priority"


def _order_is_shown(history: VllmRun) -> bool:
    grammars = blocked.can_be(history.config) and history.config["policy"] != "priority"
    return bool(grammars) or _set_aside(history)


def was_set_aside(history: VllmRun, request: VllmRequestHistory) -> bool:
    """Return whether a request is in front of others because it was set aside: it had to wait for
    its grammar, or perhaps for an adapter slot. Since 0.31.0, such a request keeps its place."""
    limited = partitions.adapters_are_limited(history.config)
    waited = request.arrived_blocked or (limited and request.partition[0] is not None)
    return waited and history.revision not in since("0.31")


def _may_have_jumped(history: VllmRun) -> bool:
    """Return whether a request may have been set aside without being shown, because its grammar was
    compiled at once."""
    if not blocked.can_be(history.config):
        return False
    shown = (history.last.waiting or ()) if history.last is not None else ()
    return any(
        request.id not in shown and not request.blocked and was_set_aside(history, request)
        for request in waited_before(history)
    )


def order_is_known(history: VllmRun) -> bool:
    """Return whether the order of the waiting requests is known.

    The documents do not sort waiting requests by priority, and the chapter puts each preempted
    request in front. So under the priority policy, the order is known only if all readings of the
    documents agree on it. Releases sort by priority.
    """
    if history.config.get("policy") == "priority" and history.revision not in since("0.25"):
        line = waited_before(history)
        again = [request.preemptions > 0 for request in line]
        arrivals = [request.arrival for request in line if not request.preemptions]
        aside = any(was_set_aside(history, request) for request in line)
        return sum(again[1:]) == 0 and arrivals == sorted(arrivals) and not aside
    if sessions.are_held(history.config):
        shows = history.last is None or history.last.waiting is not None
        return shows and not _may_have_jumped(history)
    if not _order_is_shown(history):
        return True
    if loads.are_made(history.config):
        return False
    line = waited_before(history)
    if history.last is None or history.last.waiting is not None:
        return not _may_have_jumped(history)
    aside = any(was_set_aside(history, request) for request in line)
    return not aside and sum(bool(request.preemptions) for request in line) < 2


@once
def places_by_arrival(history: VllmRun) -> dict[str, int]:
    return {name: place for place, name in enumerate(history.live)}


def surely_in_front(
    history: VllmRun, request: VllmRequestHistory, others: Iterable[VllmRequestHistory]
) -> Iterator[VllmRequestHistory]:
    """Yield the waiting requests among `others` that are in front of this one no matter how the
    documents are read. They may exist even if the order of the whole queue is unknown
    (`order_is_known`).

    Under the priority policy, two conditions must hold for such a request. First, it is more
    important, or equally important and earlier. Second, it was preempted, or arrived earlier. If
    this request itself was preempted, nothing is yielded, because the documents can be read in
    different ways.
    """
    by_priority = history.config.get("policy") == "priority" and not request.preemptions
    if not by_priority or loads.are_made(history.config) or was_set_aside(history, request):
        return
    places = places_by_arrival(history)
    own = request.priority, places[request.id]
    for other in others:
        place = places[other.id]
        if (other.priority, place) < own and (other.preemptions or place < own[1]):
            yield other


def may_be_admitted(history: VllmRun, step: Step) -> Iterator[VllmRequestHistory]:
    """Return the waiting requests that could be admitted, in queue order.

    Leave out requests with a decision or a load in flight, and those that wait for their grammar or
    an adapter slot. While the scheduler is paused, there are none.
    """
    return (
        request
        for request in (() if history.pause else waited_before(history))
        if request.id not in step.scheduled
        and not (request.blocked or request.invalid)
        and not in_flight.is_still_computed(history, request)
        and not lacks_adapter_slot(history, step, request)
        and not _is_loaded(history, step, request)
    )


def _is_loaded(history: VllmRun, step: Step, request: VllmRequestHistory) -> bool:
    """Return whether the load of a request is in flight or begins in this step. For a request that
    is aborted inside the step, return whether its load may have begun in the step."""
    if not loads.are_made(history.config):
        return False
    may_begin = request.id in history.aborts_inside and loads.is_new(history.config, request)
    return may_begin or loads.begins_now(request, step) or loads.loading(request)


@once
def preempted(history: VllmRun, step: Step) -> list[VllmRequestHistory]:
    """Return the preempted requests, except sessions that lost their blocks between two turns."""
    gone = [history.live[name] for name in step.preempted or () if name in history.live]
    return [request for request in gone if not request.between_turns]


def slots(history: VllmRun) -> int:
    """Return how many requests may run in the coming step. Slots that sessions keep while they wait
    for input are not counted."""
    active = history.config.get("max_num_active_seqs") or history.config["max_num_seqs"]
    return int(active) - len(sessions.awaiting(history.live))


@once
def kept(history: VllmRun, step: Step) -> list[VllmRequestHistory]:
    """Return the requests that were running and were not preempted, in the order of `running`."""
    gone = set(step.preempted or ())
    return [request for request in ran_before(history) if request.id not in gone]


@once
def admitted(history: VllmRun, step: Step) -> list[VllmRequestHistory]:
    """Return the requests that were scheduled but had not been running, in scheduling order."""
    running = {request.id for request in ran_before(history)}
    return [
        history.live[name]
        for name in step.scheduled
        if name in history.live and name not in running
    ]


@once
def missing(history: VllmRun, step: Step) -> dict[str, int | None]:
    """Return, for each scheduled request, how many tokens it had left to compute: known tokens and
    drafts that were neither computed nor cached when it was scheduled. None means that the number
    is unknown."""
    left: dict[str, int | None] = {}
    for name in step.scheduled:
        if (request := history.live.get(name)) is None:
            continue
        hit = 0 if request.started else history.hit_now(step, request)
        drafts = speculation.drafts_to_compute(history.config, request)
        tokens = request.num_tokens + drafts - request.computed
        left[name] = None if hit is None else tokens - hit
    return left


def behind(history: VllmRun, step: Step, request: VllmRequestHistory) -> int | None:
    """Return how many tokens a scheduled request had left to compute, or None if that is
    unknown."""
    return missing(history, step)[request.id]


def surely_given(history: VllmRun, step: Step, name: str) -> int:
    """Return the number of tokens for which a request with drafts or a load certainly has
    blocks."""
    request = history.live.get(name)
    if request is None or not (speculation.drafts(history.config) or request.slots):
        return 0
    if name not in step.scheduled:
        return request.slots
    computed = computed_after(history, step, request)
    covered = speculation.slots(history.config, computed) if request.started else computed
    return max(request.slots, covered)


def computed_after(history: VllmRun, step: Step, request: VllmRequestHistory) -> int:
    """Return how many tokens of a request are computed or cached after this step, including
    drafts."""
    hit = 0 if request.started else history.hit_now(step, request)
    return request.computed + (hit or 0) + step.scheduled[request.id]


def has_output(history: VllmRun, step: Step, image: encoder.Input) -> bool:
    """Return whether the step shows that the worker has the output of an encoder input. Return
    False if the request may have to wait for another reason."""
    if encoder.are_whole(history.config):
        return False
    shown = step.encoder_inputs is not None and step.encoder_dropped is not None
    return shown and image.name in outputs_after(history, step)


def input_missing(history: VllmRun, step: Step, request: VllmRequestHistory, token: int) -> bool:
    """Return whether the encoder output that this token needs may be missing."""
    images = {encoder.at(request.inputs, token + more) for more in (0, stops_ahead(history))}
    return not all(image is None or has_output(history, step, image) for image in images)


def stops_ahead(history: VllmRun) -> int:
    """Return how many tokens before an encoder input a request may stop if the input has no output:
    as many tokens as its drafter reads ahead. Since 0.33.0, the request stops right before the
    input, unless inputs must be computed in one step."""
    before_it = history.revision in since("0.33") and not encoder.are_whole(history.config)
    return 0 if before_it else speculation.read_ahead(history.config)


def first_inputs(history: VllmRun, step: Step, request: VllmRequestHistory) -> list[encoder.Input]:
    """Return the encoder inputs with which a request may begin if its cache hit is unknown."""
    hit = history.max_hit(step, request) if request.inputs and caches(history.config) else 0
    return [image for image in request.inputs if image.start <= hit + stops_ahead(history)]


def may_lack_input(history: VllmRun, step: Step, request: VllmRequestHistory) -> bool:
    """Return whether a waiting request may begin with an encoder input whose output is missing."""
    first = first_inputs(history, step, request)
    return not all(has_output(history, step, image) for image in first)


def encoder_takes(history: VllmRun, step: Step, image: encoder.Input) -> bool:
    """Return whether the encoder certainly has budget and room for one more input in this step,
    whatever the order of the inputs.

    The output of an input counts as needed if its request is running now, or was running when the
    step was decided. It no longer counts once all tokens of the input are computed, unless there
    are drafts or several decisions may be in flight. The result is False if the work of the encoder
    is not shown, or if the step has no room for all tokens of an input.
    """
    if step.encoder_inputs is None or step.encoder_dropped is None:
        return False
    if encoder.are_whole(history.config):
        return False
    spent = sum(new.tokens for _, new in encoded(history, step))
    at_once = in_flight.depth(history.config) == 1 and not speculation.drafts(history.config)
    may_be_needed = {
        other.name
        for request in history.live.values()
        if request.started or request.id in step.scheduled
        for other in request.inputs
        if not at_once or other.start + other.tokens > request.computed
    }
    kept = sum(
        tokens for name, tokens in outputs_after(history, step).items() if name in may_be_needed
    )
    budget = history.config.get("max_num_encoder_input_tokens", 0) - spent
    return bool(image.tokens <= min(budget, history.config.get("encoder_cache_size", 0) - kept))


def waits_for_encoder(history: VllmRun, step: Step, inputs: Iterable[encoder.Input]) -> bool:
    """Return whether one of these inputs has no output yet, and the encoder may lack budget or room
    for it."""
    lacks = [image for image in inputs if not has_output(history, step, image)]
    return not all(encoder_takes(history, step, image) for image in lacks)


def threshold(history: VllmRun) -> int:
    budget: int = history.config["max_num_batched_tokens"]
    return min(prefill_limit(history) or budget, budget)


def prefill_limit(history: VllmRun) -> int:
    """Return the threshold that applies in the coming step; 0 if there is none."""
    limit = int(history.config["long_prefill_token_threshold"])
    if not limit or is_alone(history):
        return 0
    return max(limit, fair_share(history))


def threshold_adapts(config: Mapping[str, Any]) -> bool:
    return bool(config.get("long_prefill_token_threshold_adaptive"))


def fair_share(history: VllmRun) -> int:
    """Return each unfinished request's share of the budget, in tokens, if the threshold adapts to
    the number of requests; otherwise 0."""
    if not threshold_adapts(history.config):
        return 0
    return int(history.config["max_num_batched_tokens"]) // max(unfinished(history), 1)


def unfinished(history: VllmRun) -> int:
    """Return the number of unfinished requests at the time of the decision, including those that
    are aborted inside the step."""
    return len(history.live.keys() | history.aborts_inside)


def lacks_budget_for_a_block(history: VllmRun, step: Step) -> bool:
    """Return whether chunks end at block boundaries and less than a block is left of the budget."""
    remaining = history.config["max_num_batched_tokens"] - sum(step.scheduled.values())
    most = min(threshold(history), remaining)
    return groups.aligns(history.config) and most < int(history.config["block_size"])


def is_alone(history: VllmRun) -> bool:
    """Return whether only one request is unfinished, and the revision applies no threshold to a
    lone request."""
    return history.revision in since("0.31") and unfinished(history) == 1


def may_pad(history: VllmRun) -> bool:
    """Return whether the revision may pad a joining request that has one token to compute."""
    dynamic = history.config.get("num_speculative_tokens_per_batch_size")
    drafts = speculation.drafts(history.config) > 0
    return history.revision in since("0.25") and drafts and not dynamic


def padding(history: VllmRun, step: Step, request: VllmRequestHistory) -> int:
    """Return the number of drafts with which a scheduled request may be padded. It is 0 unless the
    request joins in this step and no running request is computing its prompt."""
    if not may_pad(history) or request.started or behind(history, step, request) != 1:
        return 0
    joins = {other.id for other in admitted(history, step)}
    beside = (other for other in history.prefill_members(step) if other.id not in joins)
    return 0 if any(beside) else speculation.drafts(history.config)


def watermark_blocks(config: Mapping[str, Any], *, rounded_up: bool = False) -> int:
    """Return the number of blocks that admission leaves free while a request runs."""
    usable = config["num_blocks"]
    rounded = ceil if rounded_up else int
    return rounded(config["watermark"] * (usable + 1)) if usable else 0


def most_new_blocks(history: VllmRun, request: VllmRequestHistory) -> int:
    """Return the largest number of blocks that a running request may take for its next tokens."""
    needed = blocks_for(history, most_slots(history, request))
    return max(needed - blocks_for(history, request.held_tokens), 0)


def most_slots(history: VllmRun, request: VllmRequestHistory) -> int:
    """Return the largest number of tokens for which a running request may need blocks next."""
    over = in_flight.passed_over(history.config, request)
    tokens = 0 if over else request.num_tokens - request.computed
    tokens += speculation.drafts_to_compute(history.config, request)
    return speculation.slots(history.config, request.computed + min(tokens, threshold(history)))


def round_may_end(history: VllmRun, request: VllmRequestHistory) -> bool:
    """Return whether a running request may lack blocks because decisions in flight still write to
    the blocks of a preempted request. If so, later requests are not scheduled in this step
    (V1-R24)."""
    if not loads.meet_decisions(history.config) or history.config["num_blocks"] is None:
        return False
    held, slots = request.held_tokens, most_slots(history, request)
    if blocks_for(history, slots) > blocks_for(history, held):
        return True
    return groups.begins_a_block(history.config, held, slots)


def names(requests: Iterable[VllmRequestHistory]) -> str:
    return ", ".join(request.id for request in requests)
