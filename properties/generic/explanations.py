"""Explain loads, sends and adapters in a failure as for vLLM."""

from ..vllm.explanations import facts

__all__ = ["facts"]
