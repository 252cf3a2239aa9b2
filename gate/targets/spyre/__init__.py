"""Targets with the Spyre plugins of vLLM."""
