"""nano-vLLM as the deck describes it, and what commit 9e8507e does otherwise."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from schedproof.gate.targets.protocol_checks import stream_tokens

from ..described import CrashError, Prompt

# The findings of docs/findings/nano-vllm.md in which the commit differs from the deck. The last one
# has no number there, because it breaks no rule.
LIMIT_OF_A_STEP = "N1"  # max_num_seqs bounds the sequences of a step, not those that run
WHOLE_HIT = "N3"  # the last block of a prompt can be a hit
STALE_NAMES = "N4"  # a block that is handed out again is still found by its former content
HITS_ARE_CHARGED = "N6"  # cached tokens count against the budget
NAMED_AT_ONCE = "published when admitted"  # rather than when they are computed
OF_THE_COMMIT = {LIMIT_OF_A_STEP, WHOLE_HIT, STALE_NAMES, HITS_ARE_CHARGED, NAMED_AT_ONCE}
NOTHING_SCHEDULED = "nothing is scheduled"  # N2 and N5: the engine's assertion


@dataclass(eq=False)
class Sequence:
    name: str
    tokens: list[Any]
    prompt: int
    max_tokens: int
    table: list[int] = field(default_factory=list)
    computed: int = 0
    hit: int = 0


class Deck:
    """The scheduler and its block manager.

    Attributes:
        named: the block that is found for a content and everything before it.
        content: what `named` says about each block, by block.
    """

    def __init__(self, config: dict[str, int], points: Iterable[str] = ()) -> None:
        self.points = frozenset(points)
        self.block, self.slots = config["block_size"], config["max_num_seqs"]
        self.budget = config["max_num_batched_tokens"]
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.free = list(range(1, config["num_blocks"] + 1))
        self.holders: Counter[int] = Counter()
        self.named: dict[tuple[Any, ...], int] = {}
        self.content: dict[int, tuple[Any, ...]] = {}

    @property
    def is_empty(self) -> bool:
        return not self.waiting and not self.running

    def add(self, name: str, prompt: Prompt, max_tokens: int) -> None:
        tokens: list[Any] = [t for stream, length in prompt for t in stream_tokens(stream, length)]
        self.waiting.append(Sequence(name, tokens, len(tokens), max_tokens))

    # --- chapters 5 and 7: blocks ---------------------------------------------------------------

    def blocks(self, sequence: Sequence) -> int:
        return -(-len(sequence.tokens) // self.block)

    def take(self, block: int, hit: bool = False) -> int:
        self.holders[block] += 1
        if self.holders[block] == 1:
            self.free.remove(block)
        if not hit:
            old = self.content.pop(block, ())
            if STALE_NAMES not in self.points and self.named.get(old) == block:
                del self.named[old]
        return block

    def give_back(self, sequence: Sequence) -> None:
        for block in reversed(sequence.table):
            self.holders[block] -= 1
            if not self.holders[block]:
                self.free.append(block)
        sequence.table, sequence.computed = [], 0

    def name(self, sequence: Sequence, number: int) -> None:
        content = tuple(sequence.tokens[: (number + 1) * self.block])
        self.content[sequence.table[number]] = content
        self.named[content] = sequence.table[number]

    def cached(self, sequence: Sequence) -> list[int]:
        """Return the blocks at the start of a sequence that are found."""
        found: list[int] = []
        whole = len(sequence.tokens) // self.block
        last = whole if WHOLE_HIT in self.points else min(whole, self.blocks(sequence) - 1)
        for end in range(self.block, last * self.block + 1, self.block):
            content = tuple(sequence.tokens[:end])
            block = self.named.get(content, 0)
            # A block that was handed out again may hold the same tokens at another place.
            if self.content.get(block, ())[-self.block :] != content[-self.block :]:
                break
            found.append(block)
        return found

    # --- chapters 6 and 8: schedule() -----------------------------------------------------------

    def prefill(self) -> dict[str, int]:
        scheduled: dict[str, int] = {}
        budget = self.budget
        while self.waiting:
            taken = scheduled if LIMIT_OF_A_STEP in self.points else self.running
            sequence = self.waiting[0]
            hit = self.cached(sequence)
            tokens = len(sequence.tokens) - len(hit) * self.block
            charged = len(sequence.tokens) if HITS_ARE_CHARGED in self.points else tokens
            fits = len(self.free) >= self.blocks(sequence)
            if len(taken) >= self.slots or charged > budget or not fits:
                break
            sequence.table = [self.take(block, hit=True) for block in hit]
            while len(sequence.table) < self.blocks(sequence):
                sequence.table.append(self.take(self.free[0]))
            if NAMED_AT_ONCE in self.points:
                for number in range(len(sequence.tokens) // self.block):
                    self.name(sequence, number)
            sequence.hit = sequence.computed = len(hit) * self.block
            scheduled[sequence.name] = tokens
            budget -= tokens
            self.running.append(self.waiting.pop(0))
        return scheduled

    def decode(self) -> tuple[dict[str, int], list[str]]:
        ready: list[Sequence] = []
        gone: list[str] = []
        while self.running and len(ready) < self.slots:
            sequence = self.running.pop(0)
            crosses = len(sequence.tokens) % self.block == 1
            while crosses and not self.free:
                victim = self.running.pop() if self.running else sequence
                self.give_back(victim)
                self.waiting.insert(0, victim)
                gone.append(victim.name)
                if victim is sequence:
                    break
            else:
                if crosses:
                    sequence.table.append(self.take(self.free[0]))
                ready.append(sequence)
        self.running = ready + self.running
        if not ready:
            raise CrashError(NOTHING_SCHEDULED)
        return {sequence.name: 1 for sequence in ready}, gone

    def step(self) -> dict[str, Any]:
        scheduled: dict[str, int] = {}
        kind, gone, slots = "idle", [], {}
        if not self.is_empty:
            kind, scheduled = "prefill", self.prefill()
            if not scheduled:
                kind, (scheduled, gone) = "decode", self.decode()
        finished = []
        for sequence in [each for each in self.running if each.name in scheduled]:
            start, tokens = sequence.computed, scheduled[sequence.name]
            sequence.computed += tokens
            written = slice(start // self.block, (sequence.computed - 1) // self.block + 1)
            slots[sequence.name] = sequence.table[written] if tokens else []
            for number in range(sequence.computed // self.block):
                if sequence.table[number] not in self.content:
                    self.name(sequence, number)
            sequence.tokens.append((sequence.name, len(sequence.tokens)))
            if len(sequence.tokens) == sequence.prompt + sequence.max_tokens:
                finished.append(sequence)
        for sequence in finished:
            self.give_back(sequence)
            self.running.remove(sequence)
        holders = [each for each in self.running + self.waiting if each.table]
        return {
            "kind": kind,
            "scheduled": scheduled,
            "slot_blocks": slots,
            "emitted": dict.fromkeys(scheduled, 1),
            "preempted": gone,
            "finished": {sequence.name: "length" for sequence in finished},
            "waiting": [sequence.name for sequence in self.waiting],
            "running": [sequence.name for sequence in self.running],
            "computed": {sequence.name: sequence.computed for sequence in holders},
            "prefix_hit": {sequence.name: sequence.hit for sequence in holders},
            "blocks": {sequence.name: sequence.table for sequence in holders},
            "free_blocks": len(self.free),
        }
