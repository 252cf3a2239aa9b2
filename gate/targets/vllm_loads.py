"""What a connector without a store offers and loads: as a scenario says.

It keeps the contract of vLLM's own connectors: whole blocks are offered, or all that is known; and
what was loaded once is not offered again.
"""

from typing import Any


class Loads:
    """What is offered, and what is being loaded, by request."""

    def __init__(self) -> None:
        self.offers: dict[str, tuple[int, int]] = {}  # tokens, and steps that loading takes
        self.loading: dict[str, int] = {}  # steps left

    def offered(self, request: Any, computed: int, block_size: int) -> int:
        """Tokens behind the `computed` ones that can be loaded."""
        tokens, _ = self.offers.get(request.request_id, (0, 0))
        whole = tokens // block_size * block_size
        loadable = request.num_tokens if tokens >= request.num_tokens else whole
        return max(int(loadable) - computed, 0)

    def begin(self, name: str) -> None:
        """A request is parked."""
        _, self.loading[name] = self.offers.pop(name)

    def step(self) -> set[str]:
        """The requests whose loads have landed with this step."""
        landed = {name for name, left in self.loading.items() if left == 0}
        self.loading = {name: left - 1 for name, left in self.loading.items() if name not in landed}
        return landed
