"""Targets that are the Spyre plugins of vLLM."""
