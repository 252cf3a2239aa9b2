"""Run a scheduler by hand: the user chooses what the clients do next, and each step is judged.

The clients' actions form a growing scenario. Steps go through a `Session`, so rules are judged
exactly as in `gate` and `replay`. To undo a move, the scenario without that move runs again.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

from msgspec.structs import replace

from ....model.errors import InputError
from ....model.faults import ConfigRefused, TargetFault
from ....model.observation import Step
from ....model.scenario import Request, Scenario
from ....model.systems import full_config
from ....model.target import Target
from ....properties.checking.replay import client_actions
from ....properties.checking.session import Session
from ....properties.history.bounds import bounds_of
from ....properties.rules.predicate import Broken
from ....properties.rules.registry import ends_run
from ....spec.catalogue import Rule

MAX_REQUESTS = 64
MAX_STEPS = 5_000
MAX_TOKENS = 131_072  # the longest prompt, and the longest output
EXAMPLE = ((0, 6, 6), (1, 11, 5), (2, 3, 8))  # arrival, prompt tokens, max_tokens
EXAMPLE_STEPS = 6
SHARED = "shared"  # the token stream at the beginning of prompts with a shared prefix


class NotNow(ValueError):  # noqa: N818 (an answer to the user, not an error)
    """Raised for a move that the run does not allow at present. The message is one line that names
    the allowed moves."""


class StepSetup(NamedTuple):
    """The target to step, its complete configuration, and what it wrote to stderr."""

    target: Target
    system: str
    revision: str
    config: Mapping[str, Any]
    rules: Sequence[Rule]
    stderr: Callable[[], str]


class Clients(NamedTuple):
    """What the clients have done so far, and the number of steps since the start."""

    requests: tuple[Request, ...] = ()
    steps: int = 0


@dataclass(frozen=True)
class Taken:
    """A step of the run. `step` is None if the scheduler crashed or hung in it."""

    number: int
    step: Step | None
    broken: tuple[Broken, ...]
    exercised: frozenset[str]


class ByHand:
    """A run that advances by one move at a time.

    `clients` includes what the clients do in the next step. `padding` is the left padding of each
    request in blocks, as last shown by the target. `fault` says why the target cannot continue; it
    is None if a broken rule is the reason.
    """

    def __init__(self, setup: StepSetup) -> None:
        self.setup = setup
        self.clients = Clients()
        self._before: list[Clients] = []
        self._start()

    @property
    def can_undo(self) -> bool:
        return bool(self._before)

    @property
    def ended(self) -> bool:
        """Whether the run has ended, because the target is gone or because nothing more can be
        judged."""
        broken = (failure for taken in self.taken for failure in taken.broken)
        return self.fault is not None or ends_run(broken)

    @property
    def first_broken(self) -> Broken | None:
        return next((failure for taken in self.taken for failure in taken.broken), None)

    def scenario(self) -> Scenario:
        setup = self.setup
        return Scenario(
            name="stepped by hand",
            system=setup.system,
            revision=setup.revision,
            config=dict(setup.config),
            requests=self.clients.requests,
            origin={"engine": "by hand"},
        )

    def arrive(
        self,
        prompt: int,
        max_tokens: int,
        priority: int = 0,
        shared: int = 0,
        **loads: Any,
    ) -> None:
        """Add a request before the next step. Its first `shared` tokens are common to all
        requests."""
        self._must_go_on()
        if len(self.clients.requests) == MAX_REQUESTS:
            raise NotNow(f"{MAX_REQUESTS} requests have arrived, the maximum for a run by hand")
        if shared > prompt:
            raise NotNow(f"shared {shared}; valid: 0 to {prompt}, the length of the prompt")
        external = loads.get("external_tokens", 0)
        if external > prompt:
            raise NotNow(f"load {external}; valid: 0 to {prompt}, the length of the prompt")
        name = self._free_name()
        segments = ((SHARED, shared), (name, prompt - shared))
        request = Request(
            id=name,
            arrival=self.clients.steps,
            prompt=tuple((stream, length) for stream, length in segments if length),
            max_tokens=max_tokens,
            priority=priority,
            **loads,
        )
        self._do(self.clients._replace(requests=(*self.clients.requests, request)))
        if not bounds_of(self.setup.system).can_run(self.setup.config, prompt, max_tokens):
            self.notice = f"{name} can never run in this configuration, so it must be refused"

    def load(self, scenario: Scenario) -> None:
        """Start over with the configuration and the clients of a scenario, before its first
        step. Requests arrive and are aborted in the steps that the scenario names."""
        setup = self.setup
        if scenario.system != setup.system:
            here = f"{setup.system}, which is stepped here"
            raise NotNow(f"the scenario is for {scenario.system}; valid: a scenario for {here}")
        if len(scenario.requests) > MAX_REQUESTS:
            many = f"the scenario has {len(scenario.requests)} requests"
            raise NotNow(f"{many}; valid: {MAX_REQUESTS} at most")
        try:
            config = full_config(setup.system, setup.revision, scenario.config)
        except InputError as error:
            raise NotNow(f"the scenario: {error}") from None
        before, self.setup = self.setup, setup._replace(config=config)
        self.restart()
        if self.fault is not None:  # the target refused the configuration of the scenario
            why, self.setup = self.fault, before
            self.restart()
            raise NotNow(f"the target refuses its configuration: {why}")
        self.clients = Clients(scenario.requests)

    def show_example(self) -> None:
        """Take a few steps with requests that can run, so that the page is not empty at first."""
        beyond = bounds_of(self.setup.system).beyond
        self.clients = Clients(
            tuple(
                Request(id=f"r{n}", arrival=arrival, prompt=((f"r{n}", prompt),), max_tokens=output)
                for n, (arrival, prompt, output) in enumerate(EXAMPLE)
                if not beyond(self.setup.config, prompt, output)
            )
        )
        if not self.clients.requests:
            return
        for _ in range(EXAMPLE_STEPS):
            self.step()
            if self.ended or self.taken[-1].broken:
                break
        if self.fault is not None:
            self.restart()
        else:
            self.notice = "an example to begin with: change it, or start over"

    def abort(self, name: str, inside: bool) -> None:
        self._must_go_on()
        self._must_be_here(name)
        self._do(self._changed(name, abort_at=self.clients.steps, abort_inside=inside))

    def end(self, name: str) -> None:
        """Make the next token of a request EOS. The target was told the output length when the
        request arrived, so repeat the whole run with the new length."""
        self._must_go_on()
        request = self._must_be_here(name)
        account = self.session.monitor.history.live.get(name)
        length = 1 + (account.emitted if account is not None else 0)
        if length >= request.max_tokens:
            raise NotNow(
                f"{name} has one token left of its {request.max_tokens}, so it ends anyway"
            )
        self._do(self._changed(name, output_len=length))
        if account is not None:
            self._again()

    def step(self, times: int = 1) -> None:
        """Take a number of steps. Stop at the first one that breaks a rule."""
        self._must_go_on()
        if self.clients.steps + times > MAX_STEPS:
            raise NotNow(f"{MAX_STEPS:,} steps have been taken, the maximum for a run by hand")
        self._do(self.clients)
        for _ in range(times):
            self.clients = self.clients._replace(steps=self.clients.steps + 1)
            self._take()
            if self.ended or self.taken[-1].broken:
                return

    def undo(self) -> None:
        if not self._before:
            raise NotNow("there is no move to undo")
        last, self.clients = self.clients, self._before.pop()
        self.notice = ""
        if self.ended or last.steps != self.clients.steps or self._asks_otherwise(last):
            self._again()

    def restart(self) -> None:
        self.clients = Clients()
        self._before = []
        self.notice = ""
        self._again()

    def _start(self) -> None:
        setup = self.setup
        self.taken: list[Taken] = []
        self.padding: dict[str, int] = {}
        self.fault: str | None = None
        self.notice = ""
        self._at_stake: Counter[str] = Counter()
        terms = (setup.target, setup.system, setup.revision, setup.config, setup.rules)
        self.session = Session(*terms, self._at_stake)
        for broken in self.session.broken_at_start:
            self.fault = str(broken.message)

    def _again(self) -> None:
        before = [taken.step for taken in self.taken]
        try:
            self._start()
        except (ConfigRefused, TargetFault) as error:
            self.fault = str(error)
            return
        while len(self.taken) < self.clients.steps and not self.ended:
            self._take()
        self.clients = self.clients._replace(steps=len(self.taken))
        now = [taken.step for taken in self.taken]
        for number, (old, new) in enumerate(zip(before, now, strict=False)):
            if old is not None and old != new:
                self.notice = (
                    f"when the run is repeated, the target answers step {number} differently"
                )
                return

    def _take(self) -> None:
        number, stakes = len(self.taken), self._at_stake.copy()
        arrivals = [request for request in self.clients.requests if request.arrival == number]
        broken: list[Broken] = []
        try:
            broken = client_actions(self.session, self.scenario(), arrivals, number)
            broken = broken or self.session.step()
        except TargetFault as error:
            self.fault = str(error)
        recent = self.session.recent
        step = recent[-1][1] if recent and recent[-1][0] == number else None
        exercised = frozenset(
            rule for rule in self._at_stake if self._at_stake[rule] > stakes[rule]
        )
        self.taken.append(Taken(number, step, tuple(broken), exercised))
        if step is not None:
            self.padding.update(step.left_pad_blocks or {})

    def _do(self, clients: Clients) -> None:
        self._before.append(self.clients)
        self.clients = clients
        self.notice = ""

    def _free_name(self) -> str:
        names = {request.id for request in self.clients.requests}
        return next(name for number in count() if (name := f"r{number}") not in names)

    def _changed(self, name: str, **changes: Any) -> Clients:
        requests = tuple(
            replace(request, **changes) if request.id == name else request
            for request in self.clients.requests
        )
        return self.clients._replace(requests=requests)

    def _asks_otherwise(self, last: Clients) -> bool:
        steps = self.clients.steps
        reported = [
            {
                request.id: request.output_len
                for request in clients.requests
                if request.arrival < steps
            }
            for clients in (last, self.clients)
        ]
        return reported[0] != reported[1]

    def _must_go_on(self) -> None:
        if self.ended:
            raise NotNow("the run has ended; valid: undo, or start over")

    def _must_be_here(self, name: str) -> Request:
        live = self.session.monitor.history.live
        for request in self.clients.requests:
            is_coming = request.arrival == self.clients.steps
            if request.id == name and (is_coming or name in live):
                return request
        here = [
            request.id
            for request in self.clients.requests
            if request.id in live or request.arrival == self.clients.steps
        ]
        raise NotNow(
            f"{name!r:.40} is not an unfinished request; valid: {', '.join(here) or 'none yet'}"
        )
