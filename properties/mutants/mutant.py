"""Mutants: a model with one fault each, and the rule that must name it.

They answer whether a rule would have found it. Predicates share no function with the model, so no
fault can hide in both.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from ...model.target import ModelTarget, Reply, Target

Plant = Callable[[ExitStack], None]


@dataclass(frozen=True)
class Mutant:
    """`plant` puts the fault in place; `rule` is the one that must break first.

    Attributes:
        revision: what the mutant is held to, and the model that it changes.
        system: the system of that model.
        target: where a model cannot have the fault (a scheduler that crashes).
        known: rules that the unchanged model of this release breaks anyway.
        alone: another rule names the fault earlier; this one finds it when it is asked alone.
        bug: the published bug that the mutant brings back, if it does.
    """

    name: str
    rule: str
    plant: Plant = lambda stack: None
    target: Callable[[], Target] = ModelTarget
    revision: str = "sound"
    system: str = "spyre"
    known: frozenset[str] = frozenset()
    alone: bool = False
    bug: str = ""

    @contextmanager
    def planted(self) -> Iterator[Target]:
        """The target with the fault in place."""
        with ExitStack() as stack:
            self.plant(stack)
            yield self.target()


def replaced(module: Any, name: str, make: Callable[[Any], Any]) -> Plant:
    """Plants what `make` gives for the original in its place."""

    def plant(stack: ExitStack) -> None:
        stack.enter_context(mock.patch.object(module, name, make(getattr(module, name))))

    return plant


def together(*plants: Plant) -> Plant:
    """Plants all of them, one after the other."""

    def plant(stack: ExitStack) -> None:
        for each in plants:
            each(stack)

    return plant


def release_with(plant: Plant) -> Callable[[], Target]:
    """A target that decides with a fault which the model beside it does not have."""

    class Release(ModelTarget):
        """The faulty release."""

        def start(self, system: str, revision: str, config: Any) -> Reply:
            with ExitStack() as stack:
                plant(stack)
                return {**super().start(system, revision, config), "name": system}

        def step(self) -> Reply:
            with ExitStack() as stack:
                plant(stack)
                return super().step()

        def abort(self, id: str, inside: bool = False) -> Reply:  # noqa: A002
            with ExitStack() as stack:
                plant(stack)
                return super().abort(id, inside)

    return Release
