"""Explain how loads, sends and adapters contribute to a failure, as for vLLM."""

from ..vllm.explanations import facts

__all__ = ["facts"]
