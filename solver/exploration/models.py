"""The interface through which `scheduler_space` explores a system's models.

`QueueModels` is the base for systems whose states are records with queues of sequences, and
`PlainModels` explores any other pure model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from ...model import systems
from ...model.scenario import Request
from .branching_history import BranchingHistory, counters
from .canonical_names import mentioned
from .scope import AnyItem, menu_of
from .undecided import Candidates, ChoiceNeeded, OpenFields, RequestMenu, as_ordinary, fully_decided


class Stepped(NamedTuple):
    """One step of a model.

    Attributes:
        after: the next state; None if the model raised.
        seen: the observed step; empty if the model raised.
        limited: whether the model read the limit.
        crash: the exception that the model raised.
    """

    after: Any
    seen: dict[str, Any]
    limited: bool = True
    crash: str | None = None


class Models(ABC):
    """The models of one revision in one configuration, one for each limit. Each system has its own
    type of state.

    Models with equal initial states are stepped together as long as they make the same decisions.

    Attributes:
        system: the system's name.
        configs: one configuration for each limit, smallest limit first.
        limited: the rules that read the limit.
        waits_are_bounded: whether there is a bound on how long other requests may overtake the
            first in line (ALL-R05).
        idle_is_waste: whether a step that computes nothing is wasted. It is not wasted if requests
            can wait for a load or for a step in flight.
    """

    system: str
    limited: ClassVar[frozenset[str]] = frozenset()
    waits_are_bounded: bool = True
    idle_is_waste: bool = True

    def __init__(
        self,
        system: str,
        limit_key: str,
        revision: str,
        config: Mapping[str, Any],
        limits: Sequence[int],
        formula: str | None = None,
    ) -> None:
        """Build the models.

        Raises:
            InputError: the revision has no such configuration.
        """
        each = [{**config, limit_key: limit} for limit in limits]
        self.system = system
        self.configs = [systems.full_config(system, revision, values) for values in each]
        self.models = [self.make_model(revision, values, formula) for values in each]
        self.observes = frozenset(self.models[0].observes)

    def make_model(self, revision: str, config: Mapping[str, Any], formula: str | None) -> Any:
        assert formula is None, f"{self.system} has no named formulas"
        return systems.make_model(self.system, revision, config)

    def menu(self, items: Sequence[AnyItem]) -> RequestMenu:
        return menu_of(items, self.models)

    def initial(self, member: int) -> Any:
        return self.models[member].initial()

    @abstractmethod
    def arrive(self, state: Any, request: str, candidates: Candidates) -> Any:
        """Queue a request that is still undecided: it may turn out to be any of the candidates."""

    @abstractmethod
    def narrow(self, state: Any, request: str, candidates: Candidates) -> Any:
        """Restrict the request to these candidates."""

    @abstractmethod
    def end(self, state: Any, request: str) -> Any:
        """Make the request's next token its last."""

    @abstractmethod
    def abort(self, state: Any, request: str) -> Any: ...

    def step(self, member: int, state: Any, inside: tuple[str, ...]) -> Stepped:
        try:
            after, seen = self.stepped(member, state, inside)
        except ChoiceNeeded:
            raise
        except Exception as error:  # only a model with a planted fault gets here
            return Stepped(None, {}, False, f"{type(error).__name__}: {error}")
        return Stepped(after, seen, False)

    @abstractmethod
    def stepped(
        self, member: int, state: Any, inside: tuple[str, ...]
    ) -> tuple[Any, dict[str, Any]]:
        """Return the model's next state, and the observation of the step that leads to it."""

    @abstractmethod
    def quiet(self, state: Any) -> bool:
        """Return whether the next step only computes one token for each decoding request."""

    @abstractmethod
    def key(self, state: Any, history: BranchingHistory) -> Hashable:
        """Return a key for state and history that does not depend on names."""


class QueueModels(Models):
    """Models whose states are records with queues of sequences.

    A subclass supplies the attributes below, and defines when a step is quiet and what the key of a
    state is. Aborts and arrivals do not depend on the limit, so the first model handles them.

    Attributes:
        limit_key: the configuration key whose values are the limits.
        queues: the fields of a state that contain sequences.
        sequence: the system's class of sequences.
        open_sequence: that class with `OpenFields`, for requests that are not fully decided.
    """

    limit_key: ClassVar[str] = "num_blocks"
    queues: ClassVar[tuple[str, ...]] = ("waiting", "running")
    sequence: ClassVar[type[Any]]
    open_sequence: ClassVar[type[Any]]

    def __init__(
        self,
        revision: str,
        config: Mapping[str, Any],
        limits: Sequence[int],
        formula: str | None = None,
    ) -> None:
        super().__init__(self.system, self.limit_key, revision, config, limits, formula)
        self.mentioned: frozenset[str] = frozenset()

    @abstractmethod
    def queued(self, state: Any, sequence: Any) -> Any:
        """Return the state with a new sequence in the waiting queue."""

    def opened(self, request: str, candidates: Candidates) -> Any:
        return self.decided(self.open_sequence(request, 0, 0, 0, content=candidates))

    def decided(self, sequence: Any) -> Any:
        """Return an ordinary sequence if every field of `sequence` is decided. Otherwise return
        `sequence` itself."""
        if not isinstance(sequence, OpenFields) or not fully_decided(sequence.candidates):
            return sequence
        return as_ordinary(sequence, self.sequence)

    def menu(self, items: Sequence[AnyItem]) -> RequestMenu:
        menu = super().menu(items)
        self.mentioned = mentioned(menu)
        return menu

    def arrive(self, state: Any, request: str, candidates: Candidates) -> Any:
        return self.queued(state, self.opened(request, candidates))

    def narrow(self, state: Any, request: str, candidates: Candidates) -> Any:
        def change(sequence: Any) -> Any:
            if not isinstance(sequence, OpenFields):
                return sequence
            return self.decided(sequence._replace(content=candidates))  # type: ignore[attr-defined]

        return _change_request(state, self.queues, request, change)

    def end(self, state: Any, request: str) -> Any:
        def change(sequence: Any) -> Any:
            return sequence._replace(output_len=sequence.generated + 1)

        return _change_request(state, self.queues, request, change)

    def abort(self, state: Any, request: str) -> Any:
        return self.models[0].abort(state, request)

    def stepped(
        self, member: int, state: Any, inside: tuple[str, ...]
    ) -> tuple[Any, dict[str, Any]]:
        stepped: tuple[Any, dict[str, Any]] = self.models[member].step(state, inside)
        return stepped


def _change_request(state: Any, queues: Iterable[str], request: str, change: Any) -> Any:
    """Return the state after applying `change` to one request, in the queue that contains it."""

    def queue_with(queue: str) -> tuple[Any, ...]:
        members = getattr(state, queue)
        return tuple(change(member) if member.id == request else member for member in members)

    return state._replace(**{queue: queue_with(queue) for queue in queues})


Operation = tuple[str, Any]


class Plain(NamedTuple):
    """A state of one model.

    Attributes:
        member: the index of the model.
        model: the model's own state.
        pending: requests that arrived since the last step, with their candidates.
        operations: the calls that led to the model's state.
        emitted: the number of tokens that each request has emitted so far.
    """

    member: int
    model: Any
    pending: tuple[tuple[str, Candidates], ...] = ()
    operations: tuple[Operation, ...] = ()
    emitted: tuple[tuple[str, int], ...] = ()


class PlainModels(Models):
    """Explores any pure model with hashable states, with one configuration for each limit and
    without a reduction.

    Requests keep their names, and every length is chosen before the first step that could read it.
    Therefore scopes must be small.
    """

    waits_are_bounded = False

    def initial(self, member: int) -> Plain:
        return Plain(member, self.models[member].initial())

    def arrive(self, state: Plain, request: str, candidates: Candidates) -> Plain:
        return state._replace(pending=(*state.pending, (request, candidates)))

    def narrow(self, state: Plain, request: str, candidates: Candidates) -> Plain:
        pending = [(name, candidates if name == request else it) for name, it in state.pending]
        return state._replace(pending=tuple(pending))

    def end(self, state: Plain, request: str) -> Plain:
        """Make the request's next token its last, by running the model again with this output
        length."""
        length = dict(state.emitted).get(request, 0) + 1
        again = self.initial(state.member)
        for name, value in self._settled(state).operations:
            if name == "arrive" and value.id == request:
                value = Request(
                    id=request,
                    arrival=0,
                    prompt=value.prompt,
                    max_tokens=value.max_tokens,
                    output_len=length,
                    priority=value.priority,
                )
            again = self._done(again, (name, value))[0]
        return again

    def abort(self, state: Plain, request: str) -> Plain:
        return self._done(self._settled(state), ("abort", request))[0]

    def stepped(
        self, member: int, state: Plain, inside: tuple[str, ...]
    ) -> tuple[Plain, dict[str, Any]]:
        return self._done(self._settled(state), ("step", inside))

    def quiet(self, state: Plain) -> bool:
        return False

    def key(self, state: Plain, history: BranchingHistory) -> Hashable:
        """Return the state and, for each request, the counters that rules read."""
        names = counters(history.features)
        known = tuple(
            (account.id, account.ended, *(getattr(account, name) for name in names))
            for account in history.requests.values()
        )
        return state.member, state.model, state.pending, known

    def _settled(self, state: Plain) -> Plain:
        """Return the state once the model has accepted the pending requests.

        Raise ChoiceNeeded if the candidates of a pending request differ.
        """
        for name, candidates in state.pending:
            if not fully_decided(candidates):
                fields = ("content", "prompt", "max_tokens", "priority")
                raise ChoiceNeeded(name, next(f for f in fields if getattr(candidates, f) is None))
            known: Any = candidates
            request = Request(
                id=name,
                arrival=0,
                prompt=known.known_tokens(name),
                max_tokens=known.max_tokens,
                priority=known.priority,
            )
            state = self._done(state, ("arrive", request))[0]
        return state._replace(pending=())

    def _done(self, state: Plain, operation: Operation) -> tuple[Plain, dict[str, Any]]:
        (name, value), seen, emitted = operation, dict[str, Any](), state.emitted
        model, inner = self.models[state.member], state.model
        if name == "arrive":
            inner = model.arrive(inner, value)
        elif name == "abort":
            inner = model.abort(inner, value)
        else:
            inner, seen = model.step(inner, value)
            counts = dict(emitted)
            for request, tokens in seen.get("emitted", {}).items():
                counts[request] = counts.get(request, 0) + tokens
            emitted = tuple(sorted(counts.items()))
        operations = (*state.operations, operation)
        return state._replace(model=inner, operations=operations, emitted=emitted), seen
