"""The content of each block of the cache, as far as a client can see the writes.

After each step, a target shows the blocks of a request and how many tokens the request computed, so
the tokens of that step are in the last of these blocks. In every step that computes tokens for a
request, the request reads all its blocks. They must contain its own tokens from the first one on,
since keys and values depend on all earlier tokens. Which blocks are free, shared or published is up
to the target.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from ...model.observation import Step
from ...model.scenario import Segment
from .content import coming_tokens, common_prefix_len
from .ended_tables import NOT_SHOWN, table_of_ended
from .features import Run
from .request_history import RequestHistory

# Blocks without a holder are forgotten in batches of about this size.
FEW = 64


class Entry(NamedTuple):
    """The tokens of a request from position `start` to `end` (exclusive)."""

    owner: str
    content: tuple[Segment, ...]
    start: int
    end: int


class Access(NamedTuple):
    """A request's tokens and blocks in a step that computes the request. Wrong drafts are left out.

    The blocks are those shown after the step, or before it if the request leaves in the step.
    `content` contains all tokens of the request. `only` is set if just one block of the request has
    changed since its blocks were last compared. It contains this block's number and new content.
    """

    request: RequestHistory
    content: tuple[Segment, ...]
    start: int
    end: int
    blocks: Sequence[int]
    only: tuple[int, Entry] | None = None


class Ready(NamedTuple):
    """A request whose blocks contain all its tokens before `end`, as a check has shown."""

    request: RequestHistory
    end: int
    blocks: Sequence[int]


class Changes(NamedTuple):
    """The effects of a step on the cache.

    Attributes:
        accesses: the accesses of the requests that compute.
        written: the blocks that the step writes, with their content after it.
        unseen: tokens written to blocks that the target did not show.
        meets: whether a request reads what another one wrote, or a block gets a new owner.
        conflict: a sentence about the first block that does not hold the tokens that its reader
            needs; None if there is no such block.
    """

    accesses: list[Access]
    written: dict[int, Entry]
    unseen: list[Entry]
    meets: bool
    conflict: str | None


@dataclass
class ShadowCache:
    """The content of every block whose writes were seen.

    Attributes:
        holds: the content by block number, in the order in which blocks were last written or found
            intact.
        unseen: tokens in blocks whose numbers were never shown, with the step that wrote them.
        caches: whether a freed block can still be found by its content. If not, its content is
            forgotten when it is freed.
        read: the blocks of each request in which it found its tokens.
        readers: the inverse of `read`, by block number.
        pool: number of blocks that can hold tokens; None if unbounded or unknown.
        lost: requests whose last known token was overwritten; the reader of this set must clear it.
    """

    block_size: int
    caches: bool = True
    holds: dict[int, Entry] = field(default_factory=dict)
    unseen: deque[tuple[int, Entry]] = field(default_factory=deque)
    read: dict[str, list[int]] = field(default_factory=dict)
    ready: dict[str, Ready] = field(default_factory=dict)
    readers: dict[int, set[str]] = field(default_factory=dict)
    pool: int | None = None
    lost: set[str] = field(default_factory=set)
    _step: int = 0
    _seen_at: dict[int, int] = field(default_factory=dict)
    _known_since: dict[int, int] = field(default_factory=dict)
    _places: Counter[str] = field(default_factory=Counter)

    def release_all(self) -> None:
        """Record that no request holds a block any more. The blocks keep their content."""
        self.read.clear()
        self.readers.clear()

    def knows(self, request: str) -> bool:
        """Return whether a block may still hold tokens that this request wrote."""
        return request in self._places

    def changes(self, history: Run, step: Step) -> Changes:
        """Return what the step writes, and whether every reader finds its tokens. Record
        nothing."""
        accesses, unseen = self._accesses(history, step)
        copies = _copies(step)
        written = {copy: self.holds[block] for block, copy in copies if block in self.holds}
        meets = False
        for index, access in enumerate(accesses):
            if access.only is not None and access.only[0] in written:
                accesses[index] = access = access._replace(only=None)
            writes = self._writes(step, access, written) if access.only is None else [access.only]
            for number, entry in writes:
                before = written.get(number) or self.holds.get(number)
                meets = meets or (before is not None and before.owner != entry.owner)
                if (
                    before is not None
                    and before.end > entry.end
                    and _goes_on(before, entry.content, entry.start, entry.end)
                ):
                    # The step writes the same tokens again, and the tokens after them stay.
                    entry = before
                written[number] = entry
            if access.only is None:
                unseen += self._beyond(access, unseen)
        conflict = None
        for access in accesses:
            if access.only is None:
                old = self._unchanged(access)
            elif written[access.only[0]] is access.only[1]:
                continue
            else:
                old = access.start // self.block_size
            for place in range(old, min(len(access.blocks), -(-access.end // self.block_size))):
                number = access.blocks[place]
                present = written.get(number) or self.holds.get(number)
                meets = meets or (present is not None and present.owner != access.request.id)
                if conflict is None:
                    hidden = chain(unseen, self.hidden_in(number))
                    conflict = self.mismatch(
                        *(access.request, access.end, number, place, present, hidden),
                        content=access.content,
                    )
        conflict = conflict or self._overwritten(history, step, written)
        return Changes(accesses, written, unseen, meets, conflict)

    def book(self, step: Step, changes: Changes) -> None:
        if self.caches:
            self._keep(step, changes)
        else:
            self.holds.update(changes.written)
        shown = step.blocks or {}
        for name in [name for name in self.read if name not in shown]:
            self._forget(name)
        if not self.caches:
            held = {number for table in shown.values() for number in table}
            if len(self.holds) > 2 * len(held) + FEW:
                self.holds = {n: entry for n, entry in self.holds.items() if n in held}
        for access in changes.accesses:
            name = access.request.id
            if access.only is not None and changes.conflict is None:
                self.ready[name] = self.ready[name]._replace(end=access.end)
                continue
            self.ready.pop(name, None)
            if name not in shown:
                continue
            old = self._unchanged(access)
            known = self.read.setdefault(access.request.id, [])
            if old < len(known):
                self._forget(access.request.id)
                known, old = self.read.setdefault(access.request.id, []), 0
            full = access.end // self.block_size
            for place, number in enumerate(access.blocks[old:full], old):
                known.append(number)
                self.readers.setdefault(number, set()).add(access.request.id)
                if self.caches:
                    self._confirm(number, access.content, place * self.block_size)
            goes_on = access.end % self.block_size > 0 and access.end <= access.request.num_tokens
            if goes_on and changes.conflict is None and len(known) == full:
                self.ready[name] = Ready(access.request, access.end, shown[name])

    def hidden_in(self, number: int) -> Iterator[Entry]:
        """Yield the tokens that may be in this block without any step having shown them. Leave out
        tokens that were written before the content of the block became known."""
        since = self._known_since.get(number, 0)
        return (entry for step, entry in self.unseen if step >= since)

    def _keep(self, step: Step, changes: Changes) -> None:
        self._step += 1
        of_copies = {copy: self._known_since.get(block, 0) for block, copy in _copies(step)}
        for number, entry in changes.written.items():
            self._leaves(self.holds.pop(number, None))
            self.holds[number] = entry
            self._places[entry.owner] += 1
            self._seen_at[number] = self._step
        self._known_since |= dict.fromkeys(changes.written, self._step) | of_copies
        for entry in changes.unseen:
            self.unseen.append((self._step, entry))
            self._places[entry.owner] += 1
        if self.pool is not None and len(self.holds) >= self.pool:
            self._forget_unseen()

    def _confirm(self, number: int, content: tuple[Segment, ...], start: int) -> None:
        """Record that the block still has its content, because a request has found its tokens in
        it."""
        entry = self.holds.get(number)
        if entry is not None and _goes_on(entry, content, start, start + self.block_size):
            self.holds[number] = self.holds.pop(number)
            self._seen_at[number] = self._known_since[number] = self._step

    def _leaves(self, entry: Entry | None) -> None:
        if entry is None:
            return
        self._places[entry.owner] -= 1
        if not self._places[entry.owner]:
            del self._places[entry.owner]
            self.lost.add(entry.owner)

    def _forget_unseen(self) -> None:
        """Drop the tokens in unknown blocks once every block of the pool is known to contain other
        tokens."""
        oldest = self._seen_at[next(iter(self.holds))]
        while self.unseen and self.unseen[0][0] < oldest:
            self._leaves(self.unseen.popleft()[1])

    def _forget(self, name: str) -> None:
        self.ready.pop(name, None)
        # A faulty target may list a block twice. Forget the block only once.
        for number in set(self.read.pop(name)):
            self.readers[number].discard(name)
            if not self.readers[number]:
                del self.readers[number]

    def _accesses(self, history: Run, step: Step) -> tuple[list[Access], list[Entry]]:
        """Return the accesses of all requests that compute, and the tokens written to unknown
        blocks."""
        before = (history.last.blocks or {}) if history.last is not None else {}
        accesses: list[Access] = []
        unseen: list[Entry] = []
        for name, tokens in step.scheduled.items():
            request = history.live.get(name)
            if request is None:
                continue
            hit = 0 if request.started else history.hit_now(step, request)
            gone = name not in (step.blocks or {})
            if (
                hit is None
                or name in (step.preempted or ())
                or (gone and history.features.place_unknown(request))
            ):
                unseen.append(
                    Entry(name, coming_tokens(request), 0, history.reached(step, request))
                )
                continue
            if name in self.ready and (access := self._next_token(history, step, request, tokens)):
                accesses.append(access)
                continue
            start = request.computed + max(hit, 0)
            end = start + tokens
            right = history.features.right_drafts(history, step, request, end - request.computed)
            if right is not None:
                end = min(end, request.num_tokens + right)
            table = _table(history, step, request) or before.get(name, ())
            content = coming_tokens(request, right or 0)
            accesses.append(Access(request, content, start, end, list(table)))
        return self._loaded(history, step) + accesses, unseen

    def _next_token(
        self, history: Run, step: Step, request: RequestHistory, tokens: int
    ) -> Access | None:
        """Return the access of a request if it only adds a token to its last block; otherwise None.

        The block must not be full afterwards, and the other blocks must not have changed.
        """
        name, (known, end, blocks) = request.id, self.ready[request.id]
        block = blocks[end // self.block_size] if end < len(blocks) * self.block_size else None
        shown = (step.blocks or {}).get(name)
        if known is not request or block is None or request.computed != end or shown != blocks:
            return None
        if tokens != 1 or (end + 1) % self.block_size == 0 or request.num_tokens <= end:
            return None
        slots = (step.slot_blocks or {}).get(name)
        before, start = self.holds.get(block), end // self.block_size * self.block_size
        if (slots and slots[-1] != block) or before is None or before.owner != name:
            return None
        if before.start > start or before.end != end:
            return None
        if history.features.right_drafts(history, step, request, 1) is not None:
            return None
        content = coming_tokens(request)
        entry = Entry(name, content, start, end + 1)
        return Access(request, content, end, end + 1, blocks, (block, entry))

    def _loaded(self, history: Run, step: Step) -> list[Access]:
        """Return the accesses of requests whose load begins, since a load writes their blocks."""
        return [
            Access(request, request.content, 0, tokens, list(_table(history, step, request)))
            for request, tokens in history.features.loads_in(history, step)
        ]

    def _writes(
        self, step: Step, access: Access, written: dict[int, Entry]
    ) -> list[tuple[int, Entry]]:
        request, content, size = access.request, access.content, self.block_size
        entries = []
        for place in range(access.start // size, -(-access.end // size)):
            if place >= len(access.blocks):
                break
            number = access.blocks[place]
            if request.prefilled and step.slot_blocks and step.slot_blocks.get(request.id):
                number = step.slot_blocks[request.id][-1]
            start = max(access.start, place * size)
            if start > place * size:
                entry = written.get(number) or self.holds.get(number)
                before = [] if entry is None else [entry]
                if any(
                    _goes_on(entry, content, place * size, start)
                    for entry in (*before, *self._copied_unseen(step, number))
                ):
                    start = place * size
            end = min(access.end, (place + 1) * size)
            entries.append((number, Entry(request.id, content, start, end)))
        return entries

    def _copied_unseen(self, step: Step, number: int) -> list[Entry]:
        """If the step makes block `number` a copy of a block whose content was never shown, return
        what the copy may contain: any of the unseen tokens."""
        if any(copy == number and block not in self.holds for block, copy in _copies(step)):
            return [entry for _, entry in self.unseen]
        return []

    def _beyond(self, access: Access, unseen: Sequence[Entry]) -> list[Entry]:
        """Return the tokens that this access writes to blocks that the target does not show.
        `unseen` lists such tokens from earlier in the step, for example those of a load after which
        the request continues."""
        start = max(access.start, len(access.blocks) * self.block_size)
        if start >= access.end:
            return []
        for entry in unseen:
            if entry.owner == access.request.id and entry.start < start == entry.end:
                start = entry.start
        return [Entry(access.request.id, access.content, start, access.end)]

    def _unchanged(self, access: Access) -> int:
        """Return how many leading blocks of the request were read before and have not changed."""
        known = self.read.get(access.request.id, [])
        if list(access.blocks[: len(known)]) == known:
            return len(known)
        return 0

    def _overwritten(self, history: Run, step: Step, written: dict[int, Entry]) -> str | None:
        shown = step.blocks or {}
        for number, entry in written.items():
            for name in self.readers.get(number, ()):
                request = history.live.get(name)
                if request is None or number not in shown.get(name, ()):
                    continue
                place = self.read[name].index(number)
                conflict = self.mismatch(request, request.kept_tokens, number, place, entry, [])
                if conflict is not None:
                    return conflict
        return None

    def mismatch(
        self,
        request: RequestHistory,
        reads: int,
        number: int,
        place: int,
        present: Entry | None,
        hidden: Iterable[Entry],
        content: tuple[Segment, ...] | None = None,
    ) -> str | None:
        """Explain why block `number` cannot be block `place` of this request. Return None if it
        can.

        Entries in `hidden` may be in any block. `content` includes drafts that the request reads.
        """
        start, end = place * self.block_size, min(reads, (place + 1) * self.block_size)
        if present is not None and present.owner == request.id and _covers(present, start, end):
            return None
        content = content or coming_tokens(request)
        if present is not None and _goes_on(present, content, start, end):
            return None
        if any(_goes_on(entry, content, start, end) for entry in hidden):
            return None
        needed = f"{request.id} reads its tokens {start} to {end - 1} from block {number}"
        if present is None:
            return f"{needed}, which no request has written"
        says = (
            f"{needed}, which holds tokens {present.start} to {present.end - 1} of {present.owner}"
        )
        shared = common_prefix_len(content, present.content)
        if _covers(present, start, end):
            return f"{says}: their tokens differ from token {shared} on"
        return says


def _table(history: Run, step: Step, request: RequestHistory) -> Sequence[int]:
    """Return the blocks of a request in this step, or () if they are unknown."""
    shown = (step.blocks or {}).get(request.id)
    if shown is not None or request.id not in step.scheduled:
        return shown or ()
    table = table_of_ended(history, step, request)
    return () if NOT_SHOWN in table else table


def _copies(step: Step) -> tuple[tuple[int, int], ...]:
    """Return the blocks that the worker copies before the step, each with its copy."""
    return step.sent.copies if step.sent is not None else ()


def _goes_on(entry: Entry, content: tuple[Segment, ...], start: int, end: int) -> bool:
    """Return whether the entry holds the tokens from `start` to `end` of `content`, and the tokens
    before them are the same as well."""
    return _covers(entry, start, end) and common_prefix_len(entry.content, content) >= end


def _covers(entry: Entry, start: int, end: int) -> bool:
    return entry.start <= start and entry.end >= end
