"""Keys of vLLM's states. States that differ only in names have equal keys."""

from collections.abc import Hashable
from typing import Any

from ...model.pool import free_blocks
from ...model.vllm.state import State
from ...properties.vllm.history import in_flight
from ...properties.vllm.history.run import state_of
from ..exploration.branching_history import BranchingHistory
from ..exploration.canonical_names import CanonicalNames
from ..exploration.undecided import Candidates, OpenFields, tokens_left


class Key:
    """The key of a state, with or without a prefix cache. LLMServingSim's states have the same
    fields and use the same key.

    Without a cache, requests and blocks are only numbers. A request that has generated tokens
    behaves like one with a longer prompt. So only three numbers of tokens count: those known, those
    computed, and those left to generate.

    `mentioned` are the requests whose answers occur in a prompt of the menu; they keep their names.
    `in_flight` says whether decisions may be in flight, and requests parked. `newest` says whether
    the cache finds the block filled last if several have the same content.
    """

    def __init__(
        self,
        caches: bool,
        mentioned: frozenset[str] = frozenset(),
        *,
        newest: bool = False,
        in_flight: bool = False,
    ) -> None:
        self._caches = caches
        self._newest = newest
        self._mentioned = mentioned
        self._in_flight = in_flight

    def __call__(self, state: Any, history: BranchingHistory) -> Hashable:
        queues = self._with_contents if self._caches else self._by_length
        own = state.pool.size, len(state.aborted), queues(state, history)
        return (own, in_flight_key(state, history)) if self._in_flight else own

    def _by_length(self, state: State, history: BranchingHistory) -> Hashable:
        places = {name: place for place, name in enumerate(history.live)}
        return (
            tuple(_as_numbers(request, history, places, True) for request in state.waiting),
            tuple(_as_numbers(request, history, places, False) for request in state.running),
            free_blocks(state.pool),
        )

    def _with_contents(self, state: State, history: BranchingHistory) -> Hashable:
        """Return the queues and the pool, with the contents of blocks.

        The pool hands out the blocks of its `tail` last, and their order matters. The other free
        blocks have no content, so only their number matters.
        """
        places = {name: place for place, name in enumerate(history.live)}
        held = (*state.parked, *state.leaving) if self._in_flight else ()
        names = CanonicalNames(self._mentioned, (state.waiting, state.running, held), history)
        queues = tuple(
            tuple(
                (
                    *_as_contents(request, names),
                    request.generated,
                    *_as_numbers(request, history, places, waits),
                )
                for request in queue
            )
            for queue, waits in ((state.waiting, True), (state.running, False))
        )
        computed = names.computed(history, newest=self._newest)
        parked = tuple(_as_contents(number, names) for number in held)
        return queues, parked, free_blocks(state.pool), names.pool(state.pool), computed


def in_flight_key(state: State, history: BranchingHistory) -> Hashable:
    """Return the decisions in flight, and the requests that are parked."""
    places = {name: place for place, name in enumerate(history.live)}
    queues = (*state.waiting, *state.running, *state.parked)
    generated = {request.id: request.generated for request in queues}
    flights = tuple(
        tuple(
            (places[name], None if coming is None else coming.place - generated[name])
            for name, coming in flight.items()
            if name in places and name in generated
        )
        for flight in state.in_flight
    )
    known = tuple(
        tuple((places[name], token) for name, token in flight.items() if name in places)
        for flight in state_of(history).flights
    )
    gone = sorted(
        request.load_left
        for request in history.requests.values()
        if request.ended and request.load_left
    )
    return (
        *(flights, known, tuple(gone), state.early, state_of(history).early),
        tuple(_in_flight(request, history, places) for request in queues),
        tuple(_as_numbers(request, history, places, True) for request in state.parked),
        tuple(_leaving(request, history) for request in state.leaving),
    )


def _in_flight(request: Any, history: BranchingHistory, places: dict[str, int]) -> tuple[Any, ...]:
    load = (
        (request.external, request.load_steps)
        if not request.was_loaded
        else (None, request.loading)
    )
    account = history.live.get(request.id)
    client: tuple[Any, ...] = ()
    if account is not None:
        began = account.parked_since is not None
        client = account.tokens_in_flight - request.promised, account.load_left, began
        client += account.tokens_loading, max(account.slots - account.computed, 0)
    return places.get(request.id), request.promised, request.aside, *load, *client


def _leaving(request: Any, history: BranchingHistory) -> tuple[Any, ...]:
    """Return the reason why the blocks of a request that has left are still held, and for how long.
    Times are capped where no rule depends on them."""
    account = history.requests[request.id]
    since = history.step - (account.ended_at or 0)
    counted = min(since, 2 * in_flight.depth(history.config) + 1)
    return len(request.blocks), request.loading, request.written_by, account.load_left, counted


def _as_numbers(
    request: Any, history: BranchingHistory, places: dict[str, int], waits: bool
) -> tuple[Any, ...]:
    """Return the numbers that the scheduler reads from a request, and what the client knows about
    the request. A request with an undecided prompt has not started, and its candidates represent
    it."""
    candidates: Candidates | None = request.candidates if isinstance(request, OpenFields) else None
    account = history.live.get(request.id)
    if candidates is not None and candidates.prompt is None:
        return candidates.bits, request.priority, places.get(request.id)
    client: tuple[Any, ...] = ()
    if account is not None:
        client = (
            account.computed - request.computed,
            account.emitted - request.generated,
            account.prefix_hit - request.prefix_hit,
            account.prefilled,
            # A request that has run waits again only after a preemption.
            waits and account.preemptions > 0,
        )
    return (
        request.num_tokens,
        request.computed,
        request.generated > 0,
        tokens_left(request),
        len(request.blocks),
        request.published,
        request.prefix_hit,
        request.priority,
        places.get(request.id),
        *client,
    )


def _as_contents(request: Any, names: CanonicalNames) -> tuple[Any, ...]:
    if isinstance(request, OpenFields) and request.candidates.content is None:
        content: Hashable = request.candidates.bits
    else:
        content = names.content(request.content)
    return names.request(request.id), content, tuple(names.block(block) for block in request.blocks)
