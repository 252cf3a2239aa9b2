"""Explore any pure model with `scheduler_space`, without a reduction.

A system whose states are hashable can be explored without further code. Requests keep their names,
and every length is chosen before the first step that could read it, so scopes must be small.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from ...model.scenario import Request
from ...model.systems import full_config, make_model
from .branching_history import BranchingHistory, counters
from .models import Stepped
from .scope import MenuItem, Ranked, menu_of
from .undecided import Candidates, ChoiceNeeded, RequestMenu, fully_decided

Operation = tuple[str, Any]


class Plain(NamedTuple):
    """A state of one model.

    Attributes:
        member: the number of the model.
        model: the model's own state.
        pending: requests that arrived since the last step, with their candidates.
        operations: the calls that led to the model's state.
        emitted: the number of tokens of each request so far.
    """

    member: int
    model: Any
    pending: tuple[tuple[str, Candidates], ...] = ()
    operations: tuple[Operation, ...] = ()
    emitted: tuple[tuple[str, int], ...] = ()


class PlainModels:
    """The models of one revision in one configuration, for every limit."""

    limited: frozenset[str] = frozenset()
    waits_are_bounded = False
    idle_is_waste = True

    def __init__(
        self,
        system: str,
        limit_key: str,
        revision: str,
        config: Mapping[str, Any],
        limits: Sequence[int],
    ) -> None:
        """Build the models.

        Raises:
            InputError: an impossible configuration.
        """
        each = [{**config, limit_key: limit} for limit in limits]
        self.system = system
        self.configs = [full_config(system, revision, values) for values in each]
        self.models = [make_model(system, revision, values) for values in each]
        self.observes = frozenset(self.models[0].observes)

    def menu(self, items: Sequence[MenuItem | Ranked]) -> RequestMenu:
        return menu_of(items, self.models)

    def initial(self, member: int) -> Plain:
        return Plain(member, self.models[member].initial())

    def arrive(self, state: Plain, request: str, candidates: Candidates) -> Plain:
        return state._replace(pending=(*state.pending, (request, candidates)))

    def narrow(self, state: Plain, request: str, candidates: Candidates) -> Plain:
        pending = [(name, candidates if name == request else it) for name, it in state.pending]
        return state._replace(pending=tuple(pending))

    def end(self, state: Plain, request: str) -> Plain:
        """Make the request's next token its last, by repeating the run with this output length."""
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

    def step(self, member: int, state: Plain, inside: tuple[str, ...]) -> Stepped:
        settled = self._settled(state)
        try:
            after, seen = self._done(settled, ("step", inside))
        except Exception as error:  # in a model with a planted fault
            return Stepped(None, {}, False, f"{type(error).__name__}: {error}")
        return Stepped(after, seen, False)

    def quiet(self, state: Plain) -> bool:
        return False

    def key(self, state: Plain, history: BranchingHistory) -> Hashable:
        """Return the state, and the counters of each request that rules read."""
        names = counters(history.features)
        known = tuple(
            (account.id, account.ended, *(getattr(account, name) for name in names))
            for account in history.requests.values()
        )
        return state.member, state.model, state.pending, known

    def _settled(self, state: Plain) -> Plain:
        """Return the state once the model has accepted the pending requests.

        Raises:
            ChoiceNeeded: the candidates of one of them differ.
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
