"""One scope of a scheduler, explored: what is asked, and what came out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..model.scenario import Scenario
from ..properties.rules.predicate import Predicate
from ..properties.rules.registry import explored, observable, predicates_of
from ..spec.catalogue import Rule
from .explore import Exploration, Found, Label, Order, numbers
from .path import scenario_of
from .scheduling import COMPLETION, SchedulerSpace
from .scope import Scope
from .systems import space_of


@dataclass(frozen=True)
class ExploreOptions:
    """What is explored, and how.

    `formula`: Spyre admits by that volumetric check instead of the revision's own. `reduced`:
    without, every step and every length is a move of its own.
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
    """A broken rule: the limits (`Space.limit_key`) of the configurations that break it, and the
    run for the first of them."""

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
        exercised: per rule, the limits at which its witness occurred.
        livelocks: a state that comes again without progress was found.
    """

    asked: ExploreOptions
    states: int
    states_by_limit: dict[int, int]
    transitions: int
    depth: int
    complete: bool
    open: int
    checked: tuple[str, ...]
    exercised: dict[str, tuple[int, ...]]
    found: tuple[Counterexample, ...]
    livelocks: int


class Run:
    """One exploration on its way. Every part is plain data, so that it can be put by."""

    def __init__(
        self,
        asked: ExploreOptions,
        rules: Sequence[Rule],
        choose: Callable[[int], int] | None = None,
        space: type[SchedulerSpace] = SchedulerSpace,
        predicates: Mapping[str, Predicate] | None = None,
    ) -> None:
        """Make the models; `space` and `predicates` replace the usual ones.

        Raises:
            InputError: the revision has no such configuration.
        """
        scope = asked.scope
        self.asked = asked
        self.rules = tuple(rule.id for rule in rules)
        self._models = space_of(scope.system).models(
            asked.revision, scope.full_config, scope.limits, asked.formula
        )
        self._menu = self._models.menu(scope.menu)
        seen = observable(rules, asked.revision, self._models.observes, self._models.configs[0])
        predicates = predicates or predicates_of(scope.system)
        self.checked = tuple(rule.id for rule in seen if explored(rule))
        self._space = space(
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
                self.scenario(found.path, numbers(found.members)[0]),
            )
            for found in (*one.found, *self._in_circles())
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
                for rule, members in self._space.exercised.items()
                if rule in self.checked
            },
            tuple(counterexamples),
            len(one.livelocks),
        )

    def scenario(self, path: Sequence[Label], member: int = 0) -> Scenario:
        """The run that a path describes, in the configuration of this number."""
        asked, config = self.asked, self._models.configs[member]
        return scenario_of(path, self._menu, member, asked.scope.system, asked.revision, config)

    def _in_circles(self) -> Iterator[Found]:
        """Requests that never end because a state comes again (ALL-R06). States that several
        configurations share are left out: none of them may go all the way round."""
        one = self.exploration
        if COMPLETION not in self.checked or one.order == "random":
            return
        reported = sum(found.members for found in one.found if found.rule == COMPLETION)
        for state in one.livelocks:
            members = one.known[state]
            if members.bit_count() == 1 and not members & reported:
                reported |= members
                message = "a state comes again, and no request has got a token since"
                yield Found(COMPLETION, message, members, one.way_to(state))
