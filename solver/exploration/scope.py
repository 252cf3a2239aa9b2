"""The scopes to explore: how many requests, from which menu, in which configurations."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, Literal, Protocol

from ...model.scenario import Request, Segment
from .undecided import OWN, RequestMenu

# Which clients abort: none; one, in a step in which no request ends early; one, in any step.
Aborts = Literal["none", "alone", "any"]
# A request: its prompt in segments, max_tokens, its priority (if the scheduler reads it), the
# number of prompt tokens that a connector has, and the number of steps that loading them takes.
MenuItem = tuple[tuple[Segment, ...], int]
Ranked = tuple[tuple[Segment, ...], int, int]
Loaded = tuple[tuple[Segment, ...], int, int, int, int]
AnyItem = MenuItem | Ranked | Loaded


class Refuses(Protocol):
    """A model that can refuse a request when it arrives."""

    def refusal(self, request: Request) -> str | None: ...


@dataclass(frozen=True)
class Scope:
    """A small set of requests and configurations to explore. Each system has a subclass that sets
    `system` and `smallest`.

    Attributes:
        says: the purpose of the scope, in a few words.
        requests: how many requests may arrive in one run.
        menu: the requests to choose from.
        limits: the values of the limit (`SystemSpace.limit_key`) to explore, ascending.
        aborts: which clients abort their requests.
        config: the keys that differ from `smallest`.
        revisions: the revisions for which the scope is useful; empty for all.
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
        """Return every key that differs from its default, except the limit."""
        return {**self.smallest, **dict(self.config)}

    def belongs_to(self, revision: str) -> bool:
        return not self.revisions or revision in self.revisions


def lengths(prompts: Iterable[int], max_tokens: Iterable[int]) -> list[MenuItem]:
    """Return a request for each combination of prompt length and max_tokens. No two prompts share
    tokens."""
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
