"""Targets that run the schedulers of vLLM's Spyre plugins."""
