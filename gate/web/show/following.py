"""Follow a run step by step, and collect everything that the page shows about each request.

Lengths are in tokens unless stated otherwise. Values that the target does not show come from the
history, or are left out.

Numbers are stored as linear segments. In most steps, a number stays the same or grows by one; if
prefill and decode steps alternate, the same pattern repeats. So a few segments can represent
thousands of steps exactly, and the page restores every number from them.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ....model.errors import InputError
from ....model.observation import Step
from ....properties.explanations.pool import tables
from ....properties.history.features import features_of
from ....properties.history.request_history import RequestHistory
from ....properties.history.run_history import RunHistory
from ....spec.systems import SYSTEMS
from ..base.words import QUEUES


class Segment(NamedTuple):
    """The values of `steps` steps that begin at step `first`: `value`, `value` + `slope`, `value` +
    2 `slope` …

    This sequence occurs `times` times. Each repetition starts `stride` steps later, and its values
    are larger by `rise`.
    """

    first: int
    value: int
    slope: int
    steps: int
    stride: int = 0
    rise: int = 0
    times: int = 1

    def at(self, step: int) -> int | None:
        """Return the number in a step, or None if the step has none. `step` must not come before
        `first`."""
        time = min((step - self.first) // self.stride, self.times - 1) if self.stride else 0
        later = step - self.first - time * self.stride
        if 0 <= later < self.steps:
            return self.value + time * self.rise + later * self.slope
        return None

    def then(self, other: "Segment") -> "Segment | None":
        """Return both segments as one if `other` repeats this one, and otherwise None."""
        if (other.slope, other.steps) != (self.slope, self.steps):
            return None
        stride, rise = other.first - self.first, other.value - self.value
        if self.times == 1:
            return self._replace(stride=stride, rise=rise, times=2)
        if (stride, rise) == (self.stride * self.times, self.rise * self.times):
            return self._replace(times=self.times + 1)
        return None


class Line:
    """A number for each step. A step without a recorded number has none."""

    __slots__ = ("_closed", "_due", "_last", "_next")

    def __init__(self) -> None:
        self._closed: list[Segment] = []
        # The last segment, to which steps may still be added, as a list: first, value, slope,
        # steps.
        self._last: list[int] = []
        self._next = -1  # the step after the last recorded one
        self._due = 0  # the next value if the last segment continues

    @property
    def pieces(self) -> list[Segment]:
        return [*self._closed, Segment(*self._last)] if self._last else []

    def note(self, step: int, value: int | None) -> None:
        """Record the number in a step after all recorded ones. Record nothing for None."""
        if value is None:
            return
        last = self._last
        if step != self._next:
            self._begin(step, value)
        elif last[3] == 1:
            last[2] = value - last[1]
            last[3] = 2
        elif value == self._due:
            last[3] += 1
        else:
            self._begin(step, value)
        self._next = step + 1
        self._due = value + self._last[2]

    def hold(self, first: int, step: int) -> None:
        """In each step from `first` to `step`, repeat the number recorded before `first`."""
        if self._next != first:
            return
        if self._last[3] > 1 and self._last[2]:
            self.note(self._next, self._due - self._last[2])
        self._last[2:] = 0, self._last[3] + step + 1 - self._next
        self._next, self._due = step + 1, self._last[1]

    def at(self, step: int) -> int | None:
        if self._last and self._last[0] <= step:
            return Segment(*self._last).at(step)
        return next(
            (segment.at(step) for segment in reversed(self._closed) if segment.first <= step), None
        )

    def flat(self) -> list[int]:
        """Return all segments as one flat list, with seven numbers for each segment."""
        return [number for piece in self.pieces for number in piece]

    def _begin(self, step: int, value: int) -> None:
        if self._last:
            piece = Segment(*self._last)
            again = self._closed[-1].then(piece) if self._closed else None
            if again is None:
                self._closed.append(piece)
            else:
                self._closed[-1] = again
        self._last = [step, value, 0, 1]


class Changes:
    """A value for each step, stored only where it changes."""

    def __init__(self) -> None:
        self.kept: list[tuple[int, Any]] = []

    def note(self, step: int, value: Any) -> None:
        if not self.kept or self.kept[-1][1] != value:
            self.kept.append((step, value))

    def at(self, step: int) -> Any:
        return next((value for first, value in reversed(self.kept) if first <= step), None)


# The possible states of a request in a step; the page translates them into words.
STATES = (
    *("waiting", "prefill", "decode", "held", "paused", "preempted"),
    *("loading", "in_flight", "sending", "between_turns"),
)
MOST_STEPS = 300_000  # a page with this many steps takes one or two minutes and 300 MB
KINDS = ("prefill", "decode", "mixed", "idle")
# The sentences of the page. `{0}` is a request, `{1}` and `{2}` are numbers, and `{3}` is a word or
# a message.
WORDS = {
    "broken": "{3}",
    "arrived": "{0} arrives: prompt {1}, max_tokens {2}",
    "refused": "{0} is refused: {3}",
    "aborted": "the client aborts {0}",
    "joins": "{0} is projected to fit: at most {1} of {2}",
    "preempted": "{0} is preempted, and loses its computed tokens",
    "paused": "{0} is paused",
    "resumed": "{0} decodes again",
    "parked": "{0} is parked while a connector loads its blocks",
    "loaded": "{0} runs with the loaded tokens",
    "turn": "a turn of {0} ends, and it waits for its next input",
    "control": "the operator calls {3}",
    "jump": "the tkv of {0} jumps from {1} to {2}",
    "border": "{0} begins its block {2} (token {1})",
    "finished": "{0} finishes ({3})",
}
# The keys N and P jump to these events.
STOPS = (
    "broken",
    "preempted",
    "paused",
    "resumed",
    "parked",
    "loaded",
    "turn",
    "control",
    "jump",
    "border",
    "finished",
)


class Happening(NamedTuple):
    """An event of a request. `what` is a key of WORDS; the other fields complete its sentence."""

    step: int
    what: str
    request: str = ""
    first: int = 0
    second: int = 0
    word: str = ""


class Follower:
    """Collects the data of a run.

    `run` contains the numbers of the whole run, by name. `requests` contains the numbers of each
    request; see `_note`. `queues` and `blocks` give the state after each step. `stakes` has a 1 for
    each step that exercised a rule. `widest` is the length of the longest row in any step.
    """

    def __init__(self, system: str, config: Mapping[str, Any], rules: Sequence[str]) -> None:
        self.steps: list[Step] = []
        self.run: dict[str, Line] = defaultdict(Line)
        self.requests: dict[str, dict[str, Line]] = {}
        self.queues: dict[str, Changes] = {name: Changes() for name in QUEUES}
        self.blocks: dict[str, Changes] = {}
        self.stakes: dict[str, Line] = {rule: Line() for rule in rules}
        self.happenings: list[Happening] = []
        self.widest = 0
        self._followed = 0
        self._pads = SYSTEMS[system].pads
        self._features = features_of(system)
        self._block: int = config["block_size"]
        self._accounts: dict[str, RequestHistory] = {}
        self._prefilled: set[str] = set()
        self._counted: dict[str, int] = {}
        self._paused: frozenset[str] = frozenset()
        self._parked: frozenset[str] = frozenset()
        self._ended_turns: set[str] = set()  # parked requests that wait for their next turn
        self._decoded_at: dict[str, int] = {}
        self._pool_seen: Any = None
        self._pool_counts: dict[str, int] = {}
        # Left padding of each request in blocks, as last shown by the target.
        self._left: dict[str, int] = {}

    def follow(self, step: Step, history: RunHistory, exercised: Counter[str]) -> None:
        number = len(self.steps)
        self._followed += 1
        if self._followed > MOST_STEPS:
            problem = f"a run of more than {MOST_STEPS:,} steps; valid: a shorter run"
            raise InputError("FILE", problem)
        self.steps.append(step)
        seen = (history.requests.get(name) for name in (*step.scheduled, *(step.blocks or ())))
        self._accounts |= {
            request.id: request for request in seen if request is not None
        } | history.live
        self._note_run(number, step)
        for account in self._accounts.values():
            state = self._state(step, account)
            if state is not None:
                self._note(number, step, account, state)
        self._note_happenings(number, step)
        for rule, count in exercised.items():
            if count != self._counted.get(rule, 0):
                self._counted[rule] = count
                if rule in self.stakes:
                    self.stakes[rule].note(number, 1)
        self._prefilled = {request.id for request in history.live.values() if request.prefilled}
        self._accounts = dict(history.live)

    def repeat(self, last: int) -> None:
        """Repeat the last step, which was idle, up to and including step `last`."""
        first = len(self.steps)
        self.steps += [self.steps[-1]] * (last + 1 - first)
        for line in self.run.values():
            line.hold(first, last)

    def _note_run(self, number: int, step: Step) -> None:
        decodes = self._pads and step.kind == "decode" and step.tkv is not None
        batch = len(step.scheduled)
        values = {
            "kind": KINDS.index(step.kind),
            "tokens": sum(step.scheduled.values()),
            "tkv": step.tkv,
            "batch": batch,
            "volume": batch * step.tkv if decodes and step.tkv is not None else None,
            "free": step.free_blocks,
            "reserved": step.reserved_blocks,
            **self._pool(step),
        }
        for name, value in values.items():
            self.run[name].note(number, value)
        for name, changes in self.queues.items():
            queue = getattr(step, name)
            if queue is not None:
                changes.note(number, queue)

    def _pool(self, step: Step) -> dict[str, int]:
        """Count the held blocks, each one once. The counts are cached, because few steps change
        them."""
        if step.blocks is None:
            return {}
        seen = (step.blocks, step.group_blocks, step.prefix_hit)
        if seen != self._pool_seen:
            self._pool_seen = seen
            held = Counter(block for blocks in tables(step).values() for block in set(blocks))
            self._pool_counts = {
                "held": len(held),
                "shared": sum(many > 1 for many in held.values()),
            }
            if step.prefix_hit is not None:
                hits = step.prefix_hit.items()
                cached = {
                    block
                    for name, hit in hits
                    for block in step.blocks.get(name, ())[: hit // self._block]
                }
                self._pool_counts["cached"] = len(cached)
        return self._pool_counts

    def _state(self, step: Step, request: RequestHistory) -> str | None:
        if request.id in step.scheduled:
            return "decode" if request.id in self._prefilled else "prefill"
        if request.ended is not None:
            return (
                "sending"
                if request.id in (step.blocks or ()) and self._features.is_sent(request)
                else None
            )
        if request.id in (step.parked or ()):
            return "between_turns" if request.between_turns else "loading"
        if request.id in (step.paused or ()):
            return "paused"
        if request.started:
            waits = request.tokens_in_flight or request.id in (step.emitted_at or ())
            return "in_flight" if waits else "held"
        return "preempted" if request.preemptions else "waiting"

    def _note(self, number: int, step: Step, request: RequestHistory, state: str) -> None:
        """Record the numbers of one request. The first numbers are the lengths of the parts of the
        request's row, from left to right:

        `left` padding, `cached` (found in the prefix cache), `prompt` and `generated` (computed
        before), `now` (computed in this step), `rest` (still to be computed), `right` (padding up
        to the end of the block, or room in held blocks), `future` (tokens that the request may
        still generate).
        """
        now = step.scheduled.get(request.id, 0)
        computed = (step.computed or {}).get(request.id, request.computed)
        before = max(computed - now, 0)
        shown = (step.left_pad_blocks or {}).get(request.id)
        if shown is not None:
            self._left[request.id] = shown
        pad = self._left.get(request.id)
        blocks = (step.blocks or {}).get(request.id, ())
        known = request.prompt + request.regenerated
        end = max(computed, known)
        padded = -end % self._block if self._pads and computed else 0
        room = max(len(blocks) * self._block - end, 0)
        padding = (pad or 0) * self._block
        future = max(request.prompt + request.max_tokens - 1 - end, 0)
        self.widest = max(self.widest, padding + end + max(future, padded, room))
        values = {
            "state": STATES.index(state),
            "left": None if pad is None else padding,
            "cached": min(request.prefix_hit, before),
            "prompt": max(min(before, request.prompt) - request.prefix_hit, 0),
            "generated": max(before - max(request.prompt, request.prefix_hit), 0),
            "now": now,
            "rest": end - computed,
            "right": padded if self._pads else room,
            "future": future,
            "computed": computed,
            "emitted": request.emitted,
            "tkv": None,
            "held": None
            if step.blocks is None
            else len(tables(step).get(request.id, ()) if step.group_blocks else blocks),
        }
        if self._pads and state == "decode" and shown is not None:
            values["tkv"] = shown * self._block + computed
        lines = self.requests.get(request.id)
        if lines is None:
            lines = self.requests[request.id] = defaultdict(Line)
        for name, value in values.items():
            lines[name].note(number, value)
        if step.blocks is not None:
            self.blocks.setdefault(request.id, Changes()).note(number, blocks)

    def _note_happenings(self, number: int, step: Step) -> None:
        reported = self.happenings
        reported += [Happening(number, "preempted", name) for name in step.preempted or ()]
        paused = frozenset(step.paused or ())
        reported += [Happening(number, "paused", name) for name in sorted(paused - self._paused)]
        reported += [
            Happening(number, "resumed", name)
            for name in sorted(self._paused - paused)
            if name in step.scheduled
        ]
        self._paused = paused
        parked = frozenset(step.parked or ())
        for name in sorted(parked - self._parked):
            is_turn = name in self._accounts and self._accounts[name].between_turns
            reported.append(Happening(number, "turn" if is_turn else "parked", name))
        reported += [
            Happening(number, "loaded", name)
            for name in sorted(self._parked - parked)
            if name in step.scheduled and name not in self._ended_turns
        ]
        self._parked = parked
        self._ended_turns = {
            name for name in parked if name in self._accounts and self._accounts[name].between_turns
        }
        for name, tokens in step.scheduled.items():
            lines = self.requests.get(name)
            if lines and name in self._prefilled:
                reported += self._decode_events(number, name, lines, tokens)
        reported += [
            Happening(number, "finished", name, word=why)
            for name, why in (step.finished or {}).items()
        ]

    def _decode_events(
        self, number: int, name: str, lines: Mapping[str, Line], tokens: int
    ) -> list[Happening]:
        """Return the events of a decoding request: that it begins a block, and that its tkv jumps.

        The tkv jumps if it did not grow by exactly 1 since the request last decoded.
        """
        changes = []
        tkv = lines["tkv"].at(number)
        before = self._decoded_at.pop(name, None)
        if tkv is not None:
            self._decoded_at[name] = tkv
            if before is not None and tkv != before + 1:
                changes.append(Happening(number, "jump", name, before, tkv))
        computed = lines["computed"].at(number)
        if computed is not None and (computed - tokens) % self._block == 0:
            changes.append(Happening(number, "border", name, computed, computed // self._block + 1))
        return changes
