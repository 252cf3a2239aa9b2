"""The additions of LLMServingSim's runs to the kernel: vLLM's, and a long memory."""

from collections.abc import Mapping
from typing import Any

from ..vllm.history.features import VllmFeatures


class LlmServingSimFeatures(VllmFeatures):
    """Its rules share vLLM's predicates, and one witness asks for prompts that a cache would know,
    also of requests that have ended."""

    def may_forget(self, config: Mapping[str, Any]) -> bool:
        return False


FEATURES = LlmServingSimFeatures()
