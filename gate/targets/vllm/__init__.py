"""Targets that are vLLM's own scheduler."""
