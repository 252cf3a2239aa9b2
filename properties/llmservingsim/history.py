"""What LLMServingSim's runs add to the kernel: vLLM's features, with a longer memory."""

from collections.abc import Mapping
from typing import Any

from ..vllm.history.features import VllmFeatures


class LlmServingSimFeatures(VllmFeatures):
    """vLLM's features, but ended requests are remembered, since a witness needs their prompts.

    The rules share vLLM's predicates.
    """

    def may_forget(self, config: Mapping[str, Any]) -> bool:
        return False


FEATURES = LlmServingSimFeatures()
