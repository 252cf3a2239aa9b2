"""What prompts have in common, by the hashes that vLLM gives to full blocks: tokens themselves are
not recorded."""

from typing import Any

Segments = list[list[Any]]  # [name, tokens], as a scenario says a prompt

FACTOR = 8  # hashes that are remembered for each block of the pool
SPARE = 10_000


class SameTokens(Exception):  # noqa: N818 (not an error of the server's)
    """A prompt begins with tokens that two requests generated independently: the hashes do not show
    which of the two it continues."""


class Contents:
    """Prompts as segments: a name for content that came first with a request, and its length."""

    def __init__(self, block_size: int, num_blocks: int) -> None:
        self._block_size = block_size
        self._most = FACTOR * num_blocks + SPARE
        self._owner: dict[Any, str] = {}  # of a hash, the request that it came first with
        self._segments: dict[str, Segments] = {}
        self._owned: dict[str, int] = {}
        self._seen: dict[str, int] = {}  # hashes of a request that were looked at
        self._live: set[str] = set()
        self._twice: set[Any] = set()  # hashes of tokens that a request generated, and others had

    def prompt_of(self, request: Any) -> Segments:
        """The prompt of a request that arrives: as far as others had the same, in their words.

        Raises:
            SameTokens: these had the same by chance.
        """
        name, tokens = request.request_id, request.num_prompt_tokens
        hashes = list(request.block_hashes)[: tokens // self._block_size]
        known = next((n for n in range(len(hashes), 0, -1) if hashes[n - 1] in self._owner), 0)
        segments: Segments = []
        if not self._twice.isdisjoint(hashes[:known]):
            raise SameTokens(f"{name} goes on from tokens that two others had by chance")
        if known:
            owner = self._owner[hashes[known - 1]]
            theirs = [*self._segments[owner], [f"out:{owner}", tokens]]
            segments = cut(theirs, known * self._block_size)
        rest = tokens - known * self._block_size
        segments += [[name, rest]] if rest else []
        self._segments[name] = segments
        self._owned[name] = self._seen[name] = 0
        self._live.add(name)
        self._register(name, hashes)
        return segments

    def found(self, request: Any, tokens: int) -> None:
        """A request starts with so many tokens from the cache.

        Raises:
            SameTokens: two requests had them by chance, and whose blocks they are is not known.
        """
        hashes = list(request.block_hashes)[: tokens // self._block_size]
        if not self._twice.isdisjoint(hashes):
            raise SameTokens(f"{request.request_id} found tokens that two others had by chance")

    def grown(self, requests: list[Any]) -> None:
        """Requests have got tokens: their blocks may be full now."""
        for request in requests:
            if request is not None and request.request_id in self._live:
                name, hashes = request.request_id, request.block_hashes
                had = hashes[self._seen[name] :]
                self._twice.update(one for one in had if one in self._owner)
                self._register(name, hashes)

    def ended(self, names: list[str]) -> None:
        """Requests have left; what they had may be found as long as it is remembered."""
        for name in names:
            self._live.discard(name)
            self._forget(name)

    def _register(self, name: str, hashes: Any) -> None:
        for number in range(self._seen[name], len(hashes)):
            owner = self._owner.pop(hashes[number], None)
            self._owned[name] += owner is None
            self._owner[hashes[number]] = owner or name  # the latest last
        self._seen[name] = len(hashes)
        while len(self._owner) > self._most:
            oldest = next(iter(self._owner))
            owner = self._owner.pop(oldest)
            if owner in self._live:  # it may hold the block, however long ago that was filled
                self._owner[oldest] = owner
                continue
            self._twice.discard(oldest)
            self._owned[owner] -= 1
            self._forget(owner)

    def _forget(self, name: str) -> None:
        """Forget a request that has left, and with which nothing came first."""
        if name not in self._live and not self._owned.get(name, 1):
            for of in (self._segments, self._owned, self._seen):
                del of[name]


def cut(segments: Segments, tokens: int) -> Segments:
    """The first so many tokens."""
    found: Segments = []
    for name, length in segments:
        if tokens <= 0:
            break
        found.append([name, min(length, tokens)])
        tokens -= length
    return found
