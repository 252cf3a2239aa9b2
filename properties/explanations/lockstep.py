"""Find out which published behaviour a recorded run follows, by running all models of its system
alongside the run.

Models are deterministic. A recording leaves at most two things open: whether an abort came before a
step or inside it, and how many tokens a request generates. For an abort, both possibilities are
followed as long as they match. The number of tokens is known from the step in which the request
ends.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from ...model.errors import InputError, ReleaseEnded
from ...model.members import completing, ending
from ...model.observation import Step
from ...model.scenario import Request
from ...model.systems import Model, make_model, revisions_of
from ..checking import lockstep

AHEAD = 3  # how many steps of the model are reported
MAX_BRANCHES = 32  # if there are more branches, an abort is taken as recorded


class Branch(NamedTuple):
    """A model's state before a step, and the requests that will be aborted inside it."""

    state: Any
    inside: tuple[str, ...] = ()


class Departure(NamedTuple):
    """The point at which a run departs from a model: the step, the differences, and what the model
    would have done in this step and in the next."""

    step: int
    differences: tuple[str, ...]
    ahead: tuple[tuple[int, Step], ...]


@dataclass
class Match:
    """The model of one revision, run alongside the recorded run.

    Attributes:
        matched: the number of steps, from the start of the run, in which the model makes the same
            decision.
        departed: where the match ended; None as long as every step matches.
    """

    revision: str
    model: Model
    branches: list[Branch]
    observes: frozenset[str]
    matched: int = 0
    departed: Departure | None = None

    def accept(self, request: Request) -> None:
        if self.departed is not None:
            return
        refusal = self.model.refusal(request)
        if refusal is not None:
            words = f"{request.id} is accepted, but the model refuses it: {refusal}"
            self._depart(self.branches[0], (words,))
            return
        self.branches = [
            branch._replace(state=self.model.arrive(branch.state, request))
            for branch in self.branches
        ]

    def abort(self, request_id: str, inside: bool, *, open_time: bool) -> None:
        """Record an abort. With `open_time`, the abort may have come before the step or inside
        it."""
        if self.departed is not None:
            return
        ways = [inside]
        if open_time and 2 * len(self.branches) <= MAX_BRANCHES:
            ways.append(not inside)
        tried = [self._aborted(branch, request_id, way) for way in ways for branch in self.branches]
        self.branches = distinct(tried)

    def control(self, kind: str, done: bool) -> None:
        """Record a control event. If the model's reply is different, the match ends."""
        if self.departed is not None:
            return
        if kind not in self.model.controls:
            self._depart(self.branches[0], (f"{kind} is not modelled in this configuration",))
            return
        answers = [self.model.control(branch.state, kind) for branch in self.branches]
        alike = [
            branch._replace(state=state)
            for branch, (state, answer) in zip(self.branches, answers, strict=True)
            if answer == done
        ]
        if alike:
            self.branches = distinct(alike)
        else:
            self._depart(self.branches[0], (f"{kind}: done {done}, but {not done} in the model",))

    def observe(self, step: Step, ends: Sequence[str], open_ended: frozenset[str]) -> None:
        """Follow the next step of the run. `ends` lists the requests of open-ended length that end
        in this step."""
        if self.departed is not None:
            return
        matching = []
        departures = []
        for before in self.branches:
            state = before.state
            for request_id in ends:
                state = ending(state, request_id)
            begins = before._replace(state=state)
            if step.completes is not None:
                begins = begins._replace(state=completing(begins.state, step.completes))
            try:
                after, expected = self._step(begins)
            except ReleaseEnded as end:
                departures.append((begins, [f"the model ends: {end}"]))
                continue
            if step.completes is not None:
                expected = msgspec.structs.replace(expected, completes=step.completes)
            expected = _ended_alike(step, expected, open_ended)
            differences = differing(step, expected)
            if differences:
                departures.append((begins, differences))
            else:
                matching.append(after)
        if matching:
            self.branches = distinct(matching)
            self.matched += 1
        else:
            self._depart(*min(departures, key=lambda branch: len(branch[1])))

    def _depart(self, branch: Branch, differences: Sequence[str]) -> None:
        ahead = []
        with suppress(ReleaseEnded):
            for number in range(self.matched, self.matched + AHEAD):
                branch, step = self._step(branch)
                ahead.append((number, step))
        self.departed = Departure(self.matched, tuple(differences), tuple(ahead))
        self.branches = []

    def _step(self, branch: Branch) -> tuple[Branch, Step]:
        state, seen = self.model.step(branch.state, branch.inside)
        shown = {name: value for name, value in seen.items() if name in self.observes}
        return Branch(state), msgspec.convert(shown, Step)

    def _aborted(self, branch: Branch, request_id: str, inside: bool) -> Branch:
        if inside:
            return branch._replace(inside=(*branch.inside, request_id))
        return branch._replace(state=self.model.abort(branch.state, request_id))


class Explainer:
    """The models of all of a system's revisions that support the run's configuration.

    Attributes:
        matches: a match for each revision; the first is that of the revision that judges the run.
        unfit: revisions without a model for the configuration, with the reason.
    """

    def __init__(
        self, system: str, revision: str, config: Mapping[str, Any], observes: frozenset[str]
    ) -> None:
        self.matches: list[Match] = []
        self.unfit: dict[str, str] = {}
        self._open: set[str] = set()
        self._live: set[str] | None = set() if "finished" in observes else None
        for name in sorted(revisions_of(system), key=lambda candidate: candidate != revision):
            try:
                model = make_model(system, name, config)
            except InputError as error:
                self.unfit[name] = str(error)
                continue
            self.matches.append(Match(name, model, [Branch(model.initial())], observes))

    @property
    def best(self) -> Match | None:
        """Return the longest match, or the first of equally long ones. Return None if there is no
        model."""
        return max(self.matches, key=lambda match: match.matched, default=None)

    @property
    def over(self) -> bool:
        return all(match.departed is not None for match in self.matches)

    def match_of(self, revision: str) -> Match | None:
        return next((match for match in self.matches if match.revision == revision), None)

    def accept(self, request: Request, *, open_ended: bool = False) -> None:
        if self._live is not None:
            self._live.add(request.id)
            if open_ended:
                self._open.add(request.id)
        for match in self.matches:
            match.accept(request)

    def abort(self, request_id: str, inside: bool) -> None:
        """Record an abort. It has no effect on a request that has ended."""
        open_time = self._live is None or request_id in self._live
        for match in self.matches:
            match.abort(request_id, inside, open_time=open_time)

    def control(self, kind: str, done: bool) -> None:
        for match in self.matches:
            match.control(kind, done)

    def observe(self, step: Step) -> None:
        finished = step.finished or {}
        ends = [name for name, why in finished.items() if why == "eos" and name in self._open]
        for match in self.matches:
            match.observe(step, ends, frozenset(self._open & finished.keys()))
        if finished and self._live is not None:
            self._open -= finished.keys()
            self._live -= finished.keys()


def differing(seen: Step, expected: Step) -> list[str]:
    """Describe each field in which the seen step differs from the expected one."""
    if seen == expected and [*seen.scheduled] == [*expected.scheduled]:
        return []
    return lockstep.differences(seen, expected)


def distinct(branches: Sequence[Branch]) -> list[Branch]:
    if len(branches) == 1:
        return list(branches)
    kept: list[Branch] = []
    for branch in branches:
        if branch not in kept:
            kept.append(branch)
    return kept


def _ended_alike(seen: Step, expected: Step, open_ended: frozenset[str]) -> Step:
    """If the output length is unknown, replace the model's reason for an end with the target's: the
    last token that max_tokens allows may also be an EOS."""
    if not open_ended or not seen.finished or not expected.finished:
        return expected
    words = {
        name: seen.finished[name]
        if name in open_ended and "aborted" not in (why, seen.finished.get(name, "aborted"))
        else why
        for name, why in expected.finished.items()
    }
    return msgspec.structs.replace(expected, finished=words)
