"""Mutants of vLLM V1 with several steps in flight."""

from typing import Any

from ....model.vllm import in_flight, scheduler
from ....model.vllm.config import VllmConfig
from ....model.vllm.plan import Plan
from ....model.vllm.state import Coming, Flight, State
from .drafts import mutant


def never(original: Any) -> Any:
    """What is on its way is forgotten."""
    return lambda of, one: False


def ends_the_round(original: Any) -> Any:
    """A request that has nothing to compute ends the round."""

    def advance_running(config: VllmConfig, plan: Plan, *more: Any) -> Plan:
        places = (n for n, one in enumerate(plan.running) if not scheduler.behind(config, one))
        first = next(places, len(plan.running))
        before: Plan = original(config, plan._replace(running=plan.running[:first]), *more)
        return before._replace(running=(*before.running, *plan.running[first:]))

    return advance_running


def one_token_ahead(original: Any) -> Any:
    """A request is scheduled ahead, although the token on its way is its last."""
    return lambda config, one: not config.decides_ahead and original(config, one)


def what_came_last(original: Any) -> Any:
    """The worker goes on from the tokens that have come, whatever is on its way."""

    def tokens_on_their_way(computing: Any, scheduled: Any) -> Flight:
        come = {one.id: one.generated for one in computing}
        flight: Flight = original(computing, scheduled)
        return {name: coming and Coming(come[name]) for name, coming in flight.items()}

    return tokens_on_their_way


def promises_stay(original: Any) -> Any:
    """A token comes, and still counts as on its way."""
    return lambda one, coming: one


def comes_again(original: Any) -> Any:
    """What completes as soon as it was taken stays on its way, and completes again."""

    def arrived(config: VllmConfig, state: State, decided: bool) -> tuple[State, Flight]:
        after, flight = original(config, state, decided)
        early = decided and len(state.in_flight) < config.depth
        return after._replace(in_flight=state.in_flight) if flight and early else after, flight

    return arrived


def wrong_drafts_stay(original: Any) -> Any:
    """A token comes, and the drafts with it still count as on their way."""
    return lambda one, coming: original(one, coming._replace(drafts=0))


MUTANTS = (
    mutant("no request is passed over", "V1-R06", in_flight, "passed_over", never),
    mutant(
        "a token more than max_tokens",
        "V1-R06",
        in_flight,
        "passed_over",
        one_token_ahead,
        alone=True,
    ),
    mutant(
        "the round ends early", "V1-R06", scheduler, "advance_running", ends_the_round, alone=True
    ),
    mutant("admitted while computed", "V1-R10", in_flight, "computed_still", never, alone=True),
    mutant("what comes twice", "V1-R19", scheduler, "tokens_on_their_way", what_came_last),
    mutant("completes early and again", "V1-R19", in_flight, "arrived", comes_again, alone=True),
    mutant("promises stay", "V1CP-R05", in_flight, "delivered", promises_stay, alone=True),
    mutant("wrong drafts stay", "V1CP-R05", in_flight, "delivered", wrong_drafts_stay, alone=True),
)
