"""A run of any scheduler has the optional features of vLLM's, since their keys mean the same."""

from collections.abc import Mapping
from typing import Any

from ..history.prefix_hits import caches
from ..vllm.history.features import VllmFeatures


class GenericFeatures(VllmFeatures):
    """Features of any scheduler; where it keeps cached tokens is unknown."""

    def may_forget(self, config: Mapping[str, Any]) -> bool:
        return not caches(config)


FEATURES = GenericFeatures()
