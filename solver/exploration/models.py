"""What `scheduling` needs of a system's models."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from .branching_history import BranchingHistory
from .undecided import Candidates


class Stepped(NamedTuple):
    """One step of a model.

    Attributes:
        after: the next state, None where the model raised.
        seen: the step observation; then empty.
        limited: the limit was asked for.
        crash: what the model raised.
    """

    after: Any
    seen: dict[str, Any]
    limited: bool = True
    crash: str | None = None


class Models(Protocol):
    """A system's models, one for each configuration explored at once, and their states.

    Models whose first states are equal are stepped together as long as they decide alike.
    """

    @property
    def system(self) -> str:
        """Its name."""

    @property
    def configs(self) -> Sequence[Mapping[str, Any]]:
        """One for each limit, ascending."""

    @property
    def limited(self) -> frozenset[str]:
        """The rules that read the limit."""

    @property
    def waits_are_bounded(self) -> bool:
        """No request may overtake the first in line for ever (ALL-R05)."""

    @property
    def idle_is_waste(self) -> bool:
        """A step that computes nothing is lost: no request waits for a load, or for what is on its
        way."""

    def initial(self, member: int) -> Any:
        """The scheduler of one configuration before anything arrived."""

    def arrive(self, state: Any, request: str, candidates: Candidates) -> Any:
        """A request that may be any of the candidates joins the queue."""

    def narrow(self, state: Any, request: str, candidates: Candidates) -> Any:
        """The request has fewer candidates left."""

    def end(self, state: Any, request: str) -> Any:
        """The next token of the request is its last."""

    def abort(self, state: Any, request: str) -> Any:
        """The client gives the request up before the decision."""

    def step(self, member: int, state: Any, inside: tuple[str, ...]) -> Stepped:
        """One step of the model of one configuration; those of `inside` are given up in it."""

    def quiet(self, state: Any) -> bool:
        """In the coming step nothing happens but that every request that decodes computes a
        token."""

    def key(self, state: Any, history: BranchingHistory) -> Hashable:
        """State and history without names."""
