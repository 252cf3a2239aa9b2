"""Decisions on their way: what a client knows of tokens that are computed and not emitted yet.

Source: target protocol, "The step observation"; release 0.28.0, the engine core's queue of batches.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ...model.observation import Step
from .request_history import RequestHistory

Config = Mapping[str, Any]
Requests = Mapping[str, RequestHistory]
Flight = dict[str, bool]  # a decision on its way: by request, whether a token comes of it


def depth(config: Config) -> int:
    """Decisions on their way at once, at most: 1 if each completes before the next."""
    stages = int(config.get("pipeline_parallel_size", 1))
    return max(stages, 2) if decides_ahead(config) else stages


def decides_ahead(config: Config) -> bool:
    """A request is scheduled again while its last token is on its way."""
    return bool(config.get("async_scheduling", False))


def completes(config: Config, flights: tuple[Flight, ...], step: Step) -> Iterable[str]:
    """The requests of the decision that completes in this step: its own, or the oldest on its way,
    where as many as can be are on their way or nothing was decided."""
    if depth(config) == 1:
        return step.scheduled
    flights = (*flights, dict.fromkeys(step.scheduled, False)) if step.scheduled else flights
    return flights[0] if _one_is_over(config, flights, step) else ()


def set_off(
    config: Config, flights: tuple[Flight, ...], requests: Requests, step: Step
) -> tuple[tuple[Flight, ...], Iterable[str]]:
    """The decisions that are on their way after the step, whose tokens are booked as promised, and
    the requests of the one that completes."""
    if depth(config) == 1:
        return (), step.scheduled
    flight = {}
    for name in step.scheduled:
        one = requests.get(name)
        flight[name] = one is not None and one.computed >= one.num_tokens
        if one is not None and flight[name]:
            one.promised += 1
    flights = (*flights, flight) if flight else flights
    if not _one_is_over(config, flights, step):
        return flights, ()
    return flights[1:], [name for name, token in flights[0].items() if token]


def _one_is_over(config: Config, flights: tuple[Flight, ...], step: Step) -> bool:
    return bool(flights) and (not step.scheduled or len(flights) == depth(config))


def reports(config: Config, flights: tuple[Flight, ...], step: Step) -> bool:
    """The worker reports in this step: a decision completes, or nothing was to be computed."""
    return not step.scheduled or len(flights) + 1 >= depth(config)


def due(config: Config, flights: tuple[Flight, ...], step: Step) -> Flight:
    """Of a decision that was taken before and completes in this step: by request, whether a token
    comes of it."""
    over = completes(config, flights, step)
    return flights[0] if flights and over else {}


def passed_over(config: Config, one: RequestHistory) -> bool:
    """A running request has nothing to compute until a token comes that is on its way: its last
    one, or any where the next is not decided ahead."""
    if not one.promised:
        return False
    return not decides_ahead(config) or one.emitted + one.promised >= one.max_tokens


def computed_still(flights: tuple[Flight, ...], one: RequestHistory) -> bool:
    """A request that does not run is part of a decision that is on its way."""
    return any(one.id in flight for flight in flights)


def deliver(one: RequestHistory, tokens: int) -> None:
    """Book that tokens came which were promised, unless it was preempted meanwhile: then they are
    to be computed again with all others."""
    one.promised = max(one.promised - tokens, 0)
    if not one.started:
        one.regenerated += tokens
