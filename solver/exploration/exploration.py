"""The exploration of one scope: its options, its result, and the scenarios of its paths."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...model.scenario import Request, Scenario
from ...properties.rules.registry import COMPLETION, can_be_explored, observable, predicates_of
from ...spec.catalogue import Rule
from ..systems import space_of
from .scheduler_space import SchedulerSpace
from .scope import Scope
from .search import Label, Order, StateSearch, Violation, numbers
from .undecided import Candidates, RequestMenu


@dataclass(frozen=True)
class ExploreOptions:
    """The options of an exploration.

    Attributes:
        reduced: whether to combine steps and lengths that make no difference. If False, every step
            and every length is a separate move.
        formula: a named formula of the system, which replaces the revision's own.
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
    """A broken rule, the limits (values of `SystemSpace.limit_key`) at which it is broken, and a
    run that breaks it at the first of these limits."""

    rule: str
    limits: tuple[int, ...]
    message: str
    scenario: Scenario


@dataclass(frozen=True)
class ExplorationResult:
    """The result of an exploration, or its progress so far.

    Attributes:
        states: the number of distinct states, over all limits together.
        states_by_limit: the number of states reached with each limit.
        transitions: the number of moves; a move that is made for several limits at once counts
            once.
        depth: the number of moves on the longest path.
        complete: whether every behaviour was explored.
        open: the number of states that were reached but not yet expanded.
        checked: the rules whose predicates were evaluated.
        exercised: for each rule, the limits at which its witness occurred.
        livelocks: cycles of states without progress.
    """

    options: ExploreOptions
    states: int
    states_by_limit: dict[int, int]
    transitions: int
    depth: int
    complete: bool
    open: int
    checked: tuple[str, ...]
    exercised: dict[str, tuple[int, ...]]
    counterexamples: tuple[Counterexample, ...]
    livelocks: int


class Exploration:
    """The exploration of one scope.

    All attributes are plain data, so that a checkpoint can pickle them.
    """

    def __init__(
        self,
        options: ExploreOptions,
        rules: Sequence[Rule],
        choose: Callable[[int], int] | None = None,
        space: type[SchedulerSpace] = SchedulerSpace,
    ) -> None:
        """Build the models. `space` replaces the usual state space.

        Raises:
            InputError: the revision has no such configuration.
        """
        scope = options.scope
        self.options = options
        self.rules = tuple(rule.id for rule in rules)
        self._models = space_of(scope.system).models(
            options.revision, scope.full_config, scope.limits, options.formula
        )
        self._menu = self._models.menu(scope.menu)
        config = self._models.configs[0]
        predicates = {
            rule: predicate
            for rule, predicate in predicates_of(scope.system).items()
            if predicate.concerns(config)
        }
        seen = observable(rules, options.revision, self._models.observes, config)
        self.checked = tuple(rule.id for rule in seen if can_be_explored(rule))
        self._space = space(
            self._models,
            self._menu,
            scope.requests,
            {rule: predicates[rule] for rule in self.checked if rule in predicates},
            options.revision,
            aborts=scope.aborts,
            reduced=options.reduced,
        )
        self.search = StateSearch(
            self._space, options.order, options.first_only, options.deepest, choose, options.walks
        )

    def result(self) -> ExplorationResult:
        search, limits = self.search, self.options.scope.limits

        def limits_of(members: int) -> tuple[int, ...]:
            return tuple(limits[member] for member in numbers(members))

        counterexamples = [
            Counterexample(
                violation.rule,
                limits_of(violation.members),
                violation.message,
                self.scenario(violation.path, numbers(violation.members)[0]),
            )
            for violation in (*search.violations, *self._livelocked())
        ]
        return ExplorationResult(
            self.options,
            search.states,
            dict(zip(limits, search.states_by_member(len(limits)), strict=True)),
            search.transitions,
            search.depth,
            search.complete,
            search.open,
            self.checked,
            {
                rule: limits_of(members)
                for rule, members in self._space.exercised.items()
                if rule in self.checked
            },
            tuple(counterexamples),
            len(search.livelocks),
        )

    def scenario(self, path: Sequence[Label], member: int = 0) -> Scenario:
        system, revision = self.options.scope.system, self.options.revision
        config = self._models.configs[member]
        return scenario_of(path, self._menu, member, system, revision, config)

    def _livelocked(self) -> Iterator[Violation]:
        """Yield requests that never end because a state recurs (ALL-R06). Skip states that several
        configurations share, because perhaps none of these configurations makes every move of the
        cycle."""
        search = self.search
        if COMPLETION not in self.checked or search.order == "random":
            return
        reported = 0
        for violation in search.violations:
            reported |= violation.members * (violation.rule == COMPLETION)
        for state in search.livelocks:
            members = search.known[state]
            if members.bit_count() == 1 and not members & reported:
                reported |= members
                message = "a state recurs, and no request has gained a token in between"
                yield Violation(COMPLETION, message, members, search.way_to(state))


@dataclass
class _Client:
    arrival: int
    candidates: Candidates
    emitted: int = 0
    ends: bool = False
    abort_at: int | None = None
    abort_inside: bool = False


def scenario_of(
    path: Sequence[Label], menu: RequestMenu, member: int, system: str, revision: str, config: Any
) -> Scenario:
    clients: dict[str, _Client] = {}
    step = 0
    for kind, *rest in path:
        if kind == "arrive":
            name, bits = rest
            clients[name] = _Client(step, menu.candidates(bits))
        elif kind == "choose":
            name, bits = rest
            clients[name].candidates = menu.candidates(bits)
        elif kind == "give up":
            clients[rest[0]].abort_at = step
        else:
            given_up, tokens = rest
            for name, bits, ending in tokens:
                clients[name].candidates = menu.candidates(bits)
                clients[name].emitted += 1
                clients[name].ends = ending
            if given_up is not None:
                clients[given_up[0]].abort_at = step
                clients[given_up[0]].abort_inside = given_up[1]
            step += 1
    return Scenario(
        system=system,
        revision=revision,
        config=dict(config),
        requests=tuple(_request(name, client, member) for name, client in clients.items()),
    )


def _request(name: str, client: _Client, member: int) -> Request:
    menu = client.candidates.menu
    place = next(n for n in client.candidates.numbers() if menu.accepted[n] >> member & 1)
    content = menu.candidates(1 << place).known_tokens(name)
    assert content is not None
    item = menu.items[place]
    return Request(
        id=name,
        arrival=client.arrival,
        prompt=content,
        max_tokens=item.max_tokens,
        output_len=client.emitted if client.ends else item.max_tokens,
        abort_at=client.abort_at,
        abort_inside=client.abort_inside,
        priority=item.priority,
        external_tokens=item.external_tokens,
        load_steps=item.load_steps,
    )
