"""Targets with nano-vLLM's scheduler."""
