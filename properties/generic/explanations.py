"""Explain which part loads, sends and adapters play in a failure, as for vLLM."""

from ..vllm.explanations import facts

__all__ = ["facts"]
