"""What tests/solver/test_spaces.py needs to know of a system; each has a `space_cases.py`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from schedproof.solver.exploration.scheduler_space import SchedulerSpace
from schedproof.solver.exploration.scope import Scope

Wrap = Callable[[Any], Any]


class Wrong(NamedTuple):
    """A reduction that goes too far, and a scope in which the steps show it."""

    revision: str
    scope: Scope
    place: Any
    attribute: str
    wrap: Wrap


class Fault(NamedTuple):
    """A fault of the model, the scope that shows it, and a rule that it breaks."""

    place: Any
    attribute: str
    wrap: Wrap
    revision: str
    scope: str
    rule: str


class Cases(NamedTuple):
    """A system's cases.

    Attributes:
        pinned: states, transitions and depth of a few explorations, by revision and scope: a
            commit that changes the model on purpose changes these numbers with it.
        models: the class whose `key` takes two states for the same.
        account: the fields of a request's history that a full key has.
        rest: what else a full key has, of the state and the history.
        forgotten: the fields of a state that no key has.
        shown: what a step shows, whatever the requests are called.
        smaller: how many of the full graph's transitions the reduced one of the first scope
            has; None where it saves none.
        breaks: the rules that a revision is known to break in a scope; all others are kept.
        in_one_go: explorations of all limits at once that are compared with single ones.
        order: the revision and the limit at which orders are compared.
        same_states: whether every order counts the same states.
    """

    small: Sequence[Scope]
    pinned: Mapping[tuple[str, str], tuple[int, int, int]]
    models: type
    account: str
    shown: Callable[[Any, Any], Any]
    wrong: Mapping[str, Wrong]
    smaller: float | None
    in_one_go: Sequence[tuple[str, Scope]]
    order: tuple[str, int]
    faults: Mapping[str, Fault] = {}
    breaks: Mapping[tuple[str, str], set[str]] | None = {}
    rest: Callable[[Any, Any], Any] = lambda state, history: repr(history.last)
    forgotten: Mapping[str, Any] = {}
    same_states: bool = True


def scope_named(small: Sequence[Scope], name: str) -> Scope:
    return next(scope for scope in small if scope.name == name)


def rows(step: Any, history: Any) -> Any:
    """In scheduling order the tokens of each request, what it had computed, what it knows and what
    was cached of it; and what is left of the pool."""
    members = tuple(
        (tokens, history.live[name].computed, history.live[name].num_tokens)
        for name, tokens in step.scheduled.items()
    )
    hits = tuple((step.prefix_hit or {}).get(name) for name in step.scheduled)
    return members, hits, len(step.running), len(step.preempted), step.free_blocks


def rows_and_queue(step: Any, history: Any) -> Any:
    return rows(step, history), len(step.waiting)


def without(*places: int) -> Wrap:
    """Leaves these numbers out of each request's part of a key."""
    return lambda original: (
        lambda *args: tuple(
            part for place, part in enumerate(original(*args)) if place not in places
        )
    )


def arrivals_when_nothing_runs(original: Any) -> Any:
    return lambda space, node, members: (
        list(original(space, node, members)) * (not node.history.live)
    )


def first_choice_only(original: Any) -> Any:
    return lambda space, node, members, choice: list(original(space, node, members, choice))[:1]


def of_the_explorer(revision: str, scope: Scope) -> dict[str, Wrong]:
    """The reductions that no system makes."""
    return {
        "arrivals": Wrong(revision, scope, SchedulerSpace, "_arrivals", arrivals_when_nothing_runs),
        "choices": Wrong(revision, scope, SchedulerSpace, "_choices", first_choice_only),
    }


def always(value: Any) -> Wrap:
    return lambda original: lambda *args: value


def one_block_more(original: Any) -> Any:
    return lambda pool, blocks: original(pool, blocks - 1)
