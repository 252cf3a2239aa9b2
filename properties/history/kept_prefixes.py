"""The full blocks that a prefix cache must still find, no matter how it indexes and evicts blocks.

A block keeps its content until it is handed out again. A client sees this, because the block then
appears in a block table without being a hit. Only requests that leave in the same step can get
blocks without the client seeing it. Unless the target shows which blocks the step writes, those
requests may have got any of the free blocks.

An index may keep only one block for each content, the first or the last. So a cache is certain to
find a content only while all of its copies are intact. The cache may leave out blocks of a decision
in flight. It may also leave out generated tokens, unless a document of the system says otherwise.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from ...model.observation import Step
from ...model.pool import Content, prefix
from .content import known_tokens
from .ended_tables import NOT_SHOWN, table_of_ended
from .features import Run
from .per_step_cache import once
from .request_history import RequestHistory

# The states of a copy of some content: every kind of index finds it; some kinds find it; it may
# have been overwritten.
SURE, INTACT, MAYBE_GONE = 2, 1, 0


@dataclass
class KeptPrefixes:
    """The blocks that a cache must still find, as of the time before the judged step.

    `holds` maps each block to its content. `places` maps each content to its blocks and their
    states. A block that was not shown has the number NOT_SHOWN. Blocks in `_firm` cannot have been
    overwritten yet. `in_flight` lists the decisions in flight of each request, the oldest first;
    each decision is a list of the blocks that it fills, with their content.
    """

    block_size: int
    holds: dict[int, Content] = field(default_factory=dict)
    places: dict[Content, dict[int, int]] = field(default_factory=dict)
    in_flight: dict[str, list[list[tuple[int, Content]]]] = field(default_factory=dict)
    _firm: set[int] = field(default_factory=set)
    _lost: set[Content] = field(default_factory=set)

    def must_find(
        self,
        history: Run,
        step: Step,
        request: RequestHistory,
        among: Set[int] | None = None,
    ) -> int:
        """Return how many tokens the cache must find for a request that starts in this step. These
        tokens fill whole blocks of its prompt, or of its prompt and output if the cache keeps
        output. The request's last token does not count. With `among`, only the blocks in that set
        count."""
        receivers = self.receivers(history, step)
        alone = {request.id}
        still = self._surely_intact(history, step, but=request.id)
        if still is None:
            still = self.holds.keys()
        still = still if among is None else still & among
        outputs = _caches_output(history)
        own = known_tokens(request) if outputs else request.content
        most = request.num_tokens - 1 if outputs else min(request.prompt, request.num_tokens - 1)
        longest = 0
        for blocks in range(1, most // self.block_size + 1):
            content = of_partition(request, prefix(own, blocks * self.block_size))
            copies = self.places.get(content, {})
            states = set(copies.values())
            if SURE not in states or MAYBE_GONE in states:
                break
            if any(receivers.get(copy, alone) - alone for copy in copies):
                break
            if not copies.keys() <= still:
                break
            longest = blocks * self.block_size
        return longest

    def observe(self, history: Run, step: Step) -> None:
        self._lost = set()
        for _, table in self._handed_out(history, step):
            self._drop(table)
        still = self._surely_intact(history, step)
        if still is not None:
            for number in self._firm - still:
                self.places[self.holds[number]][number] = MAYBE_GONE
            self._firm &= still
        ahead = history.features.depth(history.config) > 1
        for name, tokens in step.scheduled.items():
            request = history.live.get(name)
            if request is None:
                continue
            hit = 0 if request.started else history.hit_now(step, request)
            shown = (step.blocks or {}).get(name) or table_of_ended(history, step, request)
            table = shown or _before(history).get(name, ())
            # If a request is aborted or preempted in this very step, or a load fails, it is unknown
            # which blocks it fills.
            doubtful = (
                hit is None
                or name in history.aborts_inside
                or name in (step.preempted or ())
                or history.features.may_lose_tokens(history, step, request)
            )
            before = request.computed + (hit or 0)
            content, begun = known_tokens(request), before // self.block_size
            if request.started and not ahead:
                begun = self._not_named_before(history, before)
            full = min(before + tokens, request.prompt + request.emitted) // self.block_size
            filling: list[tuple[int, Content]] = []
            for place in range(0 if doubtful else begun, full):
                end = (place + 1) * self.block_size
                filled = of_partition(request, prefix(content, end))
                # If another block with this content was handed out in this step, the index may have
                # lost the content.
                may_be_hit = end <= request.prompt or _caches_output(history)
                is_sure = may_be_hit and filled not in self._lost
                if doubtful or place >= len(table):
                    self.places.setdefault(filled, {})[NOT_SHOWN] = MAYBE_GONE
                elif self.holds.get(table[place]) != filled:
                    self._publish(table[place], filled, SURE if is_sure and not ahead else INTACT)
                    if ahead and is_sure:
                        filling.append((table[place], filled))
            if ahead:
                self.in_flight.setdefault(name, []).append(filling)
        if ahead:
            self._complete(history, step)

    def _not_named_before(self, history: Run, computed: int) -> int:
        """Return the first block of a running request that is perhaps not published yet. A step
        does not publish a block that contains drafts, since they may be wrong."""
        drafts = int(history.config.get("num_speculative_tokens") or 0)
        return max(computed - drafts, 0) // self.block_size

    def _complete(self, history: Run, step: Step) -> None:
        """Record that the oldest decision in flight of a request completes, which means that its
        blocks are computed. If the request has ended or was preempted since the decision, the cache
        may discard the blocks."""
        for name in step.preempted or ():
            self.in_flight[name] = [[] for _ in self.in_flight.get(name, ())]
        ended = {name for name, reason in (step.finished or {}).items() if reason == "aborted"}
        for name in self.in_flight.keys() - history.live.keys() | ended:
            self.in_flight.pop(name, None)
        if self._lost:
            for decisions in self.in_flight.values():
                decisions[:] = [[f for f in d if f[1] not in self._lost] for d in decisions]
        completing = history.features.completing(history, step)
        for name, decisions in self.in_flight.items():
            for number, content in decisions.pop(0) if decisions and name in completing else ():
                if self.holds.get(number) == content:
                    self.places[content][number] = SURE
        for name, tokens in (step.emitted or {}).items():
            if name in completing and name not in history.aborts_inside | {*(step.preempted or ())}:
                self._publish_output(history, step, name, tokens)

    def _publish_output(self, history: Run, step: Step, name: str, tokens: int) -> None:
        """Record the blocks that become full when a request emits `tokens` tokens. By then, all
        tokens of the request except its last one are computed."""
        request = history.live.get(name)
        if request is None or not request.started:
            return  # preempted since
        table = (step.blocks or {}).get(name) or _before(history).get(name, ())
        content, known = known_tokens(request, tokens), request.prompt + request.emitted
        full = min((known + tokens - 1) // self.block_size, len(table))
        for place in range((known - 1) // self.block_size, full):
            end = (place + 1) * self.block_size
            if end <= request.prompt:
                continue  # a decision fills it
            filled = of_partition(request, prefix(content, end))
            is_sure = _caches_output(history) and filled not in self._lost
            self._publish(table[place], filled, SURE if is_sure else INTACT)

    @staticmethod
    @once
    def receivers(history: Run, step: Step) -> Mapping[int, Set[str]]:
        """Map each block that was handed out in this step to the requests that received it."""
        receivers: dict[int, set[str]] = {}
        for name, table in history.kept._handed_out(history, step):
            for number in table:
                receivers.setdefault(number, set()).add(name)
        return receivers

    def _handed_out(self, history: Run, step: Step) -> Iterable[tuple[str, tuple[int, ...]]]:
        """Yield the blocks that each request received in this step, except those of its prefix hit.
        If the request is loaded and scheduled in the same step, the hit is unknown, so none is left
        out."""
        before = _before(history)
        filled = {request.id for request, _ in history.features.loads_in(history, step)}
        for name, table in (step.blocks or {}).items():
            known = before.get(name, ())
            if len(table) == len(known) and tuple(table) == tuple(known):
                continue
            hit = self._blocks_hit(history, step, name, filled)
            old = {*known, *table[:hit]}
            yield name, tuple(number for number in table if number not in old)
        for name in step.scheduled:
            request = history.live.get(name)
            if request is not None and name not in (step.blocks or {}):
                table = table_of_ended(history, step, request)
                hit = self._blocks_hit(history, step, name, filled)
                old = {*before.get(name, ()), *table[:hit]}
                yield name, tuple(number for number in table if number not in old)

    def _blocks_hit(self, history: Run, step: Step, name: str, filled: Set[str]) -> int:
        request = history.live.get(name)
        if request is None or request.started or (name in filled and name in step.scheduled):
            return 0
        return (history.hit_now(step, request) or 0) // self.block_size

    def _surely_intact(self, history: Run, step: Step, but: str = "") -> Set[int] | None:
        """Return the blocks that no request other than `but` can have received in this step without
        the step showing it; None if there are no other blocks."""
        victims = self._victims_that_may_have_grown(history, step)
        if history.features.take_unseen(history, step) or self._some_ended_unseen(
            history, step, but
        ):
            return _held_throughout(history, step)
        if not victims:
            return None
        still = _held_throughout(history, step)
        if len(step.preempted or ()) == 1:  # it cannot have received what it held itself
            still.update(_before(history).get(victims[0], ()))
        return still

    def _victims_that_may_have_grown(self, history: Run, step: Step) -> list[str]:
        """Return the preempted requests that may have received a block first. Under FCFS, there are
        none, because a victim is not served before its preemption."""
        known = "any" if "order" in history.config else "fcfs"
        if history.config.get("policy", known) == "fcfs":
            return []
        return [name for name in step.preempted or () if self._may_have_grown(history, name)]

    def _some_ended_unseen(self, history: Run, step: Step, but: str) -> bool:
        """Return whether a request other than `but` that left in this step may have received
        blocks that the step does not show."""
        before, shown = _before(history), step.blocks or {}
        for name, tokens in step.scheduled.items():
            request = history.live.get(name)
            if request is None or name in shown or name == but:
                continue
            if table_of_ended(history, step, request):
                continue
            covered = request.computed + (history.hit_now(step, request) or 0) + tokens
            slots = history.features.slots(history.config, covered)
            # The request may also have received the block of its next token.
            if -(-(slots + 1) // self.block_size) > len(before.get(name, ())):
                return True
        return False

    def _may_have_grown(self, history: Run, victim: str) -> bool:
        """Return whether a preempted request may have received a block before it lost all its
        blocks. If the blocks that it held were enough for its next tokens, it received none."""
        request, held = history.live.get(victim), len(_before(history).get(victim, ()))
        if request is None or not held or history.config.get("num_speculative_tokens"):
            return True
        slots: int = history.features.slots(history.config, request.num_tokens + 1)
        return slots > held * self.block_size

    def _publish(self, number: int, content: Content, state: int) -> None:
        if self.holds.get(number) != content:
            self._drop((number,))
            self.holds[number] = content
        self._firm.add(number)
        copies = self.places.setdefault(content, {})
        copies[number] = max(copies.get(number, MAYBE_GONE), state)

    def _drop(self, numbers: Iterable[int]) -> None:
        """Record that these blocks get new content. Some kinds of index may then no longer find the
        other copies of the old content."""
        for number in tuple(numbers):
            content = self.holds.pop(number, None)
            if content is None:
                continue
            self._lost.add(content)
            self._firm.discard(number)
            left = self.places.pop(content)
            del left[number]
            if left:
                self.places[content] = {copy: min(state, INTACT) for copy, state in left.items()}


def of_partition(request: RequestHistory, content: Content) -> Content:
    """Return the content preceded by the name of the request's partition, since a cache with
    partitions looks up both."""
    if request.partition == (None, None):
        return content
    return ((f"partition {request.partition}", 1), *content)


def _caches_output(history: Run) -> bool:
    return bool(history.features.caches_output(history.revision))


def _before(history: Run) -> Mapping[str, Any]:
    return (history.last.blocks or {}) if history.last is not None else {}


def _held_throughout(history: Run, step: Step) -> set[int]:
    """Return the blocks that were held throughout the step. Either they are held both before and
    after the step, or they belonged to a request that was scheduled in this step and neither
    preempted nor aborted."""
    before = _before(history)
    after = {number for table in (step.blocks or {}).values() for number in table}
    still = after & {number for table in before.values() for number in table}
    for name in step.scheduled.keys() - (step.preempted or ()) - history.aborts_inside:
        still.update(before.get(name, ()))
    return still
