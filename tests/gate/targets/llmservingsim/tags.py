"""LLMServingSim's releases 1.0.0 and 1.1.0, clause by clause, with one stage and no main loop.

The radix tree is the release's own class; everything that decides is described here.

Source: inference_serving/scheduler.py and memory_model.py of 1.0.0, serving/core/scheduler.py and
memory_model.py of 1.1.0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schedproof.gate.targets.protocol_checks import stream_tokens

from ..described import CrashError, Prompt

# docs/findings/llmservingsim.md, 15 and 22, 18 and 19, 20
TREE_OUTGROWS_THE_POOL = "the radix tree is larger than the pool"
FREED_TWICE = "more memory is freed than is in use"
PLACE_IS_LOST = "a request has lost its place in the radix tree"
REASONS = {TREE_OUTGROWS_THE_POOL, FREED_TWICE, PLACE_IS_LOST}


@dataclass(eq=False)
class Request:
    """A request in the queue.

    Attributes:
        computed: in 1.0.0, the known tokens.
        new: whether it has not yet completed a batch that ends its prompt.
        node: its place in the radix tree, which is `locked` while it must not be evicted.
    """

    name: str
    number: int
    prompt: list[Any]
    output: int
    computed: int = 0
    hit: int = 0
    chunk: int = 0
    new: bool = True
    started: bool = False
    evicted: bool = False
    node: Any = None
    locked: bool = False

    @property
    def tokens(self) -> list[Any]:
        return self.prompt + [(self.name, index) for index in range(self.output)]


class Tag:
    """What the two releases have in common. Memory is counted in blocks."""

    chunked = False

    def __init__(self, config: Mapping[str, Any], tree: Any) -> None:
        """`tree`: an empty radix tree of the release, or None with caching off."""
        self.config, self.tree = config, tree
        self.size, self.block = config["num_blocks"], config["block_size"]
        self.budget = config["max_num_batched_tokens"]
        self.queue: list[Request] = []
        self.used = self.count = 0

    @property
    def is_empty(self) -> bool:
        return not self.queue

    def add(self, name: str, prompt: Prompt, max_tokens: int) -> None:
        tokens = [t for stream, length in prompt for t in stream_tokens(stream, length)]
        self.queue.append(self.arrived(Request(name, self.count, tokens, max_tokens)))
        self.count += 1

    def blocks(self, tokens: int) -> int:
        return -(-tokens // self.block)

    # --- in which the releases differ -------------------------------------------------------------

    def arrived(self, request: Request) -> Request:
        raise NotImplementedError

    def prefills(self, request: Request) -> bool:
        raise NotImplementedError

    def needs(self, request: Request, tokens: int) -> int:
        """Return the blocks that a request takes for its next tokens."""
        raise NotImplementedError

    def holds(self, request: Request) -> int:
        raise NotImplementedError

    def chosen(self, batch: list[Request]) -> dict[Request, int]:
        """Return the requests that the budget admits, with their tokens."""
        raise NotImplementedError

    def is_locked(self, request: Request) -> bool:
        raise NotImplementedError

    def charge(self, batch: list[Request]) -> list[Request]:
        """Return the part of the batch that the budget still admits."""
        return batch

    def evict(self, request: Request) -> None:
        """Give up the place of an evicted request in the tree."""

    def grow(self, batch: list[Request]) -> None:
        """Insert the tokens of a batch that starts."""

    def complete(self, request: Request) -> tuple[int, bool]:
        """Count what a request has computed. Return the tokens of its prompt that are reported, and
        whether it emits a token."""
        raise NotImplementedError

    def is_over(self, request: Request) -> bool:
        raise NotImplementedError

    # --- memory -----------------------------------------------------------------------------------

    def taken(self, batch: Sequence[Request], tokens: Mapping[Request, int]) -> int:
        return sum(self.needs(request, tokens[request]) for request in batch)

    def fits(self, batch: Sequence[Request], tokens: Mapping[Request, int]) -> bool:
        needed = self.taken(batch, tokens)
        if self.size is None:
            return True
        if self.tree is None:
            return bool(self.used + needed <= self.size)
        # Bytes plus tokens: finding 15.
        return bool(self.tree.avail_size() + self.tree.evictable_size() >= needed * self.block)

    def free(self, blocks: int) -> None:
        if self.size is not None and blocks > self.used:
            raise CrashError(FREED_TWICE)
        self.used -= blocks

    def whole(self, tokens: list[Any]) -> list[Any]:
        return tokens[: len(tokens) // self.block * self.block]

    def look_up(self, request: Request) -> None:
        found = self.tree.match_prefix(request.prompt)
        request.hit, request.node = found.hit_length, found.last_device_node

    def lock(self, request: Request) -> None:
        self.tree.inc_lock_ref(request.node)
        request.locked = True

    def unlock(self, request: Request) -> None:
        self.tree.dec_lock_ref(request.node)
        request.node, request.hit, request.locked = None, 0, False

    def let_go(self, batch: Sequence[Request]) -> None:
        """Unlock prefills that are left out of the batch after all."""
        for request in batch:
            if self.tree is not None and self.prefills(request) and self.is_locked(request):
                self.unlock(request)

    def remember(self, request: Request) -> None:
        """Insert what an unfinished request has computed, and lock it instead of its old place."""
        tokens = self.whole(request.tokens[: request.computed])
        self.tree.insert(tokens)
        place = self.tree.match_prefix(tokens).last_device_node
        if request.node is None:
            raise CrashError(PLACE_IS_LOST)
        self.tree.dec_lock_ref(request.node)
        self.tree.inc_lock_ref(place)
        request.node = place
        self.check_tree()

    def check_tree(self) -> None:
        if self.size is not None and self.tree_tokens() > self.size * self.block:
            raise CrashError(TREE_OUTGROWS_THE_POOL)

    def tree_tokens(self) -> int:
        """Return the tokens that count as used by the tree."""
        return int(self.tree.total_size())

    # --- a decision -------------------------------------------------------------------------------

    def schedule(self) -> dict[Request, int]:
        """Choose a batch: the longest part of the queue's front for which there are slots, budget
        and memory. If there is memory for none, evict decoding requests, the last one first."""
        batch = self.queue[: self.config["max_num_seqs"]]
        decoding = [request for request in batch if not self.prefills(request)]
        if self.config["prioritize_prefill"] and not self.chunked:
            batch = [request for request in batch if self.prefills(request)] or batch
            if self.tree is not None:
                decoding = [request for request in batch if not self.prefills(request)]
        tokens = self.chosen(batch)
        if not self.queue or (not tokens and self.tree is None and not self.chunked):
            return {}
        batch = [*tokens]
        room, limit, evicted = self.room(batch, tokens), len(batch), 0
        while not room:
            if not decoding:
                self.let_go(batch)
                return {}
            last = decoding.pop()
            if last.evicted:
                continue
            self.evict(last)
            last.evicted = True
            if self.tree is None:
                evicted += self.holds(last)
                self.free(evicted)  # finding 18: what the earlier ones held is freed again
            limit = min(limit, len(decoding))
            room = self.room(batch[:limit], tokens)
        self.let_go(batch[room:])
        batch = self.charge(batch[:room])
        self.begin(batch, self.taken(batch, tokens))
        return {request: tokens[request] for request in batch}

    def room(self, batch: list[Request], tokens: Mapping[Request, int]) -> int:
        return next(end for end in range(len(batch), -1, -1) if self.fits(batch[:end], tokens))

    def begin(self, batch: list[Request], blocks: int) -> None:
        if self.tree is not None and self.size is not None:
            lacking = blocks * self.block - self.tree.avail_size()
            if lacking > 0:
                self.tree.evict(lacking)
                self.check_tree()
        for request in batch:
            self.queue.remove(request)
            if request.evicted and self.tree is not None:
                self.look_up(request)
                self.tree.inc_lock_ref(request.node)
            request.evicted = False
        if self.tree is None:
            self.used += blocks
        else:
            self.grow(batch)
        for request in batch:
            request.started = True

    def step(self) -> dict[str, Any]:
        scheduled = self.schedule()
        kinds = {"prefill" if request.new else "decode" for request in scheduled}
        reported, emitted, finished, back = 0, [], [], []
        for request in scheduled:
            prompt, emits = self.complete(request)
            reported += prompt
            emitted += [request.name] if emits else []
            if not self.is_over(request):
                back.append(request)
                continue
            finished.append(request.name)
            if self.tree is None:
                self.free(self.holds(request))
                continue
            self.tree.insert(self.whole(request.tokens[:-1]))
            if self.is_locked(request):
                self.tree.dec_lock_ref(request.node)
            self.check_tree()
        merged = merge(back, self.queue) if self.config["prioritize_prefill"] else back + self.queue
        self.queue = merged
        running = [request for request in merged if request.started or not request.new]
        return {
            "kind": kinds.pop() if len(kinds) == 1 else "mixed" if kinds else "idle",
            "scheduled": {request.name: tokens for request, tokens in scheduled.items()},
            "emitted": dict.fromkeys(emitted, 1),
            "finished": dict.fromkeys(finished, "length"),
            "waiting": [request.name for request in merged if request not in running],
            "running": [request.name for request in running],
            "prefilling": [request.name for request in running if request.new],
            "prompt_throughput": reported,
            "decode_throughput": len(emitted),
            **self.seen_of_memory(running),
        }

    def seen_of_memory(self, running: list[Request]) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        if self.tree is not None:
            seen["prefix_hit"] = {request.name: request.hit for request in running}
        if self.size is not None:
            left = self.size - self.used
            if self.tree is not None:
                unused = self.tree.evictable_size() - self.tree_tokens()
                left = (self.size * self.block + unused) // self.block
            seen["free_blocks"] = left
        return seen


class Tag100(Tag):
    """Release 1.0.0: a prompt is computed whole, and charged whole."""

    def __init__(self, config: Mapping[str, Any], tree: Any) -> None:
        super().__init__(config, tree)
        self.lengths: dict[Any, int] = {}
        self.tokens = 0

    def tree_tokens(self) -> int:
        """Finding 22: of two blocks with the same tokens, only one is freed."""
        for event in self.tree.take_events():
            for block in getattr(event, "block_hashes", ()):
                if hasattr(event, "token_ids"):
                    self.lengths[block] = len(event.token_ids)
                    self.tokens += self.lengths[block]
                else:
                    self.tokens -= self.lengths.pop(block, 0)
        return self.tokens

    def arrived(self, request: Request) -> Request:
        request.computed = len(request.prompt)
        return request

    def prefills(self, request: Request) -> bool:
        return request.new

    def needs(self, request: Request, tokens: int) -> int:
        if request.evicted or request.new:
            return max(0, request.computed - request.hit) // self.block + 1
        return request.computed // self.block - (request.computed - 1) // self.block

    def holds(self, request: Request) -> int:
        return (max(0, request.computed - request.hit) - 1) // self.block + 1

    def is_locked(self, request: Request) -> bool:
        return True

    def chosen(self, batch: list[Request]) -> dict[Request, int]:
        if self.tree is not None:
            for request in batch:
                if request.new:
                    self.look_up(request)
                    self.lock(request)
        return {
            request: max(len(request.prompt) - request.hit, 1) if request.new else 1
            for request in batch
        }

    def charge(self, batch: list[Request]) -> list[Request]:
        batch = [*batch]
        while sum(len(each.prompt) if each.new else 1 for each in batch) > self.budget:
            last = batch.pop()
            if self.tree is not None and last.new:
                self.unlock(last)
        return batch

    def evict(self, request: Request) -> None:
        if self.tree is not None:
            self.unlock(request)

    def grow(self, batch: list[Request]) -> None:
        for request in batch:
            self.remember(request)

    def complete(self, request: Request) -> tuple[int, bool]:
        prompt = request.computed if request.new else 0
        request.new = False
        request.computed += 1
        return prompt, True

    def is_over(self, request: Request) -> bool:
        return len(request.prompt) + request.output <= request.computed


class Tag110(Tag):
    """Release 1.1.0: with chunking on, decodes come first, then chunks."""

    def __init__(self, config: Mapping[str, Any], tree: Any) -> None:
        super().__init__(config, tree)
        self.chunked = config["enable_chunked_prefill"]

    def arrived(self, request: Request) -> Request:
        return request

    def prefills(self, request: Request) -> bool:
        return request.computed < len(request.prompt)

    def needs(self, request: Request, tokens: int) -> int:
        return self.blocks(request.computed + tokens) - self.blocks(request.computed)

    def holds(self, request: Request) -> int:
        return self.blocks(request.computed - request.hit)

    def is_locked(self, request: Request) -> bool:
        return request.locked

    def look_up(self, request: Request) -> None:
        super().look_up(request)
        if not request.computed:
            request.computed = request.hit

    def chosen(self, batch: list[Request]) -> dict[Request, int]:
        tokens = self.chunks(batch) if self.chunked else self.prompts(batch)
        if self.tree is not None:
            for request in tokens:
                if self.prefills(request) and request.node is not None and not request.locked:
                    self.lock(request)
        return tokens

    def chunks(self, batch: list[Request]) -> dict[Request, int]:
        prefills = [request for request in batch if self.prefills(request)]
        decodes = [request for request in batch if request not in prefills]
        tokens = dict.fromkeys(decodes[: self.budget], 1)
        left = self.budget - len(tokens)
        for request in prefills:
            if left <= 0:
                break
            if self.tree is not None and not request.computed:
                self.look_up(request)
            rest = len(request.prompt) - request.computed
            rest = min(rest, self.config["long_prefill_token_threshold"] or rest, left)
            if rest <= 0:
                break
            request.chunk = tokens[request] = rest
            left -= rest
        return tokens

    def prompts(self, batch: list[Request]) -> dict[Request, int]:
        tokens = dict.fromkeys(batch, 1)
        for request in batch:
            if not self.prefills(request):
                continue
            tokens[request] = len(request.prompt)
            if self.tree is not None:
                if not request.computed:
                    self.look_up(request)
                tokens[request] = request.chunk = max(len(request.prompt) - request.hit, 1)
        while sum(tokens.values()) > self.budget:
            tokens.popitem()
        return tokens

    def complete(self, request: Request) -> tuple[int, bool]:
        if not self.prefills(request):
            prompt = request.hit if request.new else 0
            if request.new and self.tree is not None:
                if request.node is not None and not request.locked:
                    self.lock(request)
                self.remember(request)
            request.new = False
            request.computed += 1
            return prompt, self.again(request)
        tokens = request.chunk or len(request.prompt) - request.computed
        request.computed += tokens
        request.chunk = 0
        if self.prefills(request):
            self.again(request)
            return tokens, False
        if self.tree is not None:
            self.remember(request)
        request.new = False
        return tokens + request.hit, self.again(request)

    def again(self, request: Request) -> bool:
        if self.tree is not None and not self.is_over(request):
            self.remember(request)
        return True

    def is_over(self, request: Request) -> bool:
        return len(request.prompt) + request.output <= request.computed + 1


def merge(back: list[Request], queue: list[Request]) -> list[Request]:
    """Return both lists as the releases merge them with prioritize_prefill."""
    if not back or not queue:
        return back + queue
    if back[-1].number <= queue[0].number:
        return back + queue
    if queue[-1].number <= back[0].number:
        return queue + back
    back, queue, merged = [*back], [*queue], []
    while back and queue:
        merged.append((back if back[0].number <= queue[0].number else queue).pop(0))
    return merged + back + queue
