"""The decisions in which releases of vLLM's scheduler differ, as the documents have them.

`releases` has those of the releases. Everything else is in `scheduler`, for all of them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from . import connector
from .config import VllmConfig
from .connector import HasRoom
from .queue import Plan
from .state import Sequence, State


def begin(config: VllmConfig, state: State) -> tuple[VllmConfig, State]:
    """As they are: the threshold holds in every step (V1-R11), and a preempted request stands
    behind those that were set aside (V1-R10)."""
    return config, state


def padding(config: VllmConfig, plan: Plan, sequence: Sequence, start: int) -> int:
    """None: a request that joins computes nothing beyond what is known of it (V1-R02)."""
    return 0


def ends_round(config: VllmConfig) -> bool:
    """Always (V1CP-R15)."""
    return True


def publishes(config: VllmConfig) -> bool:
    """Where the next decision is taken before the token is known; else it publishes the block."""
    return config.decides_ahead


@dataclass(frozen=True, slots=True)
class Revision:
    """The functions that decide in one published behaviour.

    `DOCUMENTED` has those of the documents; a release replaces some of them. To undo a single
    difference, put a function back: `replace(RELEASE_0_33, begin=revision.begin)`.

    Attributes:
        name: as in the scenario format: the first release that decides so.
        begin: the configuration and the state by which a step is decided.
        padding: drafts that are made up for a request that joins, by (configuration, plan when the
            running requests are scheduled, request, tokens that are cached or loaded of it).
        ends_round: whether running requests go without that stand behind one that preempts itself.
        has_room: whether a load may begin.
        publishes: whether a block that emitted tokens have filled can be found at once.
    """

    name: str
    begin: Callable[[VllmConfig, State], tuple[VllmConfig, State]] = begin
    padding: Callable[[VllmConfig, Plan, Sequence, int], int] = padding
    ends_round: Callable[[VllmConfig], bool] = ends_round
    has_room: HasRoom = connector.has_room
    publishes: Callable[[VllmConfig], bool] = publishes


DOCUMENTED = Revision("documented")
