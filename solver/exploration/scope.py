"""The scopes to explore: how many requests from which menu, in which configurations."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, Literal, Protocol

from ...model.scenario import Request, Segment
from .undecided import OWN, RequestMenu

# Which clients give up: none; one in a step in which no request ends early; one in any step.
Aborts = Literal["none", "alone", "any"]
# The prompt in segments; max_tokens; the priority, for a scheduler that reads it; how many tokens
# of the prompt a connector has, and how many steps it takes to load them.
MenuItem = tuple[tuple[Segment, ...], int]
Ranked = tuple[tuple[Segment, ...], int, int]
Loaded = tuple[tuple[Segment, ...], int, int, int, int]
AnyItem = MenuItem | Ranked | Loaded


class Refuses(Protocol):
    """A model's front door, which refuses requests."""

    def refusal(self, request: Request) -> str | None: ...


@dataclass(frozen=True)
class Scope:
    """A small menu of requests and configurations. Each system has a subclass that sets `system`
    and `smallest`.

    Attributes:
        says: its purpose, in a few words.
        requests: how many may arrive in one run.
        menu: the requests to choose from.
        limits: the values of the limit (`SystemSpace.limit_key`) to explore, ascending.
        aborts: which clients give up.
        config: keys that differ from `smallest`.
        revisions: the revisions in which the scope makes a difference; empty for all.
    """

    system: ClassVar[str]
    smallest: ClassVar[Mapping[str, Any]]
    name: str
    says: str
    requests: int
    menu: tuple[AnyItem, ...]
    limits: tuple[int, ...]
    aborts: Aborts = "none"
    config: tuple[tuple[str, Any], ...] = ()
    revisions: tuple[str, ...] = ()

    @property
    def full_config(self) -> dict[str, Any]:
        """Return every key that is not at its default, except the limit."""
        return {**self.smallest, **dict(self.config)}

    def belongs_to(self, revision: str) -> bool:
        return not self.revisions or revision in self.revisions


def lengths(prompts: Iterable[int], max_tokens: Iterable[int]) -> list[MenuItem]:
    """Return every prompt length with every max_tokens; the prompts share no tokens."""
    return [(((OWN, prompt),), tokens) for prompt, tokens in product(prompts, max_tokens)]


def menu_of(items: Sequence[AnyItem], models: Sequence[Refuses]) -> RequestMenu:
    requests = []
    for number, (prompt, tokens, *more) in enumerate(items):
        priority, external_tokens, load_steps = (*more, 0, 0, 0)[:3]
        requests.append(
            Request(
                id=f"item {number}",
                arrival=0,
                prompt=prompt,
                max_tokens=tokens,
                priority=priority,
                external_tokens=external_tokens,
                load_steps=load_steps,
            )
        )
    accepted = [
        sum(1 << n for n, model in enumerate(models) if model.refusal(request) is None)
        for request in requests
    ]
    return RequestMenu(requests, accepted)
