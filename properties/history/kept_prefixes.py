"""The full blocks of prompts that a prefix cache must still find, whatever its index and its order
of eviction.

A block is handed out anew where it appears in a block table and is no hit; until then it holds what
was computed into it. What a step hands out unseen, to requests that leave in it, may be any block
that was free. An index may keep one block for each content, the first or the last: of copies all
must be there. Generated tokens, and blocks of a decision in flight, may be left out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...model.observation import Step
from ...model.pool import Content, prefix
from .content import known_tokens
from .features import Features
from .request_history import RequestHistory


class Observed(Protocol):
    """The part of a `RunHistory` that is read, as it was before the step."""

    config: Mapping[str, Any]
    features: Features
    last: Step | None
    live: dict[str, Any]
    aborts_inside: set[str]

    def hit_now(self, step: Step, account: Any) -> int | None:
        """Return the tokens that a request finds in the prefix cache; None: not known."""


@dataclass
class KeptPrefixes:
    """By block number the content that it is found by, and the other way round, with whether it
    was filled from a prompt; as it was before the step that is judged."""

    block_size: int
    holds: dict[int, Content] = field(default_factory=dict)
    places: dict[Content, dict[int, bool]] = field(default_factory=dict)

    def must_find(self, history: Observed, step: Step, one: RequestHistory) -> int:
        """Return the tokens that a request must find which starts in this step: whole blocks of its
        prompt, never its last token."""
        others = {name: table for name, table in self._handed_out(history, step) if name != one.id}
        taken = {number for table in others.values() for number in table}
        if self._something_unseen(history, step, but=one.id):
            taken |= self.holds.keys() - _held_before_and_after(history, step)
        found = 0
        for blocks in range(1, min(one.prompt, one.num_tokens - 1) // self.block_size + 1):
            copies = self.places.get(prefix(one.content, blocks * self.block_size), {})
            if not any(copies.values()) or not taken.isdisjoint(copies):
                break
            found = blocks * self.block_size
        return found

    def observe(self, history: Observed, step: Step) -> None:
        """Book a step, before the history does."""
        for _, table in self._handed_out(history, step):
            self._drop(table)
        if self._something_unseen(history, step):
            self._drop(self.holds.keys() - _held_before_and_after(history, step))
        for name, tokens in step.scheduled.items():
            one = history.live.get(name)
            if one is None or name in (step.preempted or ()):
                continue
            hit = history.hit_now(step, one)
            if hit is None or name in history.aborts_inside:
                self.holds.clear()  # which blocks it has filled for a while is not known
                self.places.clear()
                continue
            shown = (step.blocks or {}).get(name)
            table = _before(history).get(name, ()) if shown is None else shown
            content, begun = known_tokens(one), (one.computed + hit) // self.block_size
            full = min(one.computed + hit + tokens, one.num_tokens) // self.block_size
            for place in range(begun, min(full, len(table))):
                end = (place + 1) * self.block_size
                self._publish(table[place], prefix(content, end), end <= one.prompt)

    def _handed_out(self, history: Observed, step: Step) -> Iterable[tuple[str, tuple[int, ...]]]:
        """By request, the blocks that it has got in this step, and that are no hit."""
        before = _before(history)
        for name, table in (step.blocks or {}).items():
            known = before.get(name, ())
            if len(table) == len(known) and tuple(table) == tuple(known):
                continue
            one = history.live.get(name)
            hit = 0 if one is None or one.started else history.hit_now(step, one) or 0
            old = {*known, *table[: hit // self.block_size]}
            yield name, tuple(number for number in table if number not in old)

    def _something_unseen(self, history: Observed, step: Step, but: str = "") -> bool:
        """Blocks may have been handed out that are not shown: to requests that leave in the step,
        or to one that was scheduled before it was preempted in the same step."""
        before, shown = _before(history), step.blocks or {}
        known = "any" if "order" in history.config else "fcfs"
        if step.preempted and history.config.get("policy", known) != "fcfs":
            return True
        for name, tokens in step.scheduled.items():
            one = history.live.get(name)
            if one is None or name in shown or name == but:
                continue
            covered = one.computed + (history.hit_now(step, one) or 0) + tokens
            slots = history.features.slots(history.config, covered)
            if -(-slots // self.block_size) > len(before.get(name, ())):
                return True
        return False

    def _publish(self, number: int, content: Content, of_prompt: bool) -> None:
        if self.holds.get(number) != content:
            self._drop((number,))
            self.holds[number] = content
        copies = self.places.setdefault(content, {})
        copies[number] = copies.get(number, False) or of_prompt

    def _drop(self, numbers: Iterable[int]) -> None:
        """What these blocks held may not be found any more, nor may its copies."""
        for number in tuple(numbers):
            content = self.holds.get(number)
            if content is not None:
                for copy in self.places.pop(content):
                    del self.holds[copy]


def _before(history: Observed) -> Mapping[str, Any]:
    return (history.last.blocks or {}) if history.last is not None else {}


def _held_before_and_after(history: Observed, step: Step) -> set[int]:
    """Blocks that requests hold all the while, so that no other can have got them."""
    after = {number for table in (step.blocks or {}).values() for number in table}
    return after & {number for table in _before(history).values() for number in table}
