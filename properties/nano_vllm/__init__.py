"""Checks of nano-vLLM: predicates, strategies, bounds."""
