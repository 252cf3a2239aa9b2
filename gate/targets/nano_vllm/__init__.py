"""Targets that run nano-vLLM's scheduler."""
