"""Follow a run step by step, and collect everything that a page shows about each request.

Lengths are in tokens unless the text says blocks. Values that the target does not show come from
the history, or are left out.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ....model.observation import Step
from ....properties.history.features import features_of
from ....properties.history.request_history import RequestHistory
from ....properties.history.run_history import RunHistory
from ....spec.systems import SYSTEMS
from ..base.words import QUEUES
from .segments import Changes, Line

# The states of a request in a step; the page translates them into words.
STATES = (
    *("waiting", "prefill", "decode", "held", "paused", "preempted"),
    *("loading", "in_flight", "sending"),
)
KINDS = ("prefill", "decode", "mixed", "idle")
# The sentences of a page; `{0}` is a request, `{1}` and `{2}` are numbers, `{3}` is a word or a
# message.
WORDS = {
    "broken": "{3}",
    "arrived": "{0} arrives: prompt {1}, max_tokens {2}",
    "refused": "{0} is refused: {3}",
    "aborted": "the client gives up {0}",
    "joins": "{0} is projected to fit: at most {1} of {2}",
    "preempted": "{0} is preempted, and loses its computed tokens",
    "paused": "{0} is paused",
    "resumed": "{0} decodes again",
    "parked": "{0} is parked while a connector loads its blocks",
    "loaded": "{0} runs with the loaded tokens",
    "jump": "the tkv of {0} jumps from {1} to {2}",
    "border": "{0} begins its block {2} (token {1})",
    "finished": "{0} finishes ({3})",
}
# Events at which the keys N and P stop.
STOPS = (
    "broken",
    "preempted",
    "paused",
    "resumed",
    "parked",
    "loaded",
    "jump",
    "border",
    "finished",
)


class Happening(NamedTuple):
    """An event of a request. `what` is a key of WORDS, and the other fields fill in its
    sentence."""

    step: int
    what: str
    request: str = ""
    first: int = 0
    second: int = 0
    word: str = ""


class Follower:
    """Collects the data of a run.

    Attributes:
        steps: the steps as the target showed them.
        run: numbers of the whole run, by name and step: `kind` (place in KINDS), `tkv`, `batch` and
            `volume` of a decode step, blocks `held`, `shared` (by several requests), `cached`
            (held, and found in the prefix cache), `free` and `reserved`.
        requests: numbers of each request, by id, name and step; see `_note`.
        queues: the ids in each queue after a step.
        blocks: the numbers of each request's blocks, after a step.
        stakes: for each rule, a 1 for each step in which it was exercised.
        happenings: the events, with their steps.
        widest: the position at which the longest row of any step ends.
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
        self._pads = SYSTEMS[system].pads
        self._features = features_of(system)
        self._block: int = config["block_size"]
        self._accounts: dict[str, RequestHistory] = {}
        self._prefilled: set[str] = set()
        self._counted: dict[str, int] = {}
        self._paused: frozenset[str] = frozenset()
        self._parked: frozenset[str] = frozenset()
        self._decoded_at: dict[str, int] = {}
        self._pool_seen: Any = None
        self._pool_counts: dict[str, int] = {}
        self._left: dict[str, int] = {}  # left padding of each request in blocks, as last shown

    def follow(self, step: Step, history: RunHistory, exercised: Counter[str]) -> None:
        number = len(self.steps)
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
        """Count the held blocks, each block once. The counts are cached: there may be thousands of
        blocks, and few steps change any of them."""
        if step.blocks is None:
            return {}
        seen = (step.blocks, step.prefix_hit)
        if seen != self._pool_seen:
            self._pool_seen = seen
            held = Counter(block for blocks in step.blocks.values() for block in set(blocks))
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
            return "loading"
        if request.id in (step.paused or ()):
            return "paused"
        if request.started:
            waits = request.tokens_in_flight or request.id in (step.emitted_at or ())
            return "in_flight" if waits else "held"
        return "preempted" if request.preemptions else "waiting"

    def _note(self, number: int, step: Step, request: RequestHistory, state: str) -> None:
        """Record the numbers of one request: first the parts of its row, from left to right.

        `left` padding, `cached` (found in the prefix cache), `prompt` and `generated` computed
        before, `now` computed in this step, `rest` still to be computed, `right` (padding up to the
        block's border, or room in held blocks), `future` (tokens that it may still generate).
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
            "held": None if step.blocks is None else len(blocks),
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
        reported += [Happening(number, "parked", name) for name in sorted(parked - self._parked)]
        reported += [
            Happening(number, "loaded", name)
            for name in sorted(self._parked - parked)
            if name in step.scheduled
        ]
        self._parked = parked
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
        """Return what happens when a request decodes: its tkv jumps, or it begins a block. The tkv
        jumps if it has changed by anything but 1 since the request last decoded."""
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
