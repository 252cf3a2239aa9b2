"""Decisions on their way: what a client knows of tokens that are computed and not emitted yet.

Source: target protocol, "The step observation"; release 0.28.0, the engine core's queue of batches.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ....model.observation import Step
from ...history.request_history import RequestHistory
from . import speculation

Config = Mapping[str, Any]
Requests = Mapping[str, RequestHistory]


class Coming(NamedTuple):
    """A token that comes of a decision: the tokens computed beyond those known, and how many of
    them the drafter had proposed; some releases pad a request that joins."""

    drafts: int = 0
    proposed: int = 0


NOTHING = Coming()
# A decision on its way: by request what comes of it, None where no token does.
Flight = dict[str, Coming | None]


def depth(config: Config) -> int:
    """Decisions on their way at once, at most: 1 if each completes before the next."""
    stages = int(config.get("pipeline_parallel_size", 1))
    return max(stages, 2) if speculation.decides_ahead(config) else stages


def completes(config: Config, flights: tuple[Flight, ...], early: int, step: Step) -> Iterable[str]:
    """The requests of the decision that completes in this step: its own, or the oldest on its way,
    where the worker `reports`."""
    if depth(config) == 1:
        return step.scheduled
    over = reports(config, flights, early, step)
    flights = (*flights, dict.fromkeys(step.scheduled)) if step.scheduled else flights
    return flights[0] if flights and over else ()


def set_off(
    config: Config, flights: tuple[Flight, ...], early: int, requests: Requests, step: Step
) -> tuple[tuple[Flight, ...], int, Mapping[str, Coming]]:
    """The decisions that are on their way after the step, whose tokens are booked as promised; in
    how many steps in a row one has completed early; and by request what comes of the one that
    completes. Decided ahead, drafts are proposed anew with every decision."""
    flight = {name: _coming(config, requests.get(name)) for name in step.scheduled}
    if depth(config) == 1:
        return (), 0, _with_a_token(flight)
    for name, coming in flight.items():
        if coming is not None:
            requests[name].promised += 1
            requests[name].hoped += coming.drafts
            if speculation.drafts(config):
                requests[name].drafted = speculation.drafts(config)
    over = reports(config, flights, early, step)
    in_a_row = early + 1 if over and not _is_waited_for(config, flights, step) else 0
    flights = (*flights, flight) if flight else flights
    if not flights or not over:
        return flights, in_a_row, {}
    return flights[1:], in_a_row, _with_a_token(flights[0])


def _coming(config: Config, one: RequestHistory | None) -> Coming | None:
    """What comes of a request that has just computed all that is known of it; None of another."""
    if one is None or one.computed < one.num_tokens:
        return None
    drafts = speculation.drafts_computed(one, 0) if speculation.drafts(config) else 0
    return Coming(drafts, min(drafts, one.drafted))


def _with_a_token(flight: Flight) -> dict[str, Coming]:
    return {name: coming for name, coming in flight.items() if coming is not None}


def reports(config: Config, flights: tuple[Flight, ...], early: int, step: Step) -> bool:
    """The worker reports in this step: as many decisions as can be are on their way, or nothing was
    to be computed; or early, which it does in `early_completions` steps in a row."""
    if step.completes is not None:  # a record says it
        return step.completes
    fast = early < int(config.get("early_completions", 0))
    return fast or _is_waited_for(config, flights, step)


def _is_waited_for(config: Config, flights: tuple[Flight, ...], step: Step) -> bool:
    return not step.scheduled or len(flights) + 1 >= depth(config)


def due(config: Config, flights: tuple[Flight, ...], early: int, step: Step) -> Flight:
    """A decision that was taken before and completes in this step; one of nothing where there is
    none."""
    return flights[0] if flights and reports(config, flights, early, step) else {}


def passed_over(config: Config, one: RequestHistory) -> bool:
    """A running request has nothing to compute until a token comes that is on its way: its last
    one, or any where the next is not decided ahead; or what is on its way takes all positions, if
    every draft is right."""
    if not one.promised:
        return False
    if not speculation.decides_ahead(config) or one.emitted + one.promised >= one.max_tokens:
        return True
    return one.num_tokens + speculation.drafts_to_compute(config, one) <= one.computed


def computed_still(flights: tuple[Flight, ...], one: RequestHistory) -> bool:
    """A request that does not run is part of a decision that is on its way."""
    return any(one.id in flight for flight in flights)


def deliver(one: RequestHistory, tokens: int, coming: Coming) -> None:
    """Book that tokens came which were promised, unless it was preempted meanwhile: then they are
    to be computed again with all others."""
    one.promised = max(one.promised - min(tokens, 1), 0)
    one.hoped = max(one.hoped - coming.drafts, 0)
    if not one.started:
        one.regenerated += tokens
