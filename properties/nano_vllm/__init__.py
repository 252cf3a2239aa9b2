"""The checks of nano-vLLM: predicates, strategies, bounds."""
