"""Use two targets as one: both get the same operations, and their steps are compared.

The pair returns the replies of its first target, so it can be driven by the state machine, replayed
and shrunk like any other target. If the replies differ, the pair records the difference and the run
continues.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from msgspec.structs import replace

from ...model.errors import InputError
from ...model.faults import ConfigRefused, TargetCrashed, TargetFault, TargetHung
from ...model.observation import Step
from ...model.replies import Started, read_ok, read_started, read_step
from ...model.target import Reply, Target
from .difference import (
    CLASSES,
    CRASH,
    HANG,
    HARMLESS,
    REFUSAL,
    Difference,
    of_answers,
    of_details,
    of_steps,
)
from .lockstep import shown
from .session import CONTEXT_STEPS, CRASHES_AND_HANGS, call_target
from .translation import translated

NAMES = ("A", "B")
RANKS = tuple(CLASSES)
# no scenario has this id: aborting it shows whether a target supports aborts
NO_REQUEST = "no such request"


@dataclass
class Side:
    """One of the two targets, with the system and revision whose configuration it gets.

    Attributes:
        started: the target's reply to the last start.
    """

    target: Target
    system: str
    revision: str
    stderr: Callable[[], str] = lambda: ""
    started: Started | None = None


class StepPair(NamedTuple):
    """The same step of both targets."""

    number: int
    first: Step
    second: Step


class Refused(NamedTuple):
    """A configuration that one target refuses and another target of the same system accepts."""

    difference: Difference
    config: Mapping[str, Any]


@dataclass
class Coverage:
    """The comparisons of a pair in all its runs, and the comparisons that were not possible.

    Attributes:
        steps: the number of steps that were compared, without the idle steps of runs that have no
            request.
        fields: for each field, the number of compared steps in which both showed it.
        events: how often each event occurred in the first target.
        both_failed: the number of runs in which both crashed or hung in the same way.
        refused: configurations that only one side refuses, the first of each shape.
        cannot_abort: why one of the targets cannot abort a request before a step (key False) or
            inside one (key True); empty if both can.
    """

    steps: int = 0
    fields: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    both_failed: int = 0
    refused: dict[str, Refused] = field(default_factory=dict)
    cannot_abort: dict[bool, str] = field(default_factory=dict)

    def add(self, other: "Coverage") -> None:
        self.steps += other.steps
        self.fields.update(other.fields)
        self.events.update(other.events)
        self.both_failed += other.both_failed
        self.refused = other.refused | self.refused
        self.cannot_abort |= other.cannot_abort


class DifferentialTarget:
    """Two targets as one.

    Attributes:
        coverage: the coverage of all runs so far.
        differences: the differences of the last run, each more serious than the one before. After a
            difference that changes decisions, the second target is no longer driven, since the two
            runs have diverged.
        recent: the last few steps of both targets, up to the first that differs.
        runs: how many times the pair was started.
        together: whether the second target still runs alongside the first.
        exact: whether details count as well, as between two versions of one scheduler.
    """

    def __init__(self, first: Side, second: Side, *, exact: bool = False) -> None:
        self.sides = (first, second)
        self.exact = exact
        self.coverage = Coverage()
        self.differences: list[Difference] = []
        self.recent: deque[StepPair] = deque(maxlen=CONTEXT_STEPS)
        self.runs = 0
        self.together = True
        self._requests: list[str] = []
        self._has_taken_one = False
        self._step = 0
        self._seen = _Seen()

    @property
    def difference(self) -> Difference | None:
        """Return the most serious difference of the last run."""
        return self.differences[-1] if self.differences else None

    def part(self) -> None:
        """Drive only the first target until the next start."""
        self.together = False

    def rejoin(self, steps: int) -> None:
        """Drive both targets again if the second one has also taken `steps` steps of this run."""
        self.together = steps == self._step

    def start(self, system: str, revision: str, config: Mapping[str, Any]) -> Reply:
        """Start both targets, each with the system of its side. Refuse a configuration that either
        of them refuses.

        A crash of only one target counts as a difference. If the second target crashes, only the
        first is driven from then on.

        Raises:
            TargetFault: the first target does not start, or the second has never started.
        """
        self.differences, self._requests, self._step = [], [], 0
        self._has_taken_one = False
        self.recent.clear()
        self.runs += 1
        self.together = True
        self._seen = _Seen()
        replies, refusals = [], {}
        faults: list[TargetFault | None] = []
        for name, side in zip(NAMES, self.sides, strict=True):
            fault = None
            try:
                own = self._in_terms_of(side, system, revision, config)
                reply = call_target("start", side.target.start, side.system, side.revision, own)
                side.started = read_started(reply)
                replies.append(reply)
            except (ConfigRefused, InputError) as refusal:
                refusals[name] = str(refusal)
            except CRASHES_AND_HANGS as crash:
                fault = crash
            faults.append(fault)
        if faults[0] is not None or not refusals:
            self._compare_faults(*faults)
        if faults[0] is not None:
            raise faults[0]
        if faults[1] is not None and self.sides[1].started is None:
            if isinstance(faults[1], TargetCrashed):
                message = f"{NAMES[1]}: {faults[1].message}"
                raise TargetCrashed("start", message, faults[1].details) from None
            raise faults[1]
        if not refusals:
            first, second = (side.started for side in self.sides if side.started is not None)
            common = {
                "controls": sorted(first.controls & second.controls),
                "features": sorted(first.features & second.features),
            }
            return replies[0] | {name: common[name] for name in common if name in replies[0]}
        comparable = all(side.system == system for side in self.sides)
        if len(refusals) == 1 and comparable:
            [(name, words)] = refusals.items()
            message = f"{name} refuses the configuration: {words}"
            refused = Refused(of_answers(REFUSAL, 0, message, ()), config)
            self.coverage.refused.setdefault(refused.difference.shape, refused)
        reasons = "; ".join(f"{name}: {words}" for name, words in refusals.items())
        if len(refusals) == 2 and len({*refusals.values()}) == 1:  # say it once
            reasons = refusals[NAMES[0]]
        return {"ok": False, "error": "config", "message": reasons}

    def add(self, request: Mapping[str, Any]) -> Reply:
        """Add the request to both targets. If both refuse it, it does not become part of the
        run."""
        self._requests.append(request["id"])
        first, second = self._both("add", lambda side: (side.target.add, request))
        if second is not None:
            words = [read_ok("add", first), read_ok("add", second)]
            self._has_taken_one |= None in words
            if (words[0] is None) != (words[1] is None):
                who = 0 if words[1] is None else 1
                self._note_answer(REFUSAL, f"{NAMES[who]} refuses {request['id']}: {words[who]}")
        return first

    def abort(self, id: str, inside: bool = False) -> Reply:  # noqa: A002
        """Abort the request in both targets, if both support it."""
        args = (True,) if inside else ()
        cannot = self.coverage.cannot_abort
        if inside not in cannot and self.together:
            cannot[inside] = self._unable_to_abort(args)
        if cannot.get(inside):
            return {"ok": False, "error": "unsupported", "message": cannot[inside]}
        first, _ = self._both("abort", lambda side: (side.target.abort, id, *args))
        return first

    def control(self, kind: str) -> Reply:
        first, second = self._both("control", lambda side: (side.target.control, kind))
        if second is not None and first.get("done") != second.get("done"):
            who = 0 if second.get("done") else 1
            self._note_answer(REFUSAL, f"{NAMES[who]} does not do {kind}, but the other does")
        return first

    def step(self) -> Reply:
        first, second = self._both("step", lambda side: (side.target.step,))
        if second is None:
            self._step += 1
            return first
        known = [side.started.observes for side in self.sides if side.started is not None]
        common = known[0] & known[1]
        own, other = (
            shown(_without_probe(read_step(reply, observes)), common)
            for reply, observes in zip((first, second), known, strict=True)
        )
        if self._has_taken_one:
            self.coverage.steps += 1
            self.coverage.fields.update(common)
            self.coverage.events.update(self._seen.events(own))
        difference = of_steps(self._step, own, other)
        if difference is None and self.exact:
            difference = of_details(self._step, own, other)
        if difference is None or not self._note(difference):
            self.recent.append(StepPair(self._step, own, other))
        self._step += 1
        return first

    def stop(self) -> Reply:
        first, *_ = [side.target.stop() for side in self.sides]
        return first

    def _note(self, difference: Difference) -> bool:
        """Record a difference, and return whether it is the most serious of the run so far.

        Ignore a difference that follows from an earlier one and is not more serious.
        """
        if difference.kind not in HARMLESS:
            self.together = False
        worst = self.difference
        if worst is not None and RANKS.index(difference.kind) >= RANKS.index(worst.kind):
            return False
        self.differences.append(difference)
        return True

    def _note_answer(self, kind: str, message: str, details: str = "") -> None:
        self._note(of_answers(kind, self._step, message, self._requests, details))

    def _unable_to_abort(self, args: tuple[bool, ...]) -> str:
        replies = self._both("abort", lambda side: (side.target.abort, NO_REQUEST, *args))
        refusals = {
            name: read_ok("abort", reply)
            for name, reply in zip(NAMES, replies, strict=True)
            if reply is not None
        }
        return "; ".join(f"{name}: {why}" for name, why in refusals.items() if why is not None)

    @staticmethod
    def _in_terms_of(
        side: Side, system: str, revision: str, config: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        if side.system == system:
            return config
        return translated(config, system, revision, side.system, side.revision)

    def _both(self, op: str, call: Callable[[Side], Sequence[Any]]) -> tuple[Reply, Reply | None]:
        """Return the replies of both targets. The second is None if that target no longer runs.

        Record a difference if only one target fails, or if one crashes and the other hangs.

        Raises:
            TargetFault: the first target crashes or hangs. A difference is recorded before.
        """
        first, fault = self._answer(op, self.sides[0], call)
        second, other = self._answer(op, self.sides[1], call) if self.together else (None, None)
        if self.together:
            self._compare_faults(fault, other)
        if fault is not None:
            raise fault
        assert first is not None
        return first, second

    def _compare_faults(self, first: TargetFault | None, second: TargetFault | None) -> None:
        """Record a difference if only one target crashes or hangs, or if one crashes and the other
        hangs. If one of them failed, drive only the first target from now on."""
        hangs = [isinstance(fault, TargetHung) for fault in (first, second)]
        if (first is None) != (second is None) or hangs[0] != hangs[1]:
            faults = zip(NAMES, (first, second), self.sides, strict=True)
            failed = [(name, fault, side) for name, fault, side in faults if fault is not None]
            _, failure, side = failed[0]
            details = getattr(failure, "details", "") or side.stderr()
            words = "; ".join(f"{name}: {fault}" for name, fault, _ in failed)
            self._note_answer(HANG if any(hangs) else CRASH, words, details)
        self.coverage.both_failed += first is not None and second is not None
        self.together &= first is None and second is None

    @staticmethod
    def _answer(
        op: str, side: Side, call: Callable[[Side], Sequence[Any]]
    ) -> tuple[Reply | None, TargetFault | None]:
        method, *args = call(side)
        try:
            reply = call_target(op, method, *args)
            if isinstance(reply, Mapping) and reply.get("error") == "crashed":
                read_ok(op, reply)
        except CRASHES_AND_HANGS as fault:
            return None, fault
        return reply, None


def _without_probe(step: Step) -> Step:
    if NO_REQUEST not in (step.finished or {}):
        return step
    finished = {name: why for name, why in (step.finished or {}).items() if name != NO_REQUEST}
    return replace(step, finished=finished)


class _Seen:
    """Counts each event once, when it begins, and not again while it lasts."""

    def __init__(self) -> None:
        self._hit: frozenset[str] = frozenset()
        self._paused: frozenset[str] = frozenset()

    def events(self, step: Step) -> Counter[str]:
        hit = frozenset(name for name, tokens in (step.prefix_hit or {}).items() if tokens)
        paused = frozenset(step.paused or ())
        ends = Counter((step.finished or {}).values())
        counts = Counter(
            {
                "prefix hit": len(hit - self._hit),
                "preemption": len(step.preempted or ()),
                "pause": len(paused - self._paused),
                "abort": ends["aborted"],
                "early EOS": ends["eos"],
            }
        )
        self._hit, self._paused = hit, paused
        return +counts
