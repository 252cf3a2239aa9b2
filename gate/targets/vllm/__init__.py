"""Targets that run vLLM's own scheduler."""
