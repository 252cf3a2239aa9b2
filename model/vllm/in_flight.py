"""Decisions on their way: the next one is taken before the last one is computed.

Source: chunked-prefill chapter, code of the running clamp (num_output_placeholders); release
0.28.0: AsyncScheduler, and the engine core's queue of batches. A token that is on its way is
*promised*.
"""

from collections.abc import Iterable, Mapping

from .. import allocator
from ..pool import Pool
from .config import VllmConfig
from .state import Flight, Sequence, State


def tokens_on_their_way(computing: Iterable[Sequence], scheduled: Mapping[str, int]) -> Flight:
    """By request that is computed, the token that comes of it, the one after those that are known
    or on their way (V1-R19): where all that is known is computed."""
    return {
        one.id: one.generated + one.promised if one.num_uncomputed_tokens <= 0 else None
        for one in computing
        if one.id in scheduled
    }


def set_off(config: VllmConfig, state: State, flight: Flight) -> State:
    """The state in which a decision is on its way, and its tokens are promised."""
    if not flight:
        return state
    running = state.running
    if config.depth > 1:
        running = tuple(
            [
                one._replace(promised=one.promised + 1) if flight.get(one.id) is not None else one
                for one in running
            ]
        )
    return state._replace(running=running, in_flight=(*state.in_flight, flight))


def completes(config: VllmConfig, state: State, decided: bool) -> bool:
    """The worker reports: as many decisions as can be are on their way, or nothing was decided."""
    return not decided or len(state.in_flight) >= config.depth


def arrived(config: VllmConfig, state: State, decided: bool) -> tuple[State, Flight]:
    """The oldest decision, if one completes."""
    if not state.in_flight or not completes(config, state, decided):
        return state, {}
    return state._replace(in_flight=state.in_flight[1:]), state.in_flight[0]


def publish(config: VllmConfig, pool: Pool, one: Sequence) -> tuple[Sequence, Pool]:
    """The request whose blocks can be found that a token has filled which is now known."""
    if not config.enable_prefix_caching:
        return one, pool
    return allocator.publish_full(pool, one, one.computed - one.promised, config.block_size)


def delivered(one: Sequence) -> Sequence:
    """The request without the promise of the token that it gets; after a preemption there is
    none."""
    return one._replace(promised=max(one.promised - 1, 0))


def passed_over(config: VllmConfig, one: Sequence) -> bool:
    """A running request has nothing to compute until a token comes that is on its way: its last
    one, or any where the next is not decided ahead (V1-R06)."""
    if not one.promised:
        return False
    return not config.decides_ahead or one.generated + one.promised >= one.max_tokens


def computed_still(in_flight: tuple[Flight, ...], one: Sequence) -> bool:
    """A preempted request is computed still, and what comes of it is its own: until then it is not
    admitted again (V1-R10)."""
    return any(one.id in flight for flight in in_flight)
