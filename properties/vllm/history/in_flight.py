"""Decisions in flight: what a client knows about tokens that are computed but not emitted yet.

Source: target protocol, "The step observation"; release 0.28.0, the engine core's queue of batches.
"""

from collections.abc import Collection, Mapping
from typing import Any

from ....model.observation import Step
from . import speculation
from .blocked import can_be
from .request_history import VllmRequestHistory
from .run import Coming, Flight, VllmRun, requests_of, state_of

Config = Mapping[str, Any]
DOCUMENTED = "documented"  # the revision of all releases before 0.25.0


def depth(config: Config) -> int:
    return speculation.depth(config)


def turn(config: Config) -> int:
    """Return the smallest number of steps between two decisions that yield a token of the same
    request, or 0 if there is no minimum (V1-R50)."""
    stages = speculation.stages(config)
    ahead = speculation.has_v2_runner(config) and speculation.decides_ahead(config)
    return stages if ahead and stages > 1 else 0


def holds_grammars(config: Config) -> bool:
    """Return whether requests with a grammar must sometimes rest, that is, be left out of a step.
    Otherwise, a mask could be made while tokens before it are still in flight (V1-R64)."""
    several = speculation.decides_ahead(config) and depth(config) > 2
    return can_be(config) and several and not turn(config)


def hold_grammars(history: VllmRun) -> None:
    """Make requests rest in the coming step if they have a grammar and a token in flight, unless
    that token comes with the oldest decision."""
    later = [flight.items() for flight in state_of(history).flights[1:]]
    names = {name for items in later for name, coming in items if coming is not None}
    for request in requests_of(history.live).values():
        request.rests = int(request.arrived_blocked and request.id in names)


def rest(history: VllmRun) -> None:
    """If the scheduler was asked for a decision, subtract 1 from the number of steps for which each
    request must rest before it may be scheduled again (V1-R50). `history` does not yet know which
    requests end in the step."""
    ended = len(history.requests) + history.forgotten - len(history.live)
    if is_decided(history, ended):
        for request in history.live.values():
            request.rests = max(request.rests - 1, 0)
    history.system_state = state_of(history)._replace(ended=ended)


def is_decided(history: VllmRun, ended: int) -> bool:
    """Return whether the engine core asks the scheduler for a decision in the step. `ended` is the
    number of requests that have ended before the step.

    While everything is paused, it asks only if a request has ended since the last decision, because
    the worker must be told. While only new requests are paused, it also asks if a request is
    running.

    Source: release 0.33.0: EngineCore.step_with_batch_queue, Scheduler.has_requests.
    """
    if history.pause is None or ended > state_of(history).ended:
        return True
    ran = history.last is not None and bool(history.last.running)
    return history.pause == "pause_new" and ran


def completes(history: VllmRun, step: Step) -> Collection[str]:
    """Return the requests whose decision completes in this step.

    The decision that completes is the step's own or, if several are in flight, the oldest one. In
    the second case, none completes unless the worker reports.
    """
    if history.features.depth(history.config) == 1:
        return step.scheduled
    flights = state_of(history).flights
    if step.scheduled:
        flights = (*flights, dict.fromkeys(step.scheduled))
    return flights[0] if flights and reports(history, step) else ()


def record_decision(history: VllmRun, step: Step) -> Mapping[str, Coming]:
    """Record that the decision of a step is in flight, with its tokens. Return, for each request,
    the token of the decision that completes.

    If decisions are made ahead, new drafts are proposed with each decision.
    """
    config, requests, state = history.config, history.requests, state_of(history)
    decided = len(step.scheduled)
    flight = {name: _coming(config, requests.get(name), decided) for name in step.scheduled}
    if history.features.depth(config) == 1:
        return _with_a_token(flight)
    for name, coming in flight.items():
        if name in requests:
            began = requests[name].computed - step.scheduled[name]
            requests[name].begun = (*requests[name].begun, began)
        if coming is not None:
            requests[name].tokens_in_flight += 1
            requests[name].drafts_in_flight += coming.drafts
            ahead = speculation.decides_ahead(config)
            requests[name].drafted = speculation.drafts_after(config, decided) if ahead else 0
            requests[name].rests = turn(config)
    if flight and loses_drafts(history):
        for name in history.live.keys() - flight.keys():
            requests[name].drafted = 0
    over = reports(history, step)
    early = state.early + 1 if over and not _is_waited_for(history, step) else 0
    flights = (*state.flights, flight) if flight else state.flights
    complete: Flight = {}
    if flights and over:
        complete, *rest = flights
        flights = tuple(rest)
        for name in complete.keys() & requests.keys():
            requests[name].begun = requests[name].begun[1:]
    history.system_state = state._replace(flights=flights, early=early)
    return _with_a_token(complete)


def loses_drafts(history: VllmRun) -> bool:
    """Return whether a request loses its drafts when a decision leaves it out. It does if the
    worker keeps only the drafts of the last decision (V1-R68)."""
    config = history.config
    return (
        speculation.decides_ahead(config)
        and speculation.stages(config) == 1
        and not speculation.has_v2_runner(config)
        and history.revision == DOCUMENTED
    )


def drop_running(history: VllmRun) -> None:
    """Record that the tokens in flight of all running requests will not arrive."""
    names = (history.last.running or ()) if history.last is not None else ()
    for name in names:
        if name in history.requests:
            history.requests[name].begun = ()
    drop(history, names)


def drop(history: VllmRun, names: Collection[str]) -> None:
    """Record that the tokens in flight of these requests will not arrive."""
    state = state_of(history)
    if history.kept is not None:
        for name in names:
            history.kept.in_flight.pop(name, None)
    flights = tuple(
        {name: coming for name, coming in flight.items() if name not in names}
        for flight in state.flights
    )
    history.system_state = state._replace(flights=flights)


def _coming(config: Config, request: VllmRequestHistory | None, requests: int) -> Coming | None:
    """Return the token that a decision will emit for a request, or None if the decision does not
    compute all known tokens."""
    if request is None or request.computed < request.num_tokens:
        return None
    if not speculation.drafts(config):
        return Coming(computed=request.computed)
    drafts = speculation.drafts_computed(request, 0)
    proposed = 0 if speculation.loses_drafts(config, request) else min(drafts, request.drafted)
    return Coming(drafts, proposed, request.computed, requests)


def _with_a_token(flight: Flight) -> dict[str, Coming]:
    return {name: coming for name, coming in flight.items() if coming is not None}


def reports(history: VllmRun, step: Step) -> bool:
    """Return whether the worker reports in this step.

    The worker reports if the pipeline is full, if there was nothing to compute, or if a mask
    depends on a token in flight. It may also report early, in up to `early_completions` consecutive
    steps.
    """
    if step.completes is not None:  # a recording decides this
        return step.completes
    fast = state_of(history).early < int(history.config.get("early_completions", 0))
    return fast or _is_waited_for(history, step)


def _is_waited_for(history: VllmRun, step: Step) -> bool:
    flights = state_of(history).flights
    if not step.scheduled or len(flights) + 1 >= history.features.depth(history.config):
        return True
    return can_be(history.config) and any(
        flight.get(name) is not None and requests_of(history.live)[name].arrived_blocked
        for flight in flights
        for name in step.scheduled.keys() & history.live.keys()
    )


def completing_decision(history: VllmRun, step: Step) -> Flight:
    """Return the earlier decision that completes in this step, or an empty decision if none
    does."""
    flights = state_of(history).flights
    return flights[0] if flights and reports(history, step) else {}


def passed_over(config: Config, request: VllmRequestHistory) -> bool:
    """Return whether a running request has nothing to compute until a token in flight arrives.

    There are five possible reasons: that token is the request's last one; it fills max_model_len;
    the next step is not decided ahead; the tokens in flight would fill all positions if every draft
    were correct; or it is not the request's turn (V1-R50).
    """
    if request.rests:
        return True
    if not request.tokens_in_flight:
        return False
    if (
        not speculation.decides_ahead(config)
        or request.emitted + request.tokens_in_flight >= request.max_tokens
        or request.computed >= int(config["max_model_len"]) - 1
    ):
        return True
    return request.num_tokens + speculation.drafts_to_compute(config, request) <= request.computed


def is_still_computed(history: VllmRun, request: VllmRequestHistory) -> bool:
    """Return whether a decision in flight still computes this request, which is no longer
    running."""
    return any(request.id in flight for flight in state_of(history).flights)


def deliver(request: VllmRequestHistory, tokens: int, coming: Coming) -> None:
    """Record that tokens in flight have arrived. A request that was preempted in the meantime must
    compute these tokens again, along with all others."""
    request.tokens_in_flight = max(request.tokens_in_flight - min(tokens, 1), 0)
    request.drafts_in_flight = max(request.drafts_in_flight - coming.drafts, 0)
    if not request.started:
        request.regenerated += tokens
