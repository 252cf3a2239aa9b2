"""A run of vLLM: its state beyond the kernel's, and the encoder's work in a step."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, cast

from ....model.observation import Step
from ...history.per_step_cache import once
from ...history.request_history import RequestHistory
from ...history.run_history import RunHistory
from . import encoder
from .request_history import VllmRequestHistory

VllmRun: TypeAlias = RunHistory[VllmRequestHistory]


class Coming(NamedTuple):
    """A token that a decision will emit.

    Attributes:
        drafts: tokens computed beyond the known ones; some releases pad a joining request.
        proposed: how many of them the drafter had proposed.
    """

    drafts: int = 0
    proposed: int = 0


NOTHING = Coming()
# A decision in flight: by request what comes of it, None where no token does.
Flight = dict[str, Coming | None]


class VllmState(NamedTuple):
    """The state of a run beyond its requests.

    Attributes:
        flights: decisions in flight, the oldest first.
        early: number of steps in a row in which a decision completed early.
        outputs: encoder outputs that the worker has, with their tokens.
        was_reset: the prefix cache was reset in this run.
    """

    flights: tuple[Flight, ...] = ()
    early: int = 0
    outputs: Mapping[str, int] = MappingProxyType({})
    was_reset: bool = False


def of(account: RequestHistory) -> VllmRequestHistory:
    return cast(VllmRequestHistory, account)


def requests_of(accounts: Mapping[str, RequestHistory]) -> Mapping[str, VllmRequestHistory]:
    return cast(Mapping[str, VllmRequestHistory], accounts)


def state_of(history: RunHistory[Any]) -> VllmState:
    """Return the state of a vLLM run beyond its requests."""
    return cast(VllmState, history.system_state)


@once
def encoded(history: RunHistory[Any], step: Step) -> list[tuple[VllmRequestHistory, encoder.Input]]:
    numbers = step.encoder_inputs or {}
    requests = [of(history.live[name]) for name in numbers if name in history.live]
    return [
        (request, item)
        for request in requests
        for item in request.inputs
        if item.number in numbers[request.id]
    ]


@once
def outputs_after(history: RunHistory[Any], step: Step) -> Mapping[str, int]:
    """Return the encoder outputs that the worker has while it computes the step."""
    new = [item for _, item in encoded(history, step)]
    return encoder.after(state_of(history).outputs, step, new)
