"""A connector for vLLM that loads what a scenario says, from nowhere. vLLM imports this module by
its name."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .vllm_loads import Loads

    Base: Any = object
    Metadata: Any = object
else:
    from vllm_loads import Loads

    v1 = importlib.import_module("vllm.distributed.kv_transfer.kv_connector.v1.base")
    Base, Metadata = v1.KVConnectorBase_V1, v1.KVConnectorMetadata


class FromNowhere(Base):  # type: ignore[misc]
    """vLLM's side of it: what its scheduler asks for."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any = None) -> None:
        try:
            super().__init__(vllm_config, role, kv_cache_config)
        except TypeError:  # of earlier releases
            super().__init__(vllm_config, role)
        self.loads = Loads()
        self._block_size = vllm_config.cache_config.block_size

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int, bool]:
        """How much can be loaded, while others run."""
        tokens = self.loads.offered(request, num_computed_tokens, self._block_size)
        return tokens, tokens > 0

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """A request has blocks for it."""
        if num_external_tokens > 0:
            self.loads.begin(request.request_id)

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        """Nothing for the worker, which does not exist."""
        return Metadata()

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:
        """Nothing is sent, so that the blocks are free at once."""
        self.loads.offers.pop(request.request_id, None)
        return False, None

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Nothing."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kw: Any) -> None:
        """Nothing."""

    def wait_for_save(self) -> None:
        """Nothing."""
