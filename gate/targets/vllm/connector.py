"""A vLLM connector that offers and loads tokens as a scenario prescribes, without storing any.

vLLM imports this module by its name.
"""

import importlib
import math
from typing import Any

from .loads import Loads

v1: Any = importlib.import_module("vllm.distributed.kv_transfer.kv_connector.v1.base")
Base: Any = v1.KVConnectorBase_V1
Metadata: Any = v1.KVConnectorMetadata
ForGroups: Any = getattr(v1, "SupportsHMA", object)  # absent in earlier releases


class FromNowhere(Base, ForGroups):  # type: ignore[misc]
    """The scheduler's side of a vLLM connector."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any = None) -> None:
        try:
            super().__init__(vllm_config, role, kv_cache_config)
        except TypeError:  # earlier releases take two arguments
            super().__init__(vllm_config, role)
        self.loads = Loads()
        self._found = 0  # the tokens that the last request found in the prefix cache
        self._block_size = vllm_config.cache_config.block_size
        if kv_cache_config is not None:
            groups = kv_cache_config.kv_cache_groups
            self._block_size = math.lcm(*(group.kv_cache_spec.block_size for group in groups))

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """Return how many tokens can be loaded, and whether other requests run during the load.
        The number is None if it is not known yet."""
        if self.loads.defers(request.request_id):
            return None, False
        self._found = num_computed_tokens
        tokens = self.loads.offered(request, num_computed_tokens, self._block_size)
        return tokens, tokens > 0 and not self.loads.in_step

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if self.loads.in_step and num_external_tokens == 0:
            self.loads.offers.pop(request.request_id, None)
        if num_external_tokens > 0:
            covered = self._found + num_external_tokens
            if self.loads.in_step:
                (table,) = blocks.get_block_ids()
                size = self._block_size
                self.loads.load_now(request.request_id, covered, num_external_tokens, table, size)
                return
            self.loads.begin(request.request_id, covered, num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        return Metadata()

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:
        """Return whether the blocks must be kept until they have been sent, and None, because there
        are no transfer parameters."""
        return self.loads.ended(request.request_id, request.status.name, bool(block_ids)), None

    def request_finished_all_groups(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, None]:
        return self.request_finished(request, block_ids[0])

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Do nothing."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Do nothing."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kw: Any) -> None:
        """Do nothing."""

    def wait_for_save(self) -> None:
        """Do nothing."""
