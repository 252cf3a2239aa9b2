"""What LLMServingSim's runs add to the kernel: vLLM's features, with a longer memory."""

from collections.abc import Mapping
from typing import Any

from ..vllm.history.features import VllmFeatures


class LlmServingSimFeatures(VllmFeatures):
    """vLLM's features, but ended requests are remembered, since a witness needs their prompts.

    The rules share vLLM's predicates.
    """

    def depth(self, config: Mapping[str, Any]) -> int:
        """Return the batches that are in flight once a step has decided, counting its own. Up to
        `pp_size` stay in flight; the oldest completes in a step that builds none."""
        return depth(config)

    def may_forget(self, config: Mapping[str, Any]) -> bool:
        return False


def depth(config: Mapping[str, Any]) -> int:
    stages: int = config["pp_size"]
    return stages + 1 if stages > 1 else 1


FEATURES = LlmServingSimFeatures()
