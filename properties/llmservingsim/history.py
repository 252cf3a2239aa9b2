"""What LLMServingSim's runs have beyond the kernel: what vLLM's have, and a long memory."""

from collections.abc import Mapping
from typing import Any

from ..vllm.history.features import VllmFeatures


class LlmServingSimFeatures(VllmFeatures):
    """Its rules share vLLM's predicates, and one witness asks for prompts that a cache would know,
    also of requests that have ended."""

    def may_forget(self, config: Mapping[str, Any]) -> bool:
        return False


FEATURES = LlmServingSimFeatures()
