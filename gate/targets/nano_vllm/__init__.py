"""Targets that are nano-vLLM's scheduler."""
