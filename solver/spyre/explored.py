"""One scope of Spyre's scheduler, explored: what is asked, and what came out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...model.scenario import Scenario
from ...properties.rules import PREDICATES, observable
from ...spec.catalogue import Rule
from ..explore import Exploration, Order, numbers
from ..path import scenario_of
from ..scheduling import SchedulerSpace
from .scopes import Scope
from .space import SpyreModels


@dataclass(frozen=True)
class Asked:
    """What is explored, and how.

    `formula`: admits by that volumetric check instead of the revision's own. `reduced`: without,
    every step and every length is a move of its own.
    """

    revision: str
    scope: Scope
    order: Order = "breadth"
    reduced: bool = True
    first_only: bool = False
    deepest: int | None = None
    walks: int = 0
    formula: str | None = None


@dataclass(frozen=True)
class Counterexample:
    """A broken rule: in the configurations with these limits, and the run for the first of them."""

    rule: str
    limits: tuple[int, ...]
    message: str
    scenario: Scenario


@dataclass(frozen=True)
class Explored:
    """What an exploration has covered.

    Attributes:
        states: different states, over all limits together.
        states_by_limit: those that each limit reaches.
        transitions: moves made, once for all limits that make them together.
        depth: moves on the longest path.
        complete: every behaviour was explored.
        open: states reached that were not looked into.
        checked: rules whose predicates were asked.
        at_stake: per rule, the limits at which its witness occurred.
        livelocks: a state that comes again without progress was found.
    """

    asked: Asked
    states: int
    states_by_limit: dict[int, int]
    transitions: int
    depth: int
    complete: bool
    open: int
    checked: tuple[str, ...]
    at_stake: dict[str, tuple[int, ...]]
    found: tuple[Counterexample, ...]
    livelocks: int


class Run:
    """One exploration on its way. Every part is plain data, so that it can be put by."""

    def __init__(
        self, asked: Asked, rules: Sequence[Rule], choose: Callable[[int], int] | None = None
    ) -> None:
        """Make the models.

        Raises:
            InputError: the revision has no such configuration.
        """
        scope = asked.scope
        self.asked = asked
        self.rules = tuple(rule.id for rule in rules)
        self._models = SpyreModels(asked.revision, scope.full_config, scope.limits, asked.formula)
        self._menu = self._models.menu(scope.menu)
        seen = observable(rules, asked.revision, self._models.observes, self._models.configs[0])
        predicates = PREDICATES["spyre"]
        self.checked = tuple(rule.id for rule in seen)
        self._space = SchedulerSpace(
            self._models,
            self._menu,
            scope.requests,
            {rule: predicates[rule] for rule in self.checked if rule in predicates},
            asked.revision,
            aborts=scope.aborts,
            reduced=asked.reduced,
        )
        self.exploration = Exploration(
            self._space,
            asked.order,
            asked.first_only,
            asked.deepest,
            choose,
            asked.walks,
        )

    def explored(self) -> Explored:
        """What was covered up to now."""
        one, limits = self.exploration, self.asked.scope.limits

        def of(members: int) -> tuple[int, ...]:
            return tuple(limits[number] for number in numbers(members))

        counterexamples = [
            Counterexample(
                found.rule,
                of(found.members),
                found.message,
                scenario_of(
                    found.path,
                    self._menu,
                    first := numbers(found.members)[0],
                    "spyre",
                    self.asked.revision,
                    self._models.configs[first],
                ),
            )
            for found in one.found
        ]
        return Explored(
            self.asked,
            one.states,
            dict(zip(limits, one.states_by_member(len(limits)), strict=True)),
            one.transitions,
            one.depth,
            one.complete,
            one.open,
            self.checked,
            {
                rule: of(members)
                for rule, members in self._space.at_stake.items()
                if rule in self.checked
            },
            tuple(counterexamples),
            len(one.livelocks),
        )
