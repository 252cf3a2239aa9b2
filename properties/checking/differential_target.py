"""Two targets in the place of one: asked the same, compared step by step.

The pair answers as its first target does, so that any driver of a target (the machine, replay,
shrinking) drives both; where they differ it raises `Differs`.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from msgspec.structs import replace

from ...model.errors import InputError
from ...model.faults import ConfigRefused, TargetFault, TargetHung
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
    Differs,
    of_answers,
    of_steps,
)
from .lockstep import shown
from .session import CONTEXT_STEPS, CRASHES_AND_HANGS, ask
from .translation import translated

NAMES = ("A", "B")
RANKS = tuple(CLASSES)
NO_REQUEST = "no such request"  # an id of no scenario: aborting it shows what a target supports


@dataclass
class Side:
    """One of the two targets, and whose terms it understands.

    Attributes:
        started: what it said of itself when it was last started.
    """

    target: Target
    system: str
    revision: str
    stderr: Callable[[], str] = lambda: ""
    started: Started | None = None


class Both(NamedTuple):
    """A step of both."""

    number: int
    first: Step
    second: Step


@dataclass
class Coverage:
    """What was compared: steps, fields that both show (with the steps in which they did), events
    of the first target, and runs in which both crashed or hung alike."""

    steps: int = 0
    fields: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    both_failed: int = 0

    def add(self, other: "Coverage") -> None:
        """What was compared elsewhere, too."""
        self.steps += other.steps
        self.fields.update(other.fields)
        self.events.update(other.events)
        self.both_failed += other.both_failed


class Refused(NamedTuple):
    """A configuration that one of two targets of one system refuses."""

    difference: Difference
    config: Mapping[str, Any]


class Pair:
    """Two targets as one.

    Attributes:
        coverage: over all runs since the pair was made.
        difference: the one in which the last run ended, if it did.
        recent: the last few steps of the run, on both.
        tolerated: shapes of harmless differences that do not end a run: what follows from them in
            it counts where it is graver.
        earlier: the first one of the last run that was tolerated.
        refused: configurations that one side only refuses, the first of each shape.
        cannot_abort: the targets that cannot abort, before a step (False) or inside one (True), in
            its words; nothing where both can.
    """

    def __init__(self, first: Side, second: Side) -> None:
        self.sides = (first, second)
        self.coverage = Coverage()
        self.difference: Difference | None = None
        self.recent: deque[Both] = deque(maxlen=CONTEXT_STEPS)
        self.tolerated: frozenset[str] = frozenset()
        self.earlier: Difference | None = None
        self.refused: dict[str, Refused] = {}
        self.cannot_abort: dict[bool, str] = {}
        self._requests: list[str] = []
        self._step = 0
        self._seen = _Seen()

    def start(self, system: str, revision: str, config: Mapping[str, Any]) -> Reply:
        """Start both, each in its own terms; what either refuses is refused.

        Raises:
            TargetFault: one of them does not start.
        """
        self.difference, self.earlier, self._requests, self._step = None, None, [], 0
        self.recent.clear()
        self._seen = _Seen()
        replies, refusals = [], {}
        for name, side in zip(NAMES, self.sides, strict=True):
            try:
                own = self._in_terms_of(side, system, revision, config)
                reply = ask("start", side.target.start, side.system, side.revision, own)
                side.started = read_started(reply)
                replies.append(reply)
            except (ConfigRefused, InputError) as refusal:
                refusals[name] = str(refusal)
        if not refusals:
            return replies[0]
        comparable = all(side.system == system for side in self.sides)
        if len(refusals) == 1 and comparable:
            [(name, words)] = refusals.items()
            message = f"{name} refuses the configuration: {words}"
            refused = Refused(of_answers(REFUSAL, 0, message, ()), config)
            self.refused.setdefault(refused.difference.shape, refused)
        said = "; ".join(f"{name}: {words}" for name, words in refusals.items())
        return {"ok": False, "error": "config", "message": said}

    def add(self, request: Mapping[str, Any]) -> Reply:
        """Both get the request; a request that both refuse is no part of the run.

        Raises:
            Differs: one of them refuses it, or crashes.
        """
        self._requests.append(request["id"])
        first, second = self._both("add", lambda side: (side.target.add, request))
        words = [read_ok("add", first), read_ok("add", second)]
        if (words[0] is None) != (words[1] is None):
            who = 0 if words[1] is None else 1
            self._differ(REFUSAL, f"{NAMES[who]} refuses {request['id']}: {words[who]}")
        return first

    def abort(self, id: str, inside: bool = False) -> Reply:  # noqa: A002
        """Both abort it, if both can.

        Raises:
            Differs: one of them crashes.
        """
        args = (True,) if inside else ()
        if inside not in self.cannot_abort:
            self.cannot_abort[inside] = self._unable_to_abort(args)
        if self.cannot_abort[inside]:
            return {"ok": False, "error": "unsupported", "message": self.cannot_abort[inside]}
        first, _ = self._both("abort", lambda side: (side.target.abort, id, *args))
        return first

    def step(self) -> Reply:
        """One step of both, compared on the fields that both show.

        Raises:
            Differs: in any of these fields, or one of them crashes or hangs.
        """
        first, second = self._both("step", lambda side: (side.target.step,))
        known = [side.started.observes for side in self.sides if side.started is not None]
        common = known[0] & known[1]
        own, other = (
            shown(_without_probe(read_step(reply, observes)), common)
            for reply, observes in zip((first, second), known, strict=True)
        )
        self.coverage.steps += 1
        self.coverage.fields.update(common)
        self.coverage.events.update(self._seen.events(own))
        difference = of_steps(self._step, own, other)
        if difference is not None and not self._tolerates(difference):
            self.difference = difference
            raise Differs(difference)
        self.recent.append(Both(self._step, own, other))
        self._step += 1
        return first

    def stop(self) -> Reply:
        first, *_ = [side.target.stop() for side in self.sides]
        return first

    def _tolerates(self, difference: Difference) -> bool:
        if difference.kind not in HARMLESS:
            return False
        if self.earlier is not None:
            return RANKS.index(difference.kind) >= RANKS.index(self.earlier.kind)
        if difference.shape in self.tolerated:
            self.earlier = difference
        return self.earlier is not None

    def _unable_to_abort(self, args: tuple[bool, ...]) -> str:
        asked = self._both("abort", lambda side: (side.target.abort, NO_REQUEST, *args))
        said = {name: read_ok("abort", one) for name, one in zip(NAMES, asked, strict=True)}
        return "; ".join(f"{name}: {words}" for name, words in said.items() if words is not None)

    @staticmethod
    def _in_terms_of(
        side: Side, system: str, revision: str, config: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        if side.system == system:
            return config
        return translated(config, system, revision, side.system, side.revision)

    def _both(self, op: str, call: Callable[[Side], Sequence[Any]]) -> list[Reply]:
        """Both replies; a crash of one is a difference, a crash of both is the first one's."""
        replies: list[Reply] = []
        faults: dict[int, TargetFault] = {}
        for number, side in enumerate(self.sides):
            method, *args = call(side)
            try:
                reply = ask(op, method, *args)
                if isinstance(reply, Mapping) and reply.get("error") == "crashed":
                    read_ok(op, reply)
                replies.append(reply)
            except CRASHES_AND_HANGS as fault:
                faults[number] = fault
        if len(faults) == 1:
            [(number, alone)] = faults.items()
            details = getattr(alone, "details", "") or self.sides[number].stderr()
            kind = HANG if isinstance(alone, TargetHung) else CRASH
            self._differ(kind, f"{NAMES[number]}: {alone}", details)
        if faults:
            self.coverage.both_failed += 1
            raise faults[0]
        return replies

    def _differ(self, kind: str, message: str, details: str = "") -> None:
        self.difference = of_answers(kind, self._step, message, self._requests, details)
        raise Differs(self.difference)


def _without_probe(step: Step) -> Step:
    if NO_REQUEST not in (step.finished or {}):
        return step
    finished = {name: why for name, why in (step.finished or {}).items() if name != NO_REQUEST}
    return replace(step, finished=finished)


class _Seen:
    """What is worth counting in a run: events as they begin, not the steps that they last."""

    def __init__(self) -> None:
        self._hit: frozenset[str] = frozenset()
        self._paused: frozenset[str] = frozenset()

    def events(self, step: Step) -> Counter[str]:
        hit = frozenset(name for name, tokens in (step.prefix_hit or {}).items() if tokens)
        paused = frozenset(step.paused or ())
        ends = Counter((step.finished or {}).values())
        found = Counter(
            {
                "prefix hit": len(hit - self._hit),
                "preemption": len(step.preempted or ()),
                "pause": len(paused - self._paused),
                "abort": ends["aborted"],
                "early EOS": ends["eos"],
            }
        )
        self._hit, self._paused = hit, paused
        return +found
