"""A connector without storage: it offers, loads and sends what a scenario prescribes.

It keeps the contract of vLLM's own connectors. It offers whole blocks, or all known tokens; it
never offers loaded tokens again; and it postpones an answer only a limited number of times.
"""

from typing import Any, NamedTuple

IN_STEP = "synchronous_loads"  # the configuration key that makes requests load in their first step
ABORTED = "FINISHED_ABORTED"
NOT_SENT = (ABORTED, "FINISHED_ERROR")


class Offer(NamedTuple):
    """The number of tokens to load, the steps that this takes, and the first token that fails to
    load."""

    tokens: int = 0
    steps: int = 0
    fails_at: int | None = None


class Report(NamedTuple):
    """The number of correctly loaded tokens of each completed load, and the requests whose
    blocks were sent, both in the order in which they began.

    A worker reports sets instead. With a set, the order could differ between runs, and with it the
    choice of the blocks that are reused first.
    """

    landed: dict[str, int]
    sent: dict[str, None]


class Loads:
    """All offers, the loads in progress and the blocks being sent, by request."""

    def __init__(self) -> None:
        self.offers: dict[str, Offer] = {}
        self.deferrals: dict[str, int] = {}
        self.send_steps: dict[str, int] = {}
        self.loading: dict[str, int] = {}  # the number of steps left
        self.sending: dict[str, int] = {}
        self.send_aborted: set[str] = set()
        self.in_step = False  # whether requests load in their first step
        self.lost: set[int] = set()  # blocks whose load failed in this step
        self._right: dict[str, int] = {}  # the number of tokens that each load delivers correctly

    def defers(self, name: str) -> bool:
        remaining = self.deferrals.get(name, 0)
        self.deferrals[name] = max(remaining - 1, 0)
        return remaining > 0

    def offered(self, request: Any, computed: int, block_size: int) -> int:
        """Return how many tokens beyond the first `computed` ones can be loaded."""
        offer = self.offers.get(request.request_id, Offer())
        whole = offer.tokens // block_size * block_size
        loadable = request.num_tokens if offer.tokens >= request.num_tokens else whole
        if self.in_step:  # the step must have a token left to compute
            loadable = min(loadable, request.num_tokens - 1)
        return max(int(loadable) - computed, 0)

    def begin(self, name: str, covered: int, loaded: int) -> None:
        """Let a request wait until its load ends. It then has `covered` computed tokens."""
        offer = self.offers.pop(name)
        self.loading[name] = offer.steps
        self._right[name] = covered
        if offer.fails_at is not None:
            self._right[name] = min(covered, max(covered - loaded, offer.fails_at))

    def load_now(self, name: str, covered: int, loaded: int, blocks: list[int], size: int) -> None:
        """Load within this step. If the load fails, record which of the `blocks` of the first
        `covered` tokens are lost."""
        fails_at = self.offers.pop(name).fails_at
        if fails_at is not None and fails_at < covered:
            right = max(covered - loaded, fails_at)
            self.lost.update(blocks[right // size : -(-covered // size)])

    def ended(self, name: str, status: str, has_blocks: bool) -> bool:
        """Record that a request has ended. Return whether its blocks are now being sent."""
        self.offers.pop(name, None)
        steps = self.send_steps.pop(name, None)
        aborted = status == ABORTED and has_blocks and name in self.send_aborted
        if steps is None or not (aborted or status not in NOT_SENT):
            return False
        self.sending[name] = steps
        return True

    def step(self) -> Report:
        landed = {name: self._right.pop(name) for name in _over(self.loading)}
        sent = dict.fromkeys(_over(self.sending))
        self.loading = {
            n: remaining - 1 for n, remaining in self.loading.items() if n not in landed
        }
        self.sending = {n: remaining - 1 for n, remaining in self.sending.items() if n not in sent}
        return Report(landed, sent)


def _over(remaining: dict[str, int]) -> list[str]:
    return [name for name, steps in remaining.items() if steps == 0]
