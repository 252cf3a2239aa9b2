"""Encoder inputs. They are computed only once and in time, within the encoder's budget, and their
outputs fit into the cache.

Source: release 0.33.0, Scheduler._try_schedule_encoder_inputs, EncoderCacheManager, and the model
runner, which fails with "Encoder cache miss".
"""

from collections.abc import Iterator

from ....model.observation import Step
from ...rules.predicate import Predicate
from ..history import loads, speculation
from ..history.encoder import Input, are_whole, at, encodes
from ..history.request_history import VllmRequestHistory
from ..history.run import VllmRun, encoded, outputs_after, state_of
from .budget import scheduled
from .decision import (
    admitted,
    behind,
    computed_after,
    encoder_takes,
    kept,
    preempted,
    ran_before,
    slots,
    threshold,
)


def output_missing(history: VllmRun, step: Step) -> str | None:
    """A token of an encoder input is computed only if the worker has the input's output, from this
    step or an earlier one (V1-R29)."""
    outputs = outputs_after(history, step)
    for request, image in _reached(history, step):
        if image.name not in outputs:
            return (
                f"{request.id} computes prompt tokens from the range {image.start} to "
                f"{image.end - 1}, but the worker has no output for encoder input {image.name}"
            )
    return None


def some_input_is_reached(history: VllmRun, step: Step) -> bool:
    return any(True for _ in _reached(history, step))


def encoder_budget_exceeded(history: VllmRun, step: Step) -> str | None:
    """An encoder computes at most max_num_encoder_input_tokens tokens in a step (V1-R30)."""
    tokens = sum(image.tokens for _, image in encoded(history, step))
    budget = history.config.get("max_num_encoder_input_tokens", 0)
    if tokens <= budget:
        return None
    return f"the encoder computes {tokens} tokens > max_num_encoder_input_tokens {budget}"


def encoder_budget_binds(history: VllmRun, step: Step) -> bool:
    spent = sum(image.tokens for _, image in encoded(history, step))
    remaining = history.config.get("max_num_encoder_input_tokens", 0) - spent
    return any(image.tokens > remaining for _, image in _stops(history, step))


def outputs_too_many(history: VllmRun, step: Step) -> str | None:
    """The kept encoder outputs fit into encoder_cache_size (V1-R31)."""
    tokens, room = (
        sum(outputs_after(history, step).values()),
        history.config.get("encoder_cache_size", 0),
    )
    if tokens <= room:
        return None
    return f"the kept encoder outputs have {tokens} tokens > encoder_cache_size {room}"


def some_output_is_dropped(history: VllmRun, step: Step) -> bool:
    return bool(step.encoder_dropped and step.encoder_inputs)


def computed_again(history: VllmRun, step: Step) -> str | None:
    """An input is encoded once, when a request reaches it, and not while its output is kept
    (V1-R32)."""
    dropped, seen = set(step.encoder_dropped or ()), set[str]()
    kept = sum(state_of(history).outputs.values())
    ahead = speculation.read_ahead(history.config)
    needed = [(request.id, image) for request, image in _reached(history, step, ahead)]
    for request, image in encoded(history, step):
        # An output that is dropped and recomputed in the same step is not shown as dropped.
        full = kept > history.config.get("encoder_cache_size", 0)
        cached = image.name in state_of(history).outputs and image.name not in dropped
        if image.name in seen or (cached and not full):
            return (
                f"encoder input {image.name} is computed for {request.id}, although its output is "
                "kept"
            )
        not_known = request.id in step.scheduled and behind(history, step, request) is None
        if (request.id, image) not in needed and not not_known:
            return f"encoder input {image.name} is computed, but {request.id} does not reach it"
        seen.add(image.name)
        kept += image.tokens
    return None


def some_output_is_used_again(history: VllmRun, step: Step) -> bool:
    new = [(request.id, image) for request, image in encoded(history, step)]
    return any((request.id, image) not in new for request, image in _reached(history, step))


def stops_needlessly(history: VllmRun, step: Step) -> str | None:
    """A request stops at an input only if the encoder lacks budget or room for it (V1-R33)."""
    if history.config["policy"] == "priority" and preempted(history, step):
        return None  # a preempted request may have given back its share and its outputs
    for request, image in _stops(history, step):
        if encoder_takes(history, step, image):
            return (
                f"{request.id} stops before encoder input {image.name!r}, although the encoder "
                "has budget and room for it"
            )
    return None


def some_request_stops(history: VllmRun, step: Step) -> bool:
    return any(True for _ in _stops(history, step))


def dropped_while_read(history: VllmRun, step: Step) -> str | None:
    """The output of an input is not dropped while a running request has computed only a part of
    that input (V1-R34)."""
    dropped = set(step.encoder_dropped or ())
    for request, image in _in_the_middle(history, step):
        if image.name in dropped:
            return (
                f"the output of encoder input {image.name} is dropped, and {request.id} has "
                f"computed {request.computed - image.start} of its {image.tokens} tokens"
            )
    return None


def dropped_beside_one_in_the_middle(history: VllmRun, step: Step) -> bool:
    return bool(step.encoder_dropped) and any(True for _ in _in_the_middle(history, step))


def dropped_needlessly(history: VllmRun, step: Step) -> str | None:
    """An output is dropped only if there is no room for another one (V1-R94)."""
    if not some_drop_is_judged(history, step):
        return None
    sizes = state_of(history).outputs
    dropped = {name: sizes[name] for name in step.encoder_dropped or () if name in sizes}
    tokens = sum(outputs_after(history, step).values())
    room = history.config["encoder_cache_size"]
    # It is unknown which output was dropped last. Until that one was dropped, there must have been
    # too little room.
    if not dropped or tokens + max(dropped.values()) > room:
        return None
    return (
        f"the outputs of {', '.join(dropped)} are dropped, although the cache has room for "
        f"{room} tokens and needs {tokens + max(dropped.values())}"
    )


def some_drop_is_judged(history: VllmRun, step: Step) -> bool:
    if not step.encoder_dropped or history.events:
        return False
    return not any(_may_be_tried_in_vain(history, step, r) for r in history.live.values())


def _may_be_tried_in_vain(history: VllmRun, step: Step, request: VllmRequestHistory) -> bool:
    """Return whether the step may have tried this request in vain. A scheduler that tries a request
    may drop outputs to make room for its inputs, and then give it no tokens, for example because
    too few blocks are free."""
    if not request.inputs or (
        request.id in step.scheduled and request.id not in (step.preempted or ())
    ):
        return False
    ran = ran_before(history)
    if request not in ran and (history.pause or len(ran) >= slots(history)):
        return False
    outputs = outputs_after(history, step)
    return any(image.name not in outputs for image in request.inputs)


def input_is_split(history: VllmRun, step: Step) -> str | None:
    """A step computes all tokens of an input or none, unless the input is longer than the threshold
    (V1-R91)."""
    for request, image in _reached(history, step):
        end = computed_after(history, step, request)
        begins = image.start >= end - step.scheduled[request.id]
        if begins and end < image.end and image.tokens <= threshold(history):
            return (
                f"{request.id} computes {end - image.start} of the {image.tokens} tokens of "
                f"encoder input {image.name}"
            )
    return None


def an_input_waits(history: VllmRun, step: Step) -> bool:
    return any(True for _ in _stops(history, step))


def _in_the_middle(history: VllmRun, step: Step) -> Iterator[tuple[VllmRequestHistory, Input]]:
    """Yield running requests that have computed a part of an encoder input."""
    for request in kept(history, step):
        image = at(request.inputs, request.computed)
        if image is not None and image.start < request.computed:
            yield request, image


def _reached(
    history: VllmRun, step: Step, ahead: int = 0
) -> Iterator[tuple[VllmRequestHistory, Input]]:
    """Yield each request with the inputs that it reaches in the step, or within `ahead` tokens
    after the step."""
    for request in scheduled(history, step):
        if not request.inputs or behind(history, step, request) is None:
            continue
        end = computed_after(history, step, request)
        start = end - step.scheduled[request.id]
        for image in request.inputs:
            if image.start < end + ahead and image.end > start:
                yield request, image


def _stops(history: VllmRun, step: Step) -> Iterator[tuple[VllmRequestHistory, Input]]:
    """Yield each request that stops at an encoder input although it could continue, together with
    that input."""
    if history.pause == "pause_all":
        return
    outputs = outputs_after(history, step)
    remaining = history.config["max_num_batched_tokens"] - sum(step.scheduled.values())
    for request in kept(history, step) + admitted(history, step):
        tokens = step.scheduled.get(request.id, 0)
        if not request.inputs or remaining <= 0 or tokens >= threshold(history):
            continue
        if tokens and behind(history, step, request) is None:
            continue
        reached = computed_after(history, step, request) if tokens else request.computed
        image = at(request.inputs, reached)
        if image is None or image.name in outputs:
            continue
        round_ended = not tokens and loads.meet_decisions(history.config)
        if not round_ended and (image.start == reached or not tokens):
            yield request, image


PREDICATES = {
    "V1-R29": Predicate(output_missing, some_input_is_reached, only_with=encodes),
    "V1-R30": Predicate(encoder_budget_exceeded, encoder_budget_binds, only_with=encodes),
    "V1-R31": Predicate(outputs_too_many, some_output_is_dropped, only_with=encodes),
    "V1-R32": Predicate(computed_again, some_output_is_used_again, only_with=encodes),
    "V1-R91": Predicate(input_is_split, an_input_waits, only_with=are_whole),
    "V1-R33": Predicate(stops_needlessly, some_request_stops, only_with=encodes),
    "V1-R34": Predicate(dropped_while_read, dropped_beside_one_in_the_middle, only_with=encodes),
    "V1-R94": Predicate(dropped_needlessly, some_drop_is_judged, only_with=encodes),
}
