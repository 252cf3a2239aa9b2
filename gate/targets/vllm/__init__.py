"""Targets with vLLM's own scheduler."""
