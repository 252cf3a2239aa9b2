"""Run the start-up check of a vLLM release: the release's own planning of the KV cache.

The engine core itself is not started, because it would load a model. Only its planning method runs,
unmodified. Its workers are replaced by objects that have plenty of memory and nothing to load.
"""

import functools
import importlib
import re
import traceback
from collections.abc import Sequence
from typing import Any

CHECK = "get_kv_cache_configs"
PLENTY = 1 << 40  # bytes per worker, so that only `num_gpu_blocks_override` bounds the pool
LONGEST = re.compile(r"[^.]*estimated maximum model length is \d+")


class _Executor:
    """A replacement for the executor, whose workers have memory for the KV cache but do nothing."""

    def __init__(self, specs: list[dict[str, Any]]) -> None:
        self._specs = specs

    def get_kv_cache_specs(self) -> list[dict[str, Any]]:
        return self._specs

    def determine_available_memory(self) -> list[int]:
        return [PLENTY] * len(self._specs)

    def get_supported_kv_cache_layouts(self) -> list[list[str]]:
        # Since 0.33; every attention backend supports this layout.
        return [["LBNHC"]] * len(self._specs)

    def __getattr__(self, name: str) -> Any:
        return lambda *_args, **_options: None


class _EngineCore:
    """The parts of an engine core that the planning method reads."""

    def __init__(self, specs: list[dict[str, Any]]) -> None:
        self.model_executor = _Executor(specs)
        self.available_gpu_memory_for_kv_cache = -1

    def collective_rpc(self, *_args: Any, **_options: Any) -> None:
        """Do nothing, since there are no workers."""


def refusal(vllm_config: Any, layers: Sequence[Any]) -> str | None:
    """Return the release's message if it does not start with this configuration, otherwise None.

    `layers` describes the KV caches of the layers in one pipeline stage. All stages have the same
    layers.
    """
    stages = vllm_config.parallel_config.pipeline_parallel_size
    specs = [
        {f"layer {stage}.{number}": spec for number, spec in enumerate(layers)}
        for stage in range(stages)
    ]
    core = importlib.import_module("vllm.v1.engine.core").EngineCore
    block_size = vllm_config.cache_config.block_size
    try:
        core._initialize_kv_caches(_EngineCore(specs), vllm_config)
    except (AssertionError, NotImplementedError, ValueError) as error:
        # If an assertion has no message, quote its line of code, which shows what is expected.
        line = traceback.extract_tb(error.__traceback__)[-1].line
        words = " ".join(str(error).split()) or str(line)
        longest = LONGEST.search(words)
        return longest[0].strip() if longest else words.partition(". ")[0]
    finally:
        # Planning stores the smallest block size of all groups here, but the configuration is used
        # again.
        vllm_config.cache_config.block_size = block_size
    return None


@functools.cache
def attention(block_size: int, scale: int = 1) -> Any:
    interface = importlib.import_module("vllm.v1.kv_cache_interface")
    float32 = importlib.import_module("torch").float32
    return interface.FullAttentionSpec(
        block_size=block_size, num_kv_heads=1, head_size=32 * scale, dtype=float32
    )
